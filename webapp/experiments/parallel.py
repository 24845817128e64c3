"""Axes of parallel coordinates: the config fields in which runs differ, and headline metrics."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from webapp.experiments.models import Run
from webapp.experiments.queries import Difference
from webapp.monitoring.headline import HEADLINE
from webapp.monitoring.numbers import encode_optional

Kind = Literal["number", "log", "category"]
MOST_AXES = 40
WIDE = 100  # times the smallest value: from here on an axis of positive numbers is logarithmic
LABELS = ("name", "description", "tags")  # tell runs apart, and are no setting of theirs
MOST_TEXT = 40  # characters of a category


@dataclass(frozen=True)
class Axis:
    """One value a run, in their order: a number, text, or None where the run has none. A value
    that is not finite is the text NaN, Infinity or -Infinity, and has no place on the axis."""

    name: str
    label: str
    kind: Kind
    metric: bool
    values: list[Any]


def axes(runs: Sequence[Run], differences: Sequence[Difference]) -> list[Axis]:
    """Fields first, by path, then the metrics that some run has."""
    fields = [
        _field(row.path, row.values) for row in differences if row.path.split(".")[0] not in LABELS
    ]
    metrics = [
        _metric(word, [run.headline.get(name) for run in runs]) for word, name in HEADLINE.items()
    ]
    measured = [axis for axis in metrics if any(value is not None for value in axis.values)]
    return [*fields[: MOST_AXES - len(measured)], *measured]


def _field(path: str, values: list[Any]) -> Axis:
    numbers = [value for value in values if value is not None]
    label = ".".join(path.split(".")[-2:])
    if numbers and all(type(value) in (int, float) for value in numbers):
        return Axis(path, label, _scale(path, numbers), False, [encode_optional(v) for v in values])
    texts = [None if value is None else _text(value) for value in values]
    return Axis(path, label, "category", False, texts)


def _scale(path: str, numbers: list[float]) -> Kind:
    finite = [value for value in numbers if math.isfinite(value)]
    if not finite or min(finite) <= 0:
        return "number"
    is_rate = path.rpartition(".")[2].endswith("lr") and max(finite) > min(finite)
    return "log" if is_rate or max(finite) >= WIDE * min(finite) else "number"


def _metric(word: str, values: list[Any]) -> Axis:
    return Axis(
        HEADLINE[word], HEADLINE[word], "number", True, [encode_optional(v) for v in values]
    )


def _text(value: Any) -> str:
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else str(value)
    text = text or ""
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"
