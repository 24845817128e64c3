"""Axes of parallel coordinates: which there are, how they are divided, what is missing on them."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from webapp.experiments.models import Run
from webapp.experiments.parallel import MOST_AXES, axes
from webapp.experiments.queries import Difference, config_differences, flat_spec

LEAF = st.sampled_from([1, 2, 0.5, "a", None, True, [], {}, [1, 2]])
TREE = st.recursive(
    LEAF, lambda inner: st.dictionaries(st.sampled_from("abc"), inner) | st.lists(inner, max_size=3)
)


def runs(*headlines: dict[str, float]) -> list[Run]:
    return [Run(headline=headline) for headline in headlines]


def kinds(**fields: list[Any]) -> dict[str, str]:
    rows = [Difference(path.replace("__", "."), values) for path, values in fields.items()]
    return {axis.name: axis.kind for axis in axes(runs({}, {}), rows)}


def test_learning_rates_and_wide_numbers_are_logarithmic() -> None:
    found = kinds(
        stages__1__optimizer__lr=[1e-4, 2e-4],
        steps=[1, 200],
        near=[1, 2],
        signed=[-1, 1000],
        algorithm=["cispo", "grpo"],
        on=[True, False],
        mixed=[1, "auto"],
        gone=[None, 3],
    )
    assert found == {
        "stages.1.optimizer.lr": "log",
        "steps": "log",
        "near": "number",
        "signed": "number",
        "algorithm": "category",
        "on": "category",
        "mixed": "category",
        "gone": "number",
    }


def test_what_is_missing_or_no_number_stays_so() -> None:
    rows = [Difference("seed", [1, None, 3])]
    headlines: list[dict[str, float]] = [
        {"train/loss": 0.0},
        {},
        {"train/loss": math.nan, "rollout/turns": 2.0},
    ]
    found = {axis.name: axis.values for axis in axes(runs(*headlines), rows)}
    assert found == {
        "seed": [1, None, 3],
        "train/loss": [0.0, None, "NaN"],
        "rollout/turns": [None, None, 2.0],
    }


def test_labels_are_no_axes_and_there_are_not_too_many() -> None:
    rows = [Difference("name", ["a", "b"]), Difference("tags", [["x"], []])]
    rows += [Difference(f"field_{n:03}", [n, n + 1]) for n in range(100)]
    found = axes(runs({"train/loss": 1.0}, {}), rows)
    assert len(found) == MOST_AXES
    assert found[0].name == "field_000" and found[-1].name == "train/loss"
    (long,) = axes(runs({}, {}), [Difference("text", ["x" * 500, "y"])])
    assert len(long.values[0]) == 40


@given(st.lists(TREE, min_size=1, max_size=4))
def test_differences_are_those_of_all_leaves(trees: list[Any]) -> None:
    """Against the plain way: flatten every spec, and keep the paths that differ."""
    specs = [{"spec": tree} for tree in trees]
    flat = [dict(flat_spec(spec)) for spec in specs]
    rows = [(path, [one.get(path) for one in flat]) for path in sorted(set().union(*flat))]
    wanted = [(path, values) for path, values in rows if any(v != values[0] for v in values)]
    assert [(row.path, row.values) for row in config_differences(specs)] == wanted


def test_equal_specs_differ_in_nothing() -> None:
    assert config_differences([]) == []
    assert config_differences([{"a": {"b": [1, {"c": 2}]}}] * 3) == []
