"""Peak memory of one training step, in a process of its own: `python -m bench._tree_memory tree`.

Counts what torch's CPU allocator hands out and takes back, as its profiler records it, so that
neither the C library nor what was freed before has a say.
"""

import subprocess
import sys

import torch
from torch.profiler import ProfilerActivity, profile

from bench._tree_training import WHOLE, Samples, Shape, joined_samples, make_model, step

SHAPE = Shape(prompt=1024, turns=1, turn=176, rollouts=16)  # 5 tokens of samples for one computed


def peak_bytes(kind: str) -> int:
    """Peak of a "tree" step, or of a "joint" one over all samples unmerged, in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench._tree_memory", kind],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout.split()[-1])


def samples() -> Samples:
    return joined_samples(SHAPE)


def _measure(kind: str) -> int:
    model, batch = make_model(), samples()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step(model, batch, merge=kind == "tree", bound=WHOLE)
    results = recorded.profiler.kineto_results
    changes = [event for event in results.events() if event.name() == "[memory]"]
    held = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        peak = max(peak, held)
    return peak


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(_measure(sys.argv[1]))
