"""Which type the products are computed in, decided by a short measurement on this machine."""

import time

import torch


def choose_precision(wanted: str) -> tuple[torch.dtype, str]:
    """The type to compute in and one sentence that says why.

    bfloat16 on a CPU without instructions for it is slower than float32 and less exact: there
    float32 is taken. On other devices the wish is followed.
    """
    if wanted == "float32":
        return torch.float32, "Products are computed in float32, as the specification says."
    half, single = _product_time(torch.bfloat16), _product_time(torch.float32)
    ratio = single / half
    if ratio < 1:
        return torch.float32, (
            f"Products are computed in float32: bfloat16 is {1 / ratio:.1f} times slower here."
        )
    return torch.bfloat16, (
        f"Products are computed in bfloat16 with float32 masters: {ratio:.1f} times as fast here."
    )


def _product_time(dtype: torch.dtype) -> float:
    """Seconds of one product of a training step's size, the best of a few."""
    left, right = torch.ones(2048, 256, dtype=dtype), torch.ones(256, 256, dtype=dtype)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        torch.mm(left, right)
        times.append(time.perf_counter() - start)
    return min(times)
