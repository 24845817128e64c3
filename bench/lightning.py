"""Lightning attention on a CPU: exactness, training and decoding speed beside softmax attention.

One process and one thread; rivals take turns, and a figure is the ratio of their least CPU times.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional

from bench import _lightning_cases as lightning
from bench._timing import interleaved_min_cpu_seconds
from bench.figures import Figure, Options, measured
from engine.kernels.lightning import (
    Packing,
    chunked,
    lightning_attention,
    lightning_step,
    packing,
)

_figure = partial(measured, "lightning")

ROUNDS = 6
SDPA = "torch scaled_dot_product_attention"
BLOCKS = (64, 128, 256)  # of the peer's loop; the best one counts
DECODE_HEADS, DECODE_DIM = 8, 64
Times = dict[str, float]


def run(options: Options) -> list[Figure]:
    del options
    return [*exactness(), *training(), *decoding()]


def exactness() -> list[Figure]:
    """Worst relative error of a head against the fp64 recurrence, over all cases."""
    cases = lightning.cases()
    lengths = ", ".join(str(tokens) for tokens in lightning.LENGTHS)
    setup = (
        f"{lengths} tokens: alone, packed, as a tree, left-padded, NaN in tails; "
        "output, final state, dq, dk, dv, dS_in; random initial state"
    )
    with patch.object(chunked, "_decays", lightning.one_exponent_short):
        shifted = lightning.worst_error(torch.float32, [lightning.cases()[3]])
    fp32 = lightning.worst_error(torch.float32, cases)
    fp64 = lightning.worst_error(torch.float64, cases)
    return [
        _figure("exactness_fp32", fp32, "", "at most 0.00001", setup=setup),
        _figure("exactness_fp64", fp64, "", "at most 0.000000000001", setup=setup),
        _figure(
            "shifted_decay_error",
            shifted,
            "",
            "at least 0.001",
            setup="the same measure with one exponent of the decay short: it must be noticed",
        ),
    ]


def training() -> list[Figure]:
    """Forward and backward, one sequence, 4 heads."""
    rate = lightning.slopes(lightning.HEADS)

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return lightning_attention(q, k, v, rate)[0]

    calls: dict[str, Callable[[], object]] = {}
    for tokens in (4096, 8192):
        calls[f"ours {tokens}"] = lightning.training(ours, tokens, 64)
        calls[f"sdpa {tokens}"] = lightning.training(lightning.softmax, tokens, 64)
    times = interleaved_min_cpu_seconds(calls, ROUNDS)
    figures = [
        _ratio(f"train_vs_sdpa_{tokens // 1024}k", f"at least {bar}", times, "sdpa", tokens, SDPA)
        for tokens, bar in ((4096, 8), (8192, 15))
    ]
    figures += _against_the_loop(ours)
    long = {tokens: lightning.training(ours, tokens, 64) for tokens in (4096, 32768)}
    tree, tokens = _tree_of_turns()
    over_tree = lightning.training(
        lambda q, k, v: lightning_attention(q, k, v, rate, packing=tree)[0], tokens, 64
    )
    times = interleaved_min_cpu_seconds(
        {"4096": long[4096], "32768": long[32768], "tree": over_tree}, ROUNDS
    )
    each = times["4096"] / 4096
    per_token = times["32768"] / 32768 / each
    setup = f"4 heads of 64, fp32; {each * 1e6:.2f} us a token at 4,096 tokens"
    figures.append(_figure("token_cost_32k_vs_4k", per_token, "x", "at most 1.3", setup=setup))
    setup = "1,536 tokens, then 2 chains of 48 nodes of 24, against one sequence of 4,096"
    figures.append(
        _figure("token_cost_tree_vs_4k", times["tree"] / tokens / each, "x", setup=setup)
    )
    return figures


def _against_the_loop(ours: Callable[[Tensor, Tensor, Tensor], Tensor]) -> list[Figure]:
    figures = []
    rate = lightning.slopes(lightning.HEADS)
    for dim, bar in ((64, 2), (128, 1.8)):
        calls = {"ours": lightning.training(ours, 4096, dim)}
        for block in BLOCKS:
            loop = partial(lightning.block_loop, rate=rate, block=block)
            calls[f"loop {block}"] = lightning.training(loop, 4096, dim)
        if dim == 64:
            calls["bf16"] = lightning.training(ours, 4096, dim, torch.bfloat16)
        times = interleaved_min_cpu_seconds(calls, ROUNDS)
        block = min(BLOCKS, key=lambda block: times[f"loop {block}"])
        loop_s = times[f"loop {block}"]
        figures.append(
            _figure(
                f"train_vs_block_loop_d{dim}",
                loop_s / times["ours"],
                "x",
                f"at least {bar}",
                peer=f"block loop as in transformers, under autograd, best block ({block})",
                setup=f"4,096 tokens, 4 heads, fp32: {_ms(times['ours'])} against {_ms(loop_s)}",
            )
        )
        if dim == 64:
            figures.append(_bf16(times))
    return figures


def _bf16(times: Times) -> Figure:
    if not _has_bf16_instructions():
        return _figure("train_bf16_vs_fp32", None, "x", setup="this CPU has no bf16 instructions")
    return _figure(
        "train_bf16_vs_fp32",
        times["ours"] / times["bf16"],
        "x",
        "at least 1.7",
        setup=f"4,096 tokens, 4 heads of 64: {_ms(times['bf16'])}, fp32 states",
    )


def decoding() -> list[Figure]:
    """One token for one sequence, 8 heads of 64, attention only."""
    shape = (1, DECODE_HEADS, 1, DECODE_DIM)
    q, k, v = (torch.randn(shape) for _ in range(3))
    rate = lightning.slopes(DECODE_HEADS)
    calls: dict[str, Callable[[], object]] = {}
    steps, looks = 500, 2  # so many steps that what a look left of the cache does not matter
    for tokens in (1024, 131072):
        state = _state_after(tokens, rate)
        step = partial(lightning_step, q[:, :, 0], k[:, :, 0], v[:, :, 0], rate, state)
        calls[f"step {tokens}"] = partial(_repeat, step, steps)
    keys, values = (torch.randn(1, DECODE_HEADS, 16384, DECODE_DIM) for _ in range(2))
    look = partial(functional.scaled_dot_product_attention, q, keys, values)
    calls["sdpa"] = partial(_repeat, look, looks)
    with torch.no_grad():
        times = interleaved_min_cpu_seconds(calls, 8 * ROUNDS)
    step_s, look_s = times["step 1024"] / steps, times["sdpa"] / looks
    return [
        _figure(
            "decode_vs_sdpa_16k",
            look_s / step_s,
            "x",
            "at least 200",
            peer=SDPA,
            setup=f"8 heads of 64, fp32: {step_s * 1e6:.1f} us against {look_s * 1e6:.0f} us",
        ),
        _figure(
            "decode_128k_vs_1k",
            times["step 131072"] / times["step 1024"],
            "x",
            "at most 1.1",
            setup="a step from the state after 131,072 tokens, and after 1,024",
        ),
    ]


def _state_after(tokens: int, rate: Tensor) -> Tensor:
    state, piece = None, 8192
    for start in range(0, tokens, piece):
        count = min(piece, tokens - start)
        q, k, v = (torch.randn(1, DECODE_HEADS, count, DECODE_DIM) for _ in range(3))
        with torch.no_grad():
            _, state = lightning_attention(q, k, v, rate, initial_state=state)
    assert state is not None
    return state


def _repeat(call: Callable[[], object], times: int) -> None:
    for _ in range(times):
        call()


def _tree_of_turns() -> tuple[Packing, int]:
    turns, lengths = 48, [1536] + 2 * 48 * [24]
    parents = [-1] + [0 if node % turns == 0 else node for node in range(2 * turns)]
    made = packing(torch.tensor([0, *lengths]).cumsum(0), parents)
    return made, made.tokens


def _has_bf16_instructions() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:  # no Linux
        return False
    return any(flag in flags for flag in ("avx512_bf16", "amx_bf16", " bf16"))


def _ratio(metric: str, bar: str, times: Times, rival: str, tokens: int, peer: str) -> Figure:
    ours, theirs = times[f"ours {tokens}"], times[f"{rival} {tokens}"]
    setup = f"{tokens:,} tokens, 4 heads of 64, fp32: {_ms(ours)} against {_ms(theirs)}"
    return _figure(metric, theirs / ours, "x", bar, peer=peer, setup=setup)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
