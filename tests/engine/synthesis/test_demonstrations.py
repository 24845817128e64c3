"""Demonstrations: gold chains in the real environment, masks, detours, made-up names."""

from collections import Counter
from typing import Any

import pytest

from engine.environments.kg_search import KgSearch, KnowledgeGraph, task_graph
from engine.environments.kg_search.calls import parse_turn
from engine.environments.kg_search.episode import RELATIONS
from engine.records.trajectory import StopReason, Trajectory
from engine.spec import EnvironmentSpec, ExperimentSpec
from engine.synthesis import Synthesis, Tokenizer, synthesise
from engine.synthesis.demonstrations import DETOUR_KINDS, Demonstrator
from engine.synthesis.made_up import make_up
from engine.synthesis.tasks import TaskSource


def spec(**stage: Any) -> ExperimentSpec:
    return ExperimentSpec.model_validate(
        {
            "name": "test",
            "environment": {"graph": {"cities": 200}},
            "model": {"vocab_size": 600},
            "stages": [
                {
                    "kind": "synthesise",
                    "tasks": {"1": 200, "2": 200, "3": 100},
                    "demonstrations": {"1": 150, "2": 250, "3": 20},
                    "detour_share": 0.5,
                    **stage,
                }
            ],
            "evaluation": {"tasks": 41, "quick_tasks": 11, "hops": [2, 3]},
        }
    )


@pytest.fixture(scope="module")
def made() -> Synthesis:
    return synthesise(spec())


def read_back(record: Trajectory, tokenizer: Tokenizer) -> list[tuple[str, bool]]:
    """The parts of the layout with whether they are trained, out of ids and mask alone."""
    (segment,) = record.segments
    special = {
        tokenizer.user_id: "user",
        tokenizer.agent_id: "agent",
        tokenizer.tool_id: "tool",
    }
    parts: list[tuple[str, list[int], list[bool]]] = []
    for token, trained in zip(segment.ids, segment.loss_mask, strict=True):
        if token in special:
            assert not trained
            parts.append((special[token], [], []))
        else:
            parts[-1][1].append(token)
            parts[-1][2].append(trained)
    found = []
    for role, ids, trained in parts:
        if role == "agent":
            assert ids[-1] == tokenizer.end_id
        assert len(set(trained)) <= 1
        found.append((f"{role}: {tokenizer.decode_turn(ids)}", any(trained)))
    return found


def test_tokens_say_what_was_played_and_only_right_turns_are_trained(made: Synthesis) -> None:
    assert len(made.demonstrations) == 420
    for record in made.demonstrations:
        wanted: list[tuple[str, bool]] = [(f"user: {record.prompt}", False)]
        for step in record.steps:
            wanted.append((f"agent: {step.text}", not step.detour))
            if step.call:
                wanted.append((f"tool: {step.call.result}", False))
        assert read_back(record, made.tokenizer) == wanted
        (segment,) = record.segments
        for step in record.steps:
            assert made.tokenizer.decode_turn(segment.ids[step.start : step.stop]) == step.text
        assert record.sampled_tokens == sum(step.stop - step.start for step in record.steps)
        assert set(segment.versions) == {-1} and set(segment.logprobs) == {0.0}


def test_every_demonstration_is_right_and_wrong_only_in_its_detour(made: Synthesis) -> None:
    for record in made.demonstrations:
        assert record.purpose == "demonstration" and record.success
        assert record.stop_reason is StopReason.ANSWERED
        assert record.reward.valid and record.reward.value == 1.0
        assert record.steps[-1].answer == record.answer
        assert sum(step.detour for step in record.steps) <= 1
        assert not record.steps[-1].detour
        for step in record.steps:
            assert step.detour or step.call is None or step.call.error is None
            if not step.detour:
                parse_turn(step.text, RELATIONS)


def test_it_plays_every_kind_of_detour(made: Synthesis) -> None:
    counts: Counter[str] = Counter()
    for name in ("demonstrations, real names", "demonstrations, made-up names"):
        counts.update(made.funnels[name])
    assert all(counts[f"detour: {kind}"] > 10 for kind in DETOUR_KINDS)
    assert counts["played"] == counts["accepted"] == 420
    with_detour = sum(any(s.detour for s in r.steps) for r in made.demonstrations)
    assert with_detour == 420 - counts["detour: none"]


