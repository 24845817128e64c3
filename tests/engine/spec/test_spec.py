"""Specs: what is refused, where the problem is pointed at, and that recipes are good."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine.spec import ExperimentSpec, hop_category, load_spec, problems_of, spec_hash

FOLDER = Path(__file__).parents[3] / "recipes"
RECIPES = sorted(FOLDER.glob("*.yaml"))
GOOD = yaml.safe_load((FOLDER / "kg-search.yaml").read_text())


def changed(**fields: Any) -> dict[str, Any]:
    """The quick start's recipe with other values at dotted paths; `...` removes the field."""
    data: dict[str, Any] = json.loads(json.dumps(GOOD))
    for path, value in fields.items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split("__")]
        at: Any = data
        for part in parents:
            at = at[part]
        if value is ...:
            del at[last]
        else:
            at[last] = value
    return data


def paths(data: dict[str, Any]) -> list[str]:
    spec, problems = problems_of(data)
    assert (spec is None) == bool(problems)
    assert all(problem.message.strip() for problem in problems)
    return [problem.path for problem in problems]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_good_and_is_called_like_its_file(recipe: Path) -> None:
    spec, problems = load_spec(recipe.read_text())
    assert problems == [] and spec is not None and spec.name == recipe.stem


def test_there_are_recipes() -> None:
    assert {path.stem for path in RECIPES} >= {"kg-search", "smoke"}


@pytest.mark.parametrize(
    ("data", "at"),
    [
        # unknown keys
        (changed(colour="red"), "colour"),
        (changed(environment__graph__size=5), "environment.graph.size"),
        (changed(stages__1__epochs=3), "stages.1.epochs"),
        (changed(stages__2__optimizer__momentum=0.9), "stages.2.optimizer.momentum"),
        (changed(reward__terms__0__scale=1), "reward.terms.0.scale"),
        # wrong types
        (changed(seed="0"), "seed"),
        (changed(seed=1.5), "seed"),
        (changed(stages__1__steps=True), "stages.1.steps"),
        (changed(tags="quick"), "tags"),
        (changed(environment__call_timeout_s="5 s"), "environment.call_timeout_s"),
        (changed(stages={"kind": "sft"}), "stages"),
        (changed(model=None), "model"),
        # values out of range
        (changed(name=""), "name"),
        (changed(environment__graph__cities=10), "environment.graph.cities"),
        (changed(environment__graph__held_out=0), "environment.graph.held_out"),
        (changed(stages__0__detour_share=1.5), "stages.0.detour_share"),
        (changed(stages__0__tasks={"0": 5}), "stages.0.tasks.0"),
        (changed(stages__0__tasks={"two": 5}), "stages.0.tasks.two"),
        (changed(stages__0__tasks={"2": -5}), "stages.0.tasks.2"),
        (changed(stages__1__optimizer__betas=[0.9]), "stages.1.optimizer.betas.1"),
        (changed(stages__1__optimizer__betas=[0.9, 1.0]), "stages.1.optimizer.betas.1"),
        (changed(stages__2__hops=[]), "stages.2.hops"),
        (changed(stages__2__optimizer__lr=float("inf")), "stages.2.optimizer.lr"),
        (changed(model__layers=[]), "model.layers"),
        (changed(model__head_dim=15), "model.head_dim"),
        (changed(model__rotary_dim=3), "model.rotary_dim"),
        (changed(model__experts_per_token=1), "model.experts_per_token"),
        (changed(model__layers=["lightning", "mamba"]), "model.layers.1"),
        (changed(reward__terms=[]), "reward.terms"),
        (changed(reward__terms=[{"kind": "format"}, {"kind": "format"}]), "reward"),
        # required fields and kinds
        (changed(name=...), "name"),
        (changed(stages=[]), "stages"),
        (changed(stages__1__kind="pretrain"), "stages.1.kind"),
        (changed(stages__1__kind=...), "stages.1.kind"),
        (changed(pool__gate__shares={"3 hops": 0.5, "4 hops": 0.4}), "pool.gate.shares"),
    ],
)
def test_it_points_at_the_field(data: dict[str, Any], at: str) -> None:
    assert paths(data) == [at]


@pytest.mark.parametrize("field", ["top_p", "top_k", "min_p"])
def test_it_says_why_it_does_not_sample_from_a_part_of_the_distribution(field: str) -> None:
    _, (problem,) = problems_of(changed(**{f"rollout__{field}": 0.9}))
    assert problem.path == f"rollout.{field}"
    assert "no importance weight" in problem.message


