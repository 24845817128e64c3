"""The tabular agent under reward schemes and the curriculum, and verdicts on made-up results."""

import random
from dataclasses import replace

import numpy as np
import pytest

from bench.signature import Results, curriculum
from bench.signature.curriculum import Task, episode, scheme_of
from engine.records.trajectory import StopReason
from engine.rewards import score

TASK = Task(facts=2, idle=2, broken=2)
TINY = replace(curriculum.Settings(), iterations=4, groups=2, size=4, judged=2)
RIGHT, IDLE, ANSWER = 0, 1, 5


def always(*actions: int) -> np.ndarray:
    """Probabilities that play one action in each state."""
    return np.eye(TASK.actions)[list(actions)]


def test_a_chain_of_right_searches_and_the_answer_is_solved() -> None:
    one, moves = episode(TASK, always(RIGHT, RIGHT, ANSWER), 0, random.Random(0))
    assert one.success and one.stop_reason is StopReason.ANSWERED
    assert moves == [(0, RIGHT), (1, RIGHT), (2, ANSWER)]
    assert score(scheme_of("composite", 0.2)[0], one).value == pytest.approx(0.8 + 0.2 * 5 / 8)


def test_an_answer_too_early_is_wrong_and_searching_on_runs_out_of_calls() -> None:
    early, _ = episode(TASK, always(ANSWER, ANSWER, ANSWER), 0, random.Random(0))
    assert not early.success and early.stop_reason is StopReason.ANSWERED
    idle, _ = episode(TASK, always(IDLE, IDLE, IDLE), 0, random.Random(0))
    assert idle.stop_reason is StopReason.MAX_CALLS and len(idle.steps) == 8


def test_the_judge_can_be_farmed_and_whoever_knows_the_facts_cannot() -> None:
    idle, _ = episode(TASK, always(IDLE, IDLE, IDLE), 0, random.Random(0))
    scheme, terms = scheme_of("judge", 0.2)
    assert score(scheme, idle, terms).value == pytest.approx(8 * 0.2)
    scheme, terms = scheme_of("progress", 0.2)
    assert score(scheme, idle, terms).value == 0
    scheme, terms = scheme_of("judge-curriculum", 0.2)
    assert score(scheme, idle, terms, process_weight=0.0).value == 0
    assert score(scheme, idle, terms, process_weight=1.0).value == pytest.approx(0.4)  # the cap


@pytest.mark.parametrize("arm", curriculum.ARMS)
def test_a_run_is_told_by_its_seed(arm: str) -> None:
    first = curriculum.run_one(TINY, arm, 3)
    assert first == curriculum.run_one(TINY, arm, 3)
    assert len(first["success by iteration"]) == 4


def test_outcome_alone_learns_the_short_task() -> None:
    settings = replace(TINY, iterations=60, groups=8, size=8)
    assert curriculum.run_one(settings, "outcome", 1000)["success"] > 0.9


def made_up(success: dict[str, float]) -> Results:
    def outcome(arm: str, seed: int) -> dict[str, float]:
        errors = 0.0 if success[arm] > 0.9 and arm != "outcome" else 1.0
        return {"success": success[arm] + 1e-4 * seed, "turns": 3.0, "errors": errors}

    return Results({arm: {s: outcome(arm, s) for s in range(5)} for arm in curriculum.ARMS})


def test_it_judges_by_intervals() -> None:
    arms = dict.fromkeys(curriculum.ARMS, 0.98)
    good = arms | {"judge": 0.5, "composite": 0.1, "long, outcome": 0.0}
    assert all(verdict.reproduced for verdict in curriculum.judge(made_up(good)).values())
    bad = arms | {"composite, curriculum": 0.1, "long, outcome": 0.99}
    assert not any(verdict.reproduced for verdict in curriculum.judge(made_up(bad)).values())
