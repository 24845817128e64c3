"""A student beside its teachers and its start: figures of each step, completion at the end."""

import re
from itertools import islice
from typing import Any

from engine.evaluation.report import report
from engine.records.events import MAX_NAME, MAX_VALUES, NAME_FORM
from engine.spec import OpdStage
from engine.spec.lineage import parent_of
from workers.cluster import judging
from workers.cluster.attempt import Attempt

_FIGURES = ("divergence", "agreement", "entropy_gap", "far_share")


def step_metrics(figures: dict[str, float]) -> dict[str, float]:
    """The `distil/...` metrics of a step: over all its tokens, and by teacher and category."""
    return _nameable(
        {
            f"distil/{name}": value
            for name, value in figures.items()
            if name in _FIGURES or name.startswith("divergence/")
        }
    )


def completion_by_category(attempt: Attempt, index: int, stage: OpdStage) -> dict[str, Any]:
    """Completion of the held-out tasks of each category at the end of a stage, beside that of the
    category's teachers and of the weights that the stage began with; what was not judged is absent.
    """
    own, start = _rates(attempt, index), parent_of(attempt.spec.stages, index)
    before = {} if start is None else _rates(attempt, start)
    found: dict[str, Any] = {}
    for category, rate in own.items():
        teachers = {
            f"stage-{teacher.stage}": rates[category]
            for teacher in stage.teachers
            if teacher.teaches(category) and category in (rates := _rates(attempt, teacher.stage))
        }
        found[category] = {"completion": rate, "teachers": teachers}
        if category in before:
            found[category]["start"] = before[category]
    return found


def completion_metrics(found: dict[str, Any]) -> dict[str, float]:
    """What `completion_by_category` found, as metrics of one step."""
    values = {}
    for category, rates in found.items():
        values[f"distil/completion/{category}"] = rates["completion"]
        if "start" in rates:
            values[f"distil/completion_at_start/{category}"] = rates["start"]
        for teacher, rate in rates["teachers"].items():
            values[f"distil/completion_of_{teacher}/{category}"] = rate
    return _nameable(values)


def _nameable(values: dict[str, float]) -> dict[str, float]:
    """Without those whose name is none for a metric, and no more than half of what an event takes:
    categories of a dataset are any text, and there may be any number of them."""
    fitting = (
        (name, value)
        for name, value in values.items()
        if len(name) <= MAX_NAME and re.fullmatch(NAME_FORM, name) and not name.endswith("/")
    )
    return dict(islice(fitting, MAX_VALUES // 2))


def _rates(attempt: Attempt, index: int) -> dict[str, float]:
    outcomes = judging.held_out(attempt, index)
    if outcomes is None:
        return {}
    return {name: rate.value for name, rate in report(outcomes).by_category.items()}
