"""Phases cover all time once, and the busy share is exact however short they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.telemetry.spans import BUSY, PhaseClock

PHASES = ["generate", "tool", "queue", "train", "sync", "evaluate", "idle"]


class Time:
    def __init__(self) -> None:
        self.value = 50.0

    def __call__(self) -> float:
        return self.value


def test_a_phase_inside_another_interrupts_it():
    time = Time()
    clock = PhaseClock(time, wall=lambda: 1000.0)
    with clock.phase("generate"):
        time.value += 1
        with clock.phase("tool"):
            time.value += 2
        time.value += 3
    time.value += 4
    spans, busy = clock.drain()
    assert spans == [
        ("generate", 1000.0, 1001.0),
        ("tool", 1001.0, 1003.0),
        ("generate", 1003.0, 1006.0),
        ("idle", 1006.0, 1010.0),
    ]
    assert busy == pytest.approx(4 / 10)


def test_a_phase_that_fails_is_left():
    time = Time()
    clock = PhaseClock(time, wall=time)
    with pytest.raises(ValueError), clock.phase("train"):
        time.value += 1
        raise ValueError
    time.value += 1
    assert [span[0] for span in clock.drain()[0]] == ["train", "idle"]


@given(
    st.lists(st.tuples(st.sampled_from(PHASES), st.floats(1e-4, 2.0)), min_size=1, max_size=40),
    st.integers(1, 7),
)
def test_spans_cover_the_time_without_holes_and_the_busy_share_is_exact(parts, drain_every):
    time = Time()
    clock = PhaseClock(time, wall=lambda: 1000.0)
    spans, busy_s = [], 0.0
    for index, (phase, seconds) in enumerate(parts):
        clock.enter(phase)
        time.value += seconds
        if index % drain_every == 0 or index == len(parts) - 1:
            before = spans[-1][2] if spans else 1000.0
            new, share = clock.drain()
            assert new[0][1] == pytest.approx(before)
            busy_s += share * (new[-1][2] - before)
            spans += new
    total = sum(seconds for _, seconds in parts)
    assert spans[-1][2] - spans[0][1] == pytest.approx(total)
    for earlier, later in zip(spans, spans[1:], strict=False):
        assert earlier[2] == pytest.approx(later[1])
    assert busy_s == pytest.approx(sum(s for phase, s in parts if phase in BUSY), abs=1e-6)


def test_very_short_phases_are_drawn_as_what_prevailed():
    time = Time()
    clock = PhaseClock(time, wall=lambda: 1000.0)
    for _ in range(1000):
        clock.enter("tool")
        time.value += 0.001
        clock.enter("generate")
        time.value += 0.004
    spans, busy = clock.drain()
    assert [span[0] for span in spans] == ["generate"]
    assert busy == pytest.approx(0.8)