@pytest.mark.parametrize(
    ("data", "both"),
    [
        (changed(model__width=130), ["model.width", "model.heads"]),
        (changed(model__width=132, model__heads=44), ["model.width", "model.heads"]),
        (changed(model__kv_heads=3), ["model.kv_heads", "model.heads"]),
        (
            changed(model__kv_heads=2, model__layers=["lightning"]),
            ["model.kv_heads", "model.layers"],
        ),
        (
            changed(model__rotary_dim=8, model__layers=["lightning"]),
            ["model.rotary_dim", "model.layers"],
        ),
        (changed(model__rotary_dim=34), ["model.rotary_dim", "model.heads"]),
        (
            changed(model__rotary_dim=18, model__head_dim=16),
            ["model.rotary_dim", "model.head_dim"],
        ),
        (changed(model__experts_per_token=2), ["model.experts_per_token", "model.experts"]),
        (changed(model__router_aux_weight=0.01), ["model.router_aux_weight", "model.experts"]),
        (
            changed(model__experts=3, model__experts_per_token=4, stages__2=...),
            ["model.experts_per_token", "model.experts"],
        ),
        (
            changed(environment__max_turn_tokens=300),
            ["environment.max_turn_tokens", "environment.max_tokens"],
        ),
        (
            changed(evaluation__hops=[9]),
            ["evaluation.hops", "environment.max_calls"],
        ),
        (
            changed(stages__0__tasks={"1": 9, "2": 9, "3": 9, "4": 9, "9": 9}),
            ["stages.0.tasks", "environment.max_calls"],
        ),
        (
            changed(stages__0__demonstrations={"5": 10}),
            ["stages.0.demonstrations", "stages.0.tasks"],
        ),
        (
            changed(stages__0__demonstrations={"1": 0}),
            ["stages.1.kind", "stages.0.demonstrations"],
        ),
        (
            changed(stages__1__optimizer__warmup_steps=301),
            ["stages.1.optimizer.warmup_steps", "stages.1.steps"],
        ),
        (
            changed(stages__2__hops=[3, 4, 5], pool__gate__shares={}),
            ["stages.2.hops", "stages.0.tasks"],
        ),
        (
            changed(stages__2__prompts_per_step=97),
            ["stages.2.prompts_per_step", "pool.capacity"],
        ),
        (changed(stages__2__group_size=193), ["stages.2.group_size", "rollout.slots"]),
        (
            changed(pool__gate__shares={"2 hops": 0.5, "3 hops": 0.5, "4 hops": 0.5}),
            ["pool.gate.shares", "stages.2.hops"],
        ),
        (changed(pool__gate__shares={"3 hops": 1.0}), ["pool.gate.shares", "stages.2.hops"]),
    ],
)
def test_fields_that_disagree_are_named_at_both(data: dict[str, Any], both: list[str]) -> None:
    assert paths(data) == both


def test_the_first_stage_synthesises_and_no_other_does() -> None:
    first, *others = GOOD["stages"]
    assert paths(changed(stages=others)) == ["stages.0.kind"]
    assert paths(changed(stages=[first, *others, first])) == ["stages.3.kind"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not NoneType"),
        ("just words", "not str"),
        ("- a\n- b", "not list"),
        ("a: [1", "not valid YAML: line 1, column 6: expected ',' or ']'"),
        ("name: a\nname: b", "given twice: name"),
        ("a: &a [x]\nb: *a", "no aliases"),
        ("when: 2026-01-01", "plain values"),
        ("[" * 5_000, "nested too deeply"),
        ("a: !!python/object/apply:os.system ['true']", "not valid YAML"),
    ],
)
def test_it_says_what_is_wrong_with_the_whole_text(text: str, says: str) -> None:
    spec, (problem,) = load_spec(text)
    assert spec is None and problem.path == "" and says in problem.message


@given(st.text(max_size=200))
def test_any_text_is_answered(text: str) -> None:
    spec, problems = load_spec(text)
    assert spec is None and problems


def test_numbers_of_hops_may_be_written_as_numbers() -> None:
    text = (FOLDER / "smoke.yaml").read_text().replace('"1":', "1:")
    assert load_spec(text) == load_spec((FOLDER / "smoke.yaml").read_text())


@given(st.integers(0, 2**31 - 1), st.integers(1, 500), st.floats(1e-6, 1.0))
def test_a_frozen_spec_reads_back_equal(seed: int, steps: int, lr: float) -> None:
    spec, _ = problems_of(
        changed(seed=seed, stages__2__steps=steps + 10, stages__2__optimizer__lr=lr)
    )
    assert spec is not None
    frozen = spec.model_dump(mode="json")
    again, problems = problems_of(json.loads(json.dumps(frozen)))
    assert again == spec and problems == []
    assert spec_hash(again) == spec_hash(spec)


def test_equal_specs_hash_equally_and_others_do_not() -> None:
    spec, _ = problems_of(GOOD)
    shuffled, _ = problems_of(dict(reversed(GOOD.items())))
    other, _ = problems_of(changed(seed=1))
    assert spec and shuffled and other
    assert spec_hash(spec) == spec_hash(shuffled) != spec_hash(other)


def test_a_category_counts_one_hop_in_the_singular() -> None:
    assert [hop_category(hops) for hops in (1, 2)] == ["1 hop", "2 hops"]


def test_every_field_is_described_by_a_schema_without_loose_ends() -> None:
    schema = ExperimentSpec.model_json_schema()
    for name, part in schema["$defs"].items():
        assert part.get("additionalProperties") is False or "enum" in part, name


def test_a_rule_that_could_never_end_its_stage_is_refused() -> None:
    for fields, evaluation, part in (
        ({"stop_at_completion": 0.97}, {}, "would still have a lower end of 0.969"),
        ({"stop_at_completion": 0.9, "steps": 10}, {}, "would end before it could stop"),
        ({"stop_at_completion": 0.97}, {"quick_tasks": 200}, ""),
        ({"stop_at_completion": 0.97}, {"trials": 2, "temperature": 1.0}, "lower end of 0.969"),
        ({"stop_at_completion": 0.9}, {}, ""),
    ):
        stages = [{"kind": "synthesise"}, {"kind": "rl", "steps": 70, **fields}]
        _, found = problems_of({"name": "x", "stages": stages, "evaluation": evaluation})
        told = [one.message for one in found if one.path == "stages.1.stop_at_completion"]
        assert len(told) == bool(part) and all(part in one for one in told)
