"""The timing of rivals in turns."""

import pytest
import torch

from bench._timing import interleaved_min_cpu_seconds


def test_every_call_has_its_turn_in_every_round() -> None:
    order: list[str] = []
    calls = {name: (lambda name=name: order.append(name)) for name in "abc"}
    least = interleaved_min_cpu_seconds(calls, 2, warm_up=1)
    assert order == list("abc" * 3)
    assert set(least) == set("abc") and all(0 <= seconds < 1 for seconds in least.values())


def test_torch_keeps_to_one_thread_meanwhile_and_gets_them_back() -> None:
    before, seen = torch.get_num_threads(), []

    def fail() -> None:
        seen.append(torch.get_num_threads())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        interleaved_min_cpu_seconds({"a": fail}, 1)
    assert seen == [1] and torch.get_num_threads() == before


def test_it_refuses_to_measure_nothing() -> None:
    with pytest.raises(ValueError, match="repeats is 0"):
        interleaved_min_cpu_seconds({}, 0)
