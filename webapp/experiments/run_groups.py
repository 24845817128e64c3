"""Runs in groups: repeats of one config with other seeds, or runs that agree in a config field.

Every group has its number of runs and, by metric, the mean of their newest values with a 95%
t-interval over the runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, FloatField, Func, QuerySet, TextField, Value
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from engine.evaluation.intervals import Interval
from engine.evaluation.student import Sample, mean_interval, sample
from webapp.experiments.filters import with_metric
from webapp.experiments.models import ACTIVE_STATES, Run
from webapp.monitoring.headline import METRICS, metric_named
from webapp.paging import decode_cursor, encode_cursor, wrong_cursor
from webapp.problems import invalid_field

VARIANT = "variant"  # the group of runs that differ in nothing but the seed
MAX_METRICS = 12
MAX_DEPTH = 12


@dataclass(frozen=True)
class Aggregate:
    """Newest finite values of a metric over the runs of a group."""

    sample: Sample | None  # None: no run has one

    @property
    def interval(self) -> Interval | None:
        """95%, by Student's t; None: of fewer than two runs."""
        return mean_interval(self.sample) if self.sample else None


@dataclass(frozen=True)
class Group:
    key: str | None  # None: the runs have no such field
    n: int
    runs: list[str]  # ids, the newest first
    active: int
    failed: int
    newest: datetime
    metrics: dict[str, Aggregate]


@dataclass(frozen=True)
class GroupPage:
    items: list[Group]
    next_cursor: str | None
    total: int  # groups


def group_key(word: str) -> Combinable:
    """What runs are grouped by: `variant`, or the text at a path of the spec such as
    `stages.1.optimizer.lr`. Raises RefusedError."""
    if word == VARIANT:
        return F("variant")
    parts = word.split(".")
    if len(parts) > MAX_DEPTH or not all(0 < len(part) <= 100 for part in parts) or "\0" in word:
        raise invalid_field("group", f"Group by {VARIANT} or by a path of the spec, as seed.")
    return Func(
        F("spec"),
        *[Value(part) for part in parts],
        function="jsonb_extract_path_text",
        output_field=TextField(),
    )


def list_groups(
    runs: QuerySet[Run],
    *,
    group: str,
    metrics: Sequence[str] = (),
    sort: str = "-newest",
    cursor: str | None = None,
    limit: int = 50,
) -> GroupPage:
    """Groups of the given runs. `sort`: newest, n or a metric's mean, `-` for descending; groups
    without a value come last in both directions."""
    names = list(dict.fromkeys(map(metric_named, metrics)))
    sign, word = ("-", sort[1:]) if sort.startswith("-") else ("", sort)
    sorted_by = metric_named(word)
    if word not in ("newest", "n") and sorted_by not in names:
        names.append(sorted_by)
    if len(names) > MAX_METRICS:
        raise invalid_field("metrics", f"At most {MAX_METRICS} metrics at once.")
    groups = _grouped(runs, group, names)

    def place(one: Group) -> tuple[bool, float, str]:
        value = _sort_value(one, word, sorted_by)
        return (value is None, 0.0 if value is None else -value if sign else value, one.key or "")

    groups.sort(key=place)
    after = tuple(decode_cursor(cursor, 3)) if cursor else None
    try:
        rest = [one for one in groups if after is None or place(one) > after]
    except TypeError:  # a cursor that was not given out
        raise wrong_cursor() from None
    shown = rest[:limit]
    more = len(rest) > limit
    return GroupPage(shown, encode_cursor(list(place(shown[-1]))) if more else None, len(groups))


def _grouped(runs: QuerySet[Run], group: str, names: list[str]) -> list[Group]:
    """In one query of a row a run; the values of a metric are looked up once for each run."""
    found = Run.objects.filter(pk__in=runs.order_by().values("pk"))
    found = found.annotate(group_key=group_key(group))
    for index, name in enumerate(names):
        found = _with_value(found, name, f"v{index}")
    values = [f"v{index}" for index in range(len(names))]
    members: dict[str | None, list[tuple[Any, ...]]] = {}
    rows = found.order_by("-created_at", "-pk").values_list(
        "group_key", "pk", "state", "created_at", *values
    )
    for key, *row in rows:
        members.setdefault(key, []).append(tuple(row))
    return [_group(key, of, names) for key, of in members.items()]


def _with_value(runs: QuerySet[Run], name: str, alias: str) -> QuerySet[Run]:
    """Annotate a run's newest value of a metric; NULL where there is none."""
    if name in METRICS:
        return runs.annotate(**{alias: Cast(KeyTextTransform(name, "headline"), FloatField())})
    return with_metric(runs, name, alias)


def _group(key: str | None, members: list[tuple[Any, ...]], names: list[str]) -> Group:
    ids, states, times, *columns = zip(*members, strict=True)
    metrics = {}
    for name, column in zip(names, columns, strict=True):
        finite = [value for value in column if value is not None and math.isfinite(value)]
        metrics[name] = Aggregate(sample(finite) if finite else None)
    return Group(
        key=key,
        n=len(ids),
        runs=list(ids),
        active=sum(state in ACTIVE_STATES for state in states),
        failed=sum(state in ("failed", "lost") for state in states),
        newest=times[0],
        metrics=metrics,
    )


def _sort_value(group: Group, word: str, metric: str) -> float | None:
    if word == "newest":
        return group.newest.timestamp()
    if word == "n":
        return group.n
    found = group.metrics[metric].sample
    return None if found is None else found.mean


def without_labels(spec: dict[str, Any]) -> dict[str, Any]:
    """What makes the variant; see models.Run.variant."""
    kept = {k: v for k, v in spec.items() if k not in ("seed", "name", "description", "tags")}
    if isinstance(kept.get("config"), dict):
        kept["config"] = {k: v for k, v in kept["config"].items() if k != "seed"}
    return kept
