"""A plan that cannot be followed is refused at its fields; what is drawn lies inside its range."""

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.webapp.support import SPEC
from webapp.problems import RefusedError
from webapp.sweeps.plan import SweepPlan, read_plan
from webapp.sweeps.services.create import preview
from webapp.sweeps.space import params_of

LR = "stages.1.optimizer.lr"


def plan(*space: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"space": list(space), "budget": {"trials": 5}, **fields}


def choice(path: str, *values: Any) -> dict[str, Any]:
    return {"kind": "choice", "path": path, "values": list(values)}


def spread(kind: str, path: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "path": path, "low": low, "high": high, **more}


def ready(data: dict[str, Any]) -> SweepPlan:
    found, problems = read_plan(data)
    assert found is not None, problems
    return found


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (plan(), "space"),
        (plan({"path": "seed", "values": [1]}), "space.0.kind"),
        (plan({"kind": "normal", "path": "seed"}), "space.0.kind"),
        (plan(choice("seed")), "space.0.values"),
        (plan(spread("uniform", LR, 1, 1)), "space.0.high"),
        (plan(spread("loguniform", LR, 0, 1)), "space.0.low"),
        (plan(spread("uniform", LR, "low", 1)), "space.0.low"),  # type: ignore[arg-type]
        (plan(spread("int", "seed", 1, 9, step=0)), "space.0.step"),
        (plan(spread("int", "seed", 1.5, 9)), "space.0.low"),
        (plan(choice("seed", 1), choice("seed", 2)), "space.1.path"),
        (plan(choice("stages.1", {}), choice(LR, 2)), "space.1.path"),
        (plan(spread("int", "seed", 0, 2**64)), "space.0.high"),
        (plan(spread("uniform", LR, 0, 1e300)), "space.0.high"),
        (plan(choice("a b", 1)), "space.0.path"),
        (plan(choice("seed", 1), budget={}), "budget"),
        (plan(choice("seed", 1), budget={"trials": 0}), "budget.trials"),
        (plan(choice("seed", 1), budget={"euros": 1}), "budget.euros"),
        (plan(spread("uniform", LR, 1, 2), method="grid"), "space.0.kind"),
        (plan(spread("int", "seed", 0, 20_000), method="grid"), "space"),
        (plan(choice("seed", 1), method="bayes"), "method"),
        (plan(choice("seed", 1), at_once=0), "at_once"),
        (plan(choice("seed", 1), halving={"factor": 3}), "halving.min_steps"),
        (plan(choice("seed", 1), halving={"min_steps": 1, "factor": 1}), "halving.factor"),
        (plan(choice("seed", 1), priority=5000), "priority"),
        ({"space": [choice("seed", 1)], "budget": {"trials": float("nan")}}, "budget.trials"),
    ],
)
def test_it_names_the_field_that_is_wrong(data: dict[str, Any], path: str) -> None:
    found, problems = read_plan(data)
    assert found is None
    assert path in [one.path for one in problems]


def test_it_reads_numbers_as_yaml_writes_them() -> None:
    found = ready(plan(spread("loguniform", LR, "1e-4", "1e-2")))  # type: ignore[arg-type]
    assert json.loads(found.model_dump_json())["space"][0]["low"] == 1e-4


def test_a_grid_is_the_product_of_its_values() -> None:
    wished = plan(
        choice("seed", 3, 1), spread("int", "steps", 0, 5, step=2), choice("x", [1], "a"),
        method="grid", budget={},
    )  # fmt: skip
    found = ready(wished)
    cells = [params_of(found, number) for number in range(found.grid_size() + 1)]
    expected = [
        {"seed": a, "steps": b, "x": c} for a, b, c in product([3, 1], [0, 2, 4], [[1], "a"])
    ]
    assert cells == [*expected, None]


@given(st.integers(0, 1000), st.integers(0, 2**31 - 1))
def test_what_is_drawn_lies_in_its_range_and_is_the_same_when_asked_again(
    number: int, seed: int
) -> None:
    found = ready(
        plan(
            spread("uniform", "a", -1, 1), spread("loguniform", "b", 1e-6, 1e-3),
            spread("int", "c", 3, 10, step=3), choice("d", "x", "y"), seed=seed,
        )
    )  # fmt: skip
    drawn = params_of(found, number)
    assert drawn is not None
    assert -1 <= drawn["a"] <= 1 and 1e-6 <= drawn["b"] <= 1e-3
    assert drawn["c"] in (3, 6, 9) and drawn["d"] in ("x", "y")
    assert params_of(found, number) == drawn


def test_a_logarithmic_range_spreads_over_its_magnitudes() -> None:
    found = ready(plan(spread("loguniform", "a", 1e-6, 1e-2)))
    drawn = [(params_of(found, number) or {})["a"] for number in range(400)]
    below = sum(value < 1e-4 for value in drawn)
    assert 140 < below < 260  # the middle of the exponents; evenly spread values: 1%


def test_a_space_that_cannot_be_valid_is_refused_at_its_field() -> None:
    with pytest.raises(RefusedError) as refused:
        preview(SPEC, plan(choice("stages.1.stepz", 1, 2)))
    assert [one.path for one in refused.value.errors] == ["space.0"]
    with pytest.raises(RefusedError) as refused:
        preview(SPEC, plan(choice("stages.7.steps", 1)))
    assert "no position" in refused.value.errors[0].message


def test_it_counts_combinations_that_the_spec_refuses() -> None:
    seen = preview(
        SPEC,
        plan(
            choice("stages.1.optimizer.warmup_steps", 5, 50),
            choice("stages.1.steps", 20, 100),
            method="grid",
            budget={},
        ),
    )
    assert (seen.trials, seen.tried, seen.steps) == (4, 4, (40, 120))
    assert [params for params, _ in seen.refused] == [
        {"stages.1.optimizer.warmup_steps": 50, "stages.1.steps": 20}
    ]
    assert "do not fit" in seen.refused[0][1]
    assert seen.most_steps == 480


def test_a_budget_that_holds_no_trial_is_refused() -> None:
    with pytest.raises(RefusedError) as refused:
        preview(SPEC, plan(choice("seed", 1, 2), budget={"steps": 119}))
    assert [one.path for one in refused.value.errors] == ["budget.steps"]


def test_what_varies_may_mend_a_spec_that_is_not_valid_by_itself() -> None:
    base = {**SPEC, "seed": "none yet"}
    assert preview(base, plan(choice("seed", 1, 2))).refused == []
