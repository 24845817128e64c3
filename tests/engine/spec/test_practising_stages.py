"""Stages that practise before they learn: what they need, and fields that nothing would read."""

import pytest

from engine.spec import DpoStage, SftStage, load_spec
from engine.spec.practice import PracticeSpec

SPEC = """
name: tiny
stages:
  - {{kind: synthesise, tasks: {{"1": 60}}, demonstrations: {{"1": {shown}}}}}
  - {stage}
rollout: {{slots: 16}}
evaluation: {{hops: [1]}}
"""


def problems(stage: str, shown: int = 50) -> dict[str, str]:
    _, found = load_spec(SPEC.format(stage=stage, shown=shown))
    return {one.path.removeprefix("stages.1."): one.message for one in found}


@pytest.mark.parametrize("kind", ["{kind: dpo,", "{kind: sft, source: accepted,"])
def test_practice_needs_tasks_of_its_hops_and_attempts_that_fit_into_a_worker(kind):
    assert problems(f"{kind} practice: {{hops: [1], attempts: 16}}}}", shown=0) == {}
    found = problems(f"{kind} practice: {{hops: [1, 3], attempts: 17}}}}")
    assert "practises tasks of 3 hops; the first stage draws none" in found["practice.hops"]
    assert "a worker keeps at most 16" in found["practice.attempts"]
    assert "rollout.slots" in found


def test_what_the_loss_does_not_read_is_refused():
    start = "{kind: dpo, practice: {hops: [1]}, "
    assert "does not read beta" in problems(start + "loss: sft, beta: 0.1}")["beta"]
    assert "does not read rpo_weight" in problems(start + "loss: sft, rpo_weight: 1.0}")["loss"]
    assert "it is of sigmoid" in problems(start + "loss: ipo, label_smoothing: 0.1}")["loss"]
    assert problems(start + "label_smoothing: 0.1, rpo_weight: 1.0, beta: 0.3}") == {}
    assert "label_smoothing" in problems(start + "label_smoothing: 0.5}")
    assert "beta" in problems(start + "beta: 0.0}")
    assert problems(start + "own_tokens: first}") == {}
    assert problems(start + "own_tokens: first, loss: sft}") == {}
    assert "'all' or 'first'" in problems(start + "own_tokens: last}")["own_tokens"]


def test_trls_names_of_losses_are_read():
    def loaded(loss_type: str) -> tuple[str, float]:
        stage = f"{{kind: dpo, practice: {{hops: [1]}}, loss_type: {loss_type}}}"
        spec, found = load_spec(SPEC.format(stage=stage, shown=50))
        assert spec is not None, found
        return spec.stages[1].loss, spec.stages[1].rpo_weight

    assert loaded("ipo") == ("ipo", 0.0)
    assert loaded("[sigmoid, sft]") == ("sigmoid", 1.0)
    assert loaded("[sigmoid_norm]") == ("sigmoid_norm", 0.0)
    assert loaded("sigmoid, loss: sigmoid") == ("sigmoid", 0.0)
    for wrong in ("robust", "[]", "[sigmoid, ipo]", "[sft, sigmoid, sft]", "5", "{a: b}"):
        said = problems(f"{{kind: dpo, practice: {{hops: [1]}}, loss_type: {wrong}}}")["stages.1"]
        assert "has no counterpart here" in said
    said = problems("{kind: dpo, practice: {hops: [1]}, loss: ipo, loss_type: sigmoid}")["stages.1"]
    assert "keep one of them" in said
    assert "no counterpart" in problems("{kind: rl, loss_type: [grpo]}")["stages.1"]


def test_demonstrations_are_not_practised():
    found = problems("{kind: sft, practice: {hops: [1]}, per_prompt: 2}")
    assert set(found) == {"practice", "per_prompt", "source"}
    assert "none are asked for" in problems("{kind: sft}", shown=0)["kind"]


def test_defaults_are_filled_in_where_they_are_read():
    assert (DpoStage().strength, DpoStage(beta=0.5).strength) == (0.1, 0.5)
    assert SftStage().played is None
    accepted = SftStage(source="accepted")
    assert (accepted.played, accepted.kept_per_prompt) == (PracticeSpec(), 4)


def test_the_kinds_are_named_where_there_is_none():
    assert "'dpo'" in problems("{steps: 3}")["kind"]


VERSION = "dataset: ver_0123456789abcdef"


def test_a_dataset_is_named_where_it_is_read_and_nowhere_else():
    assert problems(f"{{kind: sft, source: dataset, {VERSION}}}", shown=0) == {}
    assert problems(f"{{kind: dpo, {VERSION}, practice: {{temperature: 0.7}}}}", shown=0) == {}
    for wrong in (
        "source: dataset",
        VERSION,
        f"source: accepted, practice: {{hops: [1]}}, {VERSION}",
    ):
        assert set(problems(f"{{kind: sft, {wrong}}}")) == {"dataset", "source"}, wrong
    assert "dataset" in problems("{kind: sft, source: dataset, dataset: the newest}")
    found = problems(f"{{kind: sft, source: dataset, {VERSION}, practice: {{}}, per_prompt: 2}}")
    assert set(found) == {"practice", "per_prompt", "source"}
    found = problems(f"{{kind: dpo, {VERSION}, practice: {{hops: [1], tasks: 4, attempts: 2}}}}")
    assert set(found) == {"practice.hops", "practice.tasks", "practice.attempts", "dataset"}
    assert "does not read practice.tasks" in found["practice.tasks"]


@pytest.mark.parametrize("kind", ["{kind: dpo,", "{kind: sft, source: accepted,"])
def test_practice_on_a_dataset_needs_no_drawn_task_and_has_no_hops(kind):
    assert problems(f"{kind} practice: {{{VERSION}, tasks: 4, attempts: 2}}}}") == {}
    found = problems(f"{kind} practice: {{{VERSION}, hops: [1]}}}}")
    assert set(found) == {"practice.hops", "practice.dataset"}
    assert "leave dataset empty" in found["practice.hops"]
    found = problems(f"{kind} practice: {{{VERSION}, attempts: 17}}}}")
    assert set(found) == {"practice.attempts", "rollout.slots"}
    assert set(problems(f"{kind} practice: {{dataset: the newest}}}}")) == {"practice.dataset"}


def test_a_stage_that_plays_nothing_names_no_tasks_to_practise_on():
    own = f"practice: {{{VERSION.replace('9', '8')}}}"
    found = problems(f"{{kind: dpo, {VERSION}, {own}}}")
    assert set(found) == {"practice.dataset", "dataset"}
    assert "does not read practice.dataset" in found["dataset"]
    assert set(problems(f"{{kind: sft, {own}}}")) == {"practice", "source"}
    found = problems(f"{{kind: sft, source: dataset, {VERSION}, {own}}}")
    assert set(found) == {"practice", "source"}