def test_it_leaves_out_episodes_that_the_verifier_rejects() -> None:
    graph = task_graph(200)
    tasks, _ = TaskSource(graph).draw(list(graph.facts), 2, 200, "0")
    # Two hops fit into two calls, a detour on top does not.
    player = Demonstrator(KgSearch(graph, EnvironmentSpec(max_calls=2)), 0.5, "0")
    kept = [one for task in tasks if (one := player.play(task))]
    assert 0 < len(kept) < 200 and all(one.detour is None for one in kept)
    assert player.counts["accepted"] == len(kept)
    rejected = sum(n for why, n in player.counts.items() if why.startswith("rejected: "))
    assert len(kept) + rejected == player.counts["played"] == 200


def test_it_rejects_a_task_whose_answer_is_not_what_the_graph_says() -> None:
    graph = KnowledgeGraph({"a": "city", "b": "country"}, {"a": {"country": ("b",)}})
    (task,), _ = TaskSource(graph).draw(["a"], 1, 1, "0")
    changed = KnowledgeGraph({"a": "city", "c": "country"}, {"a": {"country": ("c",)}})
    player = Demonstrator(KgSearch(changed, EnvironmentSpec()), 0.0, "0")
    assert player.play(task) is None
    assert player.counts["rejected: wrong answer"] == 1


def test_made_up_names_are_new_and_true_in_their_own_graph(made: Synthesis) -> None:
    tasks = made.training[::5]
    renamed, graph = make_up(tasks, made.graph, made.tokenizer.name_pieces, "0")
    seen: set[str] = set()
    for old, new in zip(tasks, renamed, strict=True):
        path = new.meta["path"]
        assert new.meta["relations"] == old.meta["relations"] and new.hops == old.hops
        assert not seen & set(path) and not set(path) & set(made.graph.kinds)
        seen |= set(path)
        for entity, relation, value in zip(path, new.meta["relations"], path[1:], strict=False):
            assert graph.values(entity, relation) == (value,)
        assert f'"{path[0]}"' in new.prompt and new.answer == path[-1]
    assert all('"' not in name and "\\" not in name and name == name.strip() for name in seen)


def test_the_share_of_made_up_names_is_kept(made: Synthesis) -> None:
    made_up = sum(record.task_id.startswith("made-up") for record in made.demonstrations)
    assert made_up == round(0.3 * 150) + round(0.3 * 250) + round(0.3 * 20)


def test_held_out_questions_never_start_where_training_does(made: Synthesis) -> None:
    held_out = set(made.split.held_out)
    for task in (*made.held_out, *made.quick):
        assert task.meta["path"][0] in held_out
    starts = {task.meta["path"][0] for task in made.training}
    assert not starts & held_out
    prompts = [task.prompt for task in made.training] + [r.prompt for r in made.demonstrations]
    assert not any(f'"{name}"' in prompt for prompt in prompts for name in held_out)
    assert len(made.held_out) == 41 and len(made.quick) == 11
    assert not {task.id for task in made.held_out} & {task.id for task in made.quick}
    assert Counter(task.hops for task in made.held_out) == {2: 21, 3: 20}


def test_the_held_out_tasks_are_frozen_by_seed_graph_and_evaluation(made: Synthesis) -> None:
    other = synthesise(spec(tasks={"1": 20}, demonstrations={"1": 5}, made_up_share=0.0))
    assert other.held_out == made.held_out and other.quick == made.quick


def test_the_same_spec_gives_the_same_demonstrations(made: Synthesis) -> None:
    again = synthesise(spec())
    assert again.tokenizer.backend.to_str() == made.tokenizer.backend.to_str()
    assert [r.segments for r in again.demonstrations] == [r.segments for r in made.demonstrations]
    assert [r.id for r in again.demonstrations] == [r.id for r in made.demonstrations]


def test_practice_is_what_was_not_demonstrated(made: Synthesis) -> None:
    assert Counter(task.hops for task in made.practice) == {1: 50, 2: 200, 3: 80}
    shown = {record.task_id for record in made.demonstrations}
    # 250 demonstrations of 200 tasks of two hops show them all.
    assert not shown & {task.id for task in made.practice if task.hops != 2}


def test_it_reports_its_progress() -> None:
    told: list[tuple[int, int, str]] = []
    synthesise(spec(), lambda *what: told.append(what))
    assert {"graph", "tasks", "tokenizer", "tokens"} <= {what for _, _, what in told}
    assert all(0 <= done <= total for done, total, _ in told)


def test_it_says_what_a_small_graph_cannot_give() -> None:
    tiny = spec().model_copy(
        update={"evaluation": spec().evaluation.model_copy(update={"hops": [9]})}
    )
    with pytest.raises(ValueError, match="no held-out task of 9 hops"):
        synthesise(tiny)
