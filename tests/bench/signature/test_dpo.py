"""The game of the toolbook, and the verdicts on repair by preference from made-up results."""

import random

import pytest

from bench.signature import Results, dpo
from bench.signature._toolbook import (
    CLASSES,
    Toolbook,
    cold_start_tool,
    make_task,
    make_tools,
    slipped,
)

TINY = dpo.Settings(width=32, cold_start=100, decay=5, practised=60, judged=20, steps=2, batch=4)


def test_no_name_is_in_two_sets_of_tools() -> None:
    tools = make_tools(3)
    sets = [
        {name for tool in some for name in (tool.name, *tool.arguments)}
        for some in (tools.practised, tools.held_out)
    ]
    sets.append(set(tools.names))
    assert sum(map(len, sets)) == len(set.union(*sets))
    assert {len(tool.arguments) for tool in tools.held_out} == {2, 3}


def test_every_slip_is_an_error_of_its_class_and_is_repaired_to_what_was_asked() -> None:
    rng, tools = random.Random(0), make_tools(3)
    book, seen = Toolbook((*tools.practised, *tools.held_out)), set()
    for _ in range(200):
        task = make_task(rng, rng.choice(tools.held_out), rng.randint(0, 3))
        assert book.start(task).act(task.answer).answer == task.answer
        wrong = slipped(rng, task.answer)
        seen.add(book.act(wrong).call.error)
        assert book.repaired(wrong, task.prompt) == task.answer
    assert seen == set(CLASSES)
    assert cold_start_tool(rng, tools).name in tools.names


def test_a_tool_that_the_prompt_does_not_name_is_no_repair() -> None:
    tools = make_tools(3)
    book, offered = Toolbook(tools.practised), tools.practised[0]
    task = make_task(random.Random(0), offered, 2)
    for other in tools.practised[1:]:
        found = book.repaired(other.call(["x"] * len(other.arguments))[:-1], task.prompt)
        assert found is None or found.startswith(f'{{"tool":"{offered.name}"')


def test_a_run_is_told_by_its_seed() -> None:
    runs = [dpo.run_one(TINY, arm, 3) for arm in ("dpo", "sft") for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[2] == runs[3]
    assert runs[0]["before"] == runs[2]["before"]
    assert runs[0]["before"]["calls"] <= 20


def made_up(before: int, dpo_after: int, sft_after: int, success: float = 0.9) -> Results:
    def judged(errors: int, success: float, logprob: float) -> dict[str, object]:
        classes = dict.fromkeys(CLASSES, errors // 4)
        return {"calls": 1000, "classes": classes, "success": success, "right_logprob": logprob}

    def outcome(after: int, seed: int) -> dict[str, object]:
        return {
            "before": judged(before + 4 * seed, 0.8, -0.1),
            "after": judged(after + 4 * (seed % 2), success + 0.001 * seed, -0.05 + 0.001 * seed),
            "chosen_change": 0.1 + 0.01 * seed,
        }

    return Results(
        {
            arm: {seed: outcome(after, seed) for seed in range(5)}
            for arm, after in (("dpo", dpo_after), ("sft", sft_after))
        }
    )


@pytest.mark.parametrize(
    ("results", "verdicts"),
    [
        (made_up(200, 20, 80), {"fewer": True, "beside_sft": True, "chosen": True}),
        (made_up(200, 100, 40), {"fewer": False, "beside_sft": False, "chosen": True}),
        (made_up(200, 20, 80, 0.7), {"fewer": False, "beside_sft": True, "chosen": True}),
    ],
)
def test_it_judges_both_ways(results: Results, verdicts: dict[str, bool]) -> None:
    found = dpo.judge(results)
    assert {key: verdict.reproduced for key, verdict in found.items()} == verdicts
    assert found["fewer"].numbers["invalid_json, before"].lower > 0
