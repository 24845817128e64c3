"""A dry run's spec takes one step of each stage, is valid, and keeps what may not work."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.spec import EvaluateStage, ExperimentSpec, load_spec, problems_of
from engine.spec.datasets import datasets_of
from engine.spec.dry_run import JUDGED, TASKS, on_tiny_amounts
from engine.spec.fork import fork_disagreements

RECIPES = sorted((Path(__file__).resolve().parents[3] / "recipes").glob("*.yaml"))
KEPT = ("seed", "environment", "model", "reward", "trainer", "tags")


def spec_of(data: Any) -> ExperimentSpec:
    found, problems = load_spec(data) if isinstance(data, str) else problems_of(data)
    assert found is not None, problems
    return found


def tiny(spec: ExperimentSpec) -> ExperimentSpec:
    found, problems = on_tiny_amounts(spec)
    assert found is not None, problems
    return found


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_can_be_tried(recipe: Path) -> None:
    spec = spec_of(recipe.read_text())
    small = tiny(spec)
    for name in KEPT:
        assert getattr(small, name) == getattr(spec, name)
    assert small.rollout.workers == spec.rollout.workers
    assert [stage.kind for stage in small.stages] == [stage.kind for stage in spec.stages]
    for stage in small.stages:
        assert getattr(stage, "steps", 1) == 1
    assert sum(small.stages[0].tasks.values()) <= 4 * TASKS  # type: ignore[union-attr]
    assert small.evaluation.tasks <= JUDGED


RL = st.fixed_dictionaries(
    {
        "kind": st.just("rl"),
        "algorithm": st.sampled_from(["cispo", "grpo", "ppo", "dapo", "gspo", "rloo"]),
        "hops": st.sampled_from([[3, 4], [3], [1, 2, 3, 4]]),
        "prompts_per_step": st.integers(1, 64),
        "group_size": st.integers(2, 16),
        "steps": st.integers(2, 90),
    },
    optional={
        "epochs": st.integers(1, 3),
        "minibatches": st.integers(1, 4),
        "stop_at_completion": st.just(0.5),
        "dynamic_sampling": st.booleans(),
        "optimizer": st.just({"warmup_steps": 2}),
    },
)
SFT = st.fixed_dictionaries(
    {"kind": st.just("sft"), "steps": st.integers(60, 300), "batch_size": st.integers(1, 99)},
    optional={"source": st.just("accepted")},
)


@given(
    st.lists(st.one_of(RL, SFT), min_size=1, max_size=4),
    st.integers(1, 8),
    st.integers(16, 200),
    st.booleans(),
)
def test_whatever_is_valid_is_valid_on_tiny_amounts(
    stages: list[dict[str, Any]], workers: int, slots: int, gated: bool
) -> None:
    data: dict[str, Any] = {
        "name": "x",
        "stages": [{"kind": "synthesise"}, *stages],
        "rollout": {"slots": slots, "workers": workers},
        "trainer": {"workers": workers},
    }
    if gated:
        data["pool"] = {"gate": {"shares": {"3 hops": 0.6, "4 hops": 0.6}}}
    spec, _ = problems_of(data)
    if spec is None:
        return
    small = tiny(spec)
    for stage, before in zip(small.stages[1:], spec.stages[1:], strict=True):
        assert stage.steps == 1  # type: ignore[union-attr]
        if stage.kind == "rl" and before.kind == "rl":
            assert stage.resolved() == before.resolved()
            assert stage.group_size == before.group_size
            assert stage.prompts_per_step >= min(before.prompts_per_step, workers)


@given(
    st.sampled_from(["held_out", "quick"]),
    st.one_of(
        st.builds(lambda n: {"position": n}, st.integers(0, 119)),
        st.builds(lambda n: {"number": n}, st.integers(1, 120)),
        st.just({"question": "Where?", "answer": "There"}),
    ),
    st.booleans(),
)
def test_whatever_a_stage_judges_by_it_judges_by_a_few(
    tasks: str, which: dict[str, Any], fork: bool
) -> None:
    judges = {"kind": "evaluate", "tasks": tasks, **which}
    stages = [{"kind": "synthesise"}, {"kind": "sft"}, judges]
    spec, problems = problems_of({"name": "x", "stages": stages})
    assert spec is not None, problems
    small, problems = on_tiny_amounts(spec, fork=fork)
    assert small is not None, problems
    stage = small.stages[2]
    assert isinstance(stage, EvaluateStage)
    assert (stage.number or 0) <= JUDGED and (stage.position or 0) < JUDGED


def test_it_is_tried_once_whatever_was_tried_before() -> None:
    small = tiny(spec_of(RECIPES[0].read_text()))
    assert tiny(small) == small


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_fork_keeps_what_its_tasks_are_made_of(recipe: Path) -> None:
    spec = spec_of(recipe.read_text())
    small, problems = on_tiny_amounts(spec, fork=True)
    assert small is not None, problems
    assert not list(fork_disagreements(small, spec))
    assert {getattr(stage, "steps", 1) for stage in small.stages} == {1}
    assert small.evaluation.trials <= 2


def test_datasets_of_tasks_are_kept_and_few_of_their_tasks_are_played() -> None:
    def version(number: int) -> str:
        return f"ver_{number:016}"

    stages = [
        {"kind": "synthesise"},
        {"kind": "sft", "source": "accepted", "practice": {"dataset": version(1)}},
        {"kind": "dpo", "practice": {"dataset": version(2)}},
        {"kind": "opd", "dataset": version(3), "teachers": [{"stage": 1}], "group_size": 2},
    ]
    shares = {"city": 0.5, "river": 0.4, "sea": 0.4}
    small = tiny(spec_of({"name": "x", "stages": stages, "pool": {"gate": {"shares": shares}}}))
    assert [one.version for one in datasets_of(small)] == [version(n) for n in (1, 2, 3)]
    _, accepted, repair, distil = small.stages
    assert accepted.practice.tasks == repair.practice.tasks == TASKS  # type: ignore[union-attr]
    assert distil.prompts_per_step == 3, "one of each category"  # type: ignore[union-attr]
