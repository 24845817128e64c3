"""CPU time of rivals in one process on one thread, taken in turns so that a busy machine hits all
alike."""

import gc
import time
from collections.abc import Callable, Mapping

import torch


def interleaved_min_cpu_seconds(
    calls: Mapping[str, Callable[[], object]], repeats: int, *, warm_up: int = 1
) -> dict[str, float]:
    """The least CPU seconds of each call, over `repeats` rounds in which every call has its turn.

    The minimum is of the process, whose torch keeps to one thread meanwhile: what other processes
    do to caches and clocks only ever adds. `warm_up` rounds before are not counted.
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}: it must be at least 1")
    least = dict.fromkeys(calls, float("inf"))
    threads, collecting = torch.get_num_threads(), gc.isenabled()
    torch.set_num_threads(1)
    gc.disable()
    try:
        for turn in range(warm_up + repeats):
            for name, call in calls.items():
                began = time.process_time()
                call()
                spent = time.process_time() - began
                if turn >= warm_up:
                    least[name] = min(least[name], spent)
            gc.collect()
    finally:
        torch.set_num_threads(threads)
        if collecting:
            gc.enable()
    return least
