"""What the Overview says that a run came to."""

import re

from webapp.experiments.pages.results import results

SUMMARY = {
    "seconds": 612.0,
    "model": "119,168 parameters",
    "evaluations": [
        {"name": "held_out", "completion_rate": 0.5, "tasks": 600},
        {"name": "held_out", "completion_rate": 0.9117, "tasks": 600},
    ],
    "gain": 0.4117,
    "gain_low": 0.37,
    "gain_high": 0.45,
    "trainer_step": 370,
    "tokens": 1_234_567,
    "loss_scale": 3,
}


def told(summary: dict[str, object]) -> list[tuple[str, str, str]]:
    plain = [[re.sub(r"\s", " ", part) for part in row] for row in results(summary)]
    return [(label, value, note) for label, value, note in plain]


def test_it_begins_with_the_last_evaluation_and_ends_with_what_it_does_not_know() -> None:
    assert told(SUMMARY) == [
        ("Completion rate, held out", "91.2 %", "of 600 tasks"),
        ("Gain of the last stage over the first", "+41.2 points", "[+37.0, +45.0]"),
        ("Time of the last attempt", "10 min 12 s", ""),
        ("Trainer steps", "370", ""),
        ("Tokens sampled", "1 234 567", ""),
        ("loss_scale", "3", ""),
    ]


def test_it_names_the_stages_between_which_the_gain_lies() -> None:
    (_, (label, *_), *_) = told({**SUMMARY, "gain_from_stage": 1, "gain_to_stage": 4})
    assert label == "Gain of stage 4 over stage 1"


def test_it_leaves_out_what_was_not_measured() -> None:
    assert told({}) == []
    assert told({"completion": float("nan"), "evaluations": [], "note": "x", "flag": True}) == []
    assert told({"completion": 0.5, "tasks": 600}) == [
        ("Completion rate, held out", "50.0 %", "of 600 tasks")
    ]


def test_it_says_how_the_tasks_were_played_where_that_is_known() -> None:
    def note(**fields: float) -> str:
        last = {"completion_rate": 0.5, "tasks": 600, **fields}
        return told({"evaluations": [last]})[0][2]

    assert note(trials=1, temperature=0.0) == "of 600 tasks, temperature 0"
    assert note(trials=4, temperature=0.7) == "of 600 tasks, 4 trials of each, temperature 0.7"
    assert note(trials=4) == "of 600 tasks"
