"""What a run came to, in words: the figures of its summary that people look for, in their order."""

import math
from typing import Any, TypeGuard

from django.utils.translation import gettext as _

from webapp.templating import duration, number, percent, points

# Of a training's summary; any other number is shown under its own key.
_TOLD = {
    "gain", "gain_low", "gain_high", "gain_from_stage", "gain_to_stage", "seconds", "tokens",
    "trainer_step", "rollout_step", "environment_step", "completion", "tasks",
}  # fmt: skip


def results(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(label, value, what it is against) of each figure; the summary is what the driver sent."""
    numbers = {key: value for key, value in summary.items() if _is_number(value)}
    found = [*_completion(summary, numbers), *_gain(numbers)]
    if "seconds" in numbers:
        found.append((_("Time of the last attempt"), str(duration(numbers["seconds"])), ""))
    for key, label in (
        ("trainer_step", _("Trainer steps")),
        ("rollout_step", _("Groups rolled out")),
        ("environment_step", _("Turns played")),
        ("tokens", _("Tokens sampled")),
    ):
        if key in numbers:
            found.append((label, str(number(numbers[key])), ""))
    rest = (key for key in sorted(numbers) if key not in _TOLD)
    return [*found, *((key, str(number(numbers[key])), "") for key in rest)]


def _completion(summary: dict[str, Any], numbers: dict[str, float]) -> list[tuple[str, str, str]]:
    judged = summary.get("evaluations")
    last = judged[-1] if isinstance(judged, list) and judged else None
    if not isinstance(last, dict):
        last = {"completion_rate": numbers.get("completion"), "tasks": numbers.get("tasks")}
    rate, tasks = last.get("completion_rate"), last.get("tasks")
    if not _is_number(rate):
        return []
    note = _how(last, int(tasks)) if _is_number(tasks) else ""
    return [(_("Completion rate, held out"), str(percent(rate)), note)]


def _how(evaluation: dict[str, Any], tasks: int) -> str:
    """Of how many tasks a rate is, and how they were played where that is known."""
    trials, temperature = evaluation.get("trials"), evaluation.get("temperature")
    if not _is_number(trials) or not _is_number(temperature):
        return _("of %(n)s tasks") % {"n": tasks}
    told = {"n": tasks, "trials": int(trials), "t": f"{temperature:g}"}
    if trials == 1:
        return _("of %(n)s tasks, temperature %(t)s") % told
    return _("of %(n)s tasks, %(trials)s trials of each, temperature %(t)s") % told


def _gain(numbers: dict[str, float]) -> list[tuple[str, str, str]]:
    if "gain" not in numbers:
        return []
    low, high = numbers.get("gain_low"), numbers.get("gain_high")
    note = f"[{points(low)}, {points(high)}]" if low is not None and high is not None else ""
    label = _("Gain of the last stage over the first")
    if {"gain_from_stage", "gain_to_stage"} <= numbers.keys():  # of one line, where a run has many
        first, last = int(numbers["gain_from_stage"]), int(numbers["gain_to_stage"])
        label = _("Gain of stage %(last)s over stage %(first)s") % {"last": last, "first": first}
    return [(label, _("%(n)s points") % {"n": points(numbers["gain"])}, note)]


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
