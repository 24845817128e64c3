"""The three tasks, a tiny run of each arm, and the verdicts from made-up results."""

import random

import pytest

from bench.signature import Results, _digits, opd

TINY = opd.Settings(
    width=16, batch=6, base_steps=2, expert_steps=2, student_steps=2, lora_rank=2, judged=4
)


def test_answers_are_the_tasks_and_judged_questions_are_never_asked() -> None:
    digits = [3, 9, 0, 0, 5]
    told = {
        task: [token - 2 for token in _digits.right_answer(task, digits)] for task in _digits.TASKS
    }
    assert told == {
        "reverse": [5, 0, 0, 9, 3],
        "sort": [0, 0, 3, 5, 9],
        "add one": [4, 0, 1, 1, 6],
    }
    rng = random.Random(0)
    asked = {tuple(d) for _, d in _digits.questions(rng, _digits.TASKS, 300)}
    judged = {tuple(d) for _, d in _digits.questions(rng, _digits.TASKS, 300, held_out=True)}
    assert not asked & judged


@pytest.mark.parametrize("arm", opd.ARMS)
def test_a_run_is_told_by_its_seed(arm: str) -> None:
    first = opd.run_one(TINY, arm, 3)
    opd._base.cache_clear()
    opd._experts.cache_clear()
    assert first == opd.run_one(TINY, arm, 3)
    assert len(first["completion"]) == len(first["experts"]) == 3
    assert len(first["divergence"]) == (0 if arm in ("base", "average") else 2)


def test_experts_of_adapters_hold_no_copy_of_the_base() -> None:
    whole, adapters = (opd.run_one(TINY, arm, 3)["teachers_hold"] for arm in ("opd", "lora"))
    assert whole % 3 == adapters % 3 == 0
    assert adapters < whole / 3


def made_up(worst: dict[str, float], norm: float) -> Results:
    def outcome(arm: str, seed: int) -> dict[str, object]:
        return {
            "completion": [worst[arm] - 0.001 * seed, 1.0, 1.0],
            "experts": [1.0, 1.0, 1.0],
            "elsewhere": 0.1,
            "grad_norm": norm if arm == "one token" else 1.0 + 0.01 * seed,
            "divergence": [1.0, 0.1],
        }

    return Results({arm: {s: outcome(arm, s) for s in range(5)} for arm in opd.ARMS})


def test_it_judges_by_intervals() -> None:
    good = dict.fromkeys(opd.ARMS, 0.5) | {"opd": 0.999, "lora": 0.998, "base": 0.2}
    assert all(verdict.reproduced for verdict in opd.judge(made_up(good, 5.0)).values())
    bad = dict.fromkeys(opd.ARMS, 0.99) | {"opd": 0.97, "lora": 0.9, "base": 0.2}
    assert not any(verdict.reproduced for verdict in opd.judge(made_up(bad, 1.5)).values())
