"""Who goes on at a rung: as the paper's rule says, and as Optuna's own pruner decides."""

import math

import optuna
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.sweeps.halving import Verdict, judge, rung_step

HISTORIES = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=30)


def arrive(value: float, before: list[float], factor: int, maximise: bool) -> Verdict:
    better = sum(other > value if maximise else other < value for other in before)
    return judge(value, better, len(before), factor)


def naive(values: list[float], factor: int, maximise: bool) -> bool:
    """Whether the last of the values is in top_k(rung, |rung| / factor) of the paper, k >= 1."""
    best_first = sorted(values, reverse=maximise)
    top = best_first[: max(math.floor(len(values) / factor), 1)]
    return values[-1] in top


@given(HISTORIES, st.integers(2, 6), st.booleans())
def test_it_keeps_the_best_of_those_that_are_there(
    values: list[float], factor: int, maximise: bool
) -> None:
    for count in range(1, len(values) + 1):
        *before, value = values[:count]
        verdict = arrive(value, before, factor, maximise)
        assert verdict.stays == naive(values[:count], factor, maximise)
        assert verdict.of == count
        ordered = sorted(values[:count], reverse=maximise)
        assert verdict.rank == ordered.index(value) + 1


@given(
    st.lists(
        st.lists(st.integers(-3, 3).map(float), min_size=9, max_size=9), min_size=1, max_size=8
    ),
    st.integers(2, 3),
    st.booleans(),
    st.randoms(use_true_random=False),
)
@settings(max_examples=40, deadline=None)
def test_it_decides_as_optuna_does_whatever_the_order_of_reports(
    curves: list[list[float]], factor: int, maximise: bool, order: object
) -> None:
    """Trials report steps 1 to 9 of their curves, interleaved at random."""
    study = optuna.create_study(
        direction="maximize" if maximise else "minimize",
        pruner=optuna.pruners.SuccessiveHalvingPruner(
            min_resource=1, reduction_factor=factor, min_early_stopping_rate=0
        ),
    )
    trials = [study.ask() for _ in curves]
    alive = dict.fromkeys(range(len(curves)), 0)
    rungs: dict[int, list[float]] = {}
    reached = dict.fromkeys(alive, 0)
    while alive:
        number = order.choice(sorted(alive))  # type: ignore[attr-defined]
        alive[number] += 1
        step = alive[number]
        value = curves[number][step - 1]
        trials[number].report(value, step)
        stopped = False
        while not stopped and step >= rung_step(reached[number], 1, factor):
            here = rungs.setdefault(reached[number], [])
            stopped = not arrive(value, here, factor, maximise).stays
            here.append(value)
            reached[number] += 1
        assert trials[number].should_prune() == stopped
        if stopped or step == 9:
            del alive[number]


def test_rungs_grow_by_the_factor() -> None:
    assert [rung_step(rung, 10, 3) for rung in range(4)] == [10, 30, 90, 270]
