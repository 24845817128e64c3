"""Reads of experiments that are more than a line: lists, a run's details, comparisons."""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import zstandard
from django.db.models import FloatField, QuerySet, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, NullIf
from django.utils import timezone

from webapp import storage
from webapp.accounts.access import Actor, visible
from webapp.experiments.filters import filter_runs, with_metric
from webapp.experiments.models import (
    ACTIVE_STATES,
    Attempt,
    DatasetVersion,
    Run,
    Stage,
    StageDataset,
)
from webapp.monitoring.headline import METRICS, metric_named
from webapp.monitoring.models import Series
from webapp.paging import Page, keyset
from webapp.problems import invalid_field

SORTS = {"created": "created_at", "name": "name", "state": "state"}
MAX_COMPARED = 50


def list_runs(
    actor: Actor,
    *,
    project: str | None = None,
    experiment: str | None = None,
    q: str = "",
    sort: str = "-created",
    archived: bool = False,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Run]:
    """A page of the actor's runs. `sort`: created, name, state or a metric; `-` for descending.

    Runs without the metric come last in both directions.
    """
    runs = find_runs(actor, project=project, experiment=experiment, q=q, archived=archived)
    runs = runs.select_related("experiment", "created_by", "project")
    sign, word = ("-", sort[1:]) if sort.startswith("-") else ("", sort)
    if not word:
        raise invalid_field("sort", f"Sort by {', '.join(SORTS)} or a metric's name.")
    if word in SORTS:
        return keyset(runs, (sign + SORTS[word], sign + "id"), cursor, limit)
    last = Value("-Infinity" if sign else "Infinity", output_field=FloatField())
    metric = metric_named(word)
    if metric in METRICS:  # what the list shows; to look at each run's series takes longer
        finite: Any = Cast(KeyTextTransform(metric, "headline"), FloatField())
    else:
        runs = with_metric(runs, metric, "sorted_by")
        finite = NullIf("sorted_by", Value("NaN", output_field=FloatField()))
    runs = runs.annotate(sort_value=Coalesce(finite, last))
    return keyset(runs, (sign + "sort_value", sign + "id"), cursor, limit)


def find_runs(
    actor: Actor,
    *,
    project: str | None = None,
    experiment: str | None = None,
    q: str = "",
    archived: bool = False,
) -> QuerySet[Run]:
    """The actor's runs for which the filter holds, in no order."""
    runs = visible(Run.objects.all(), actor).filter(archived_at__isnull=not archived)
    if project:
        runs = runs.filter(project_id=project)
    if experiment:
        runs = runs.filter(experiment_id=experiment)
    return filter_runs(runs, q)


def active_runs(actor: Actor, project: str | None = None) -> QuerySet[Run]:
    """Queued and running runs, newest first."""
    runs = visible(Run.objects.filter(state__in=ACTIVE_STATES), actor)
    runs = runs.filter(project_id=project) if project else runs
    return runs.select_related("experiment", "project").order_by("-created_at")


def failed_since(actor: Actor, since: datetime) -> QuerySet[Run]:
    """Runs that failed or were lost after a moment, newest first."""
    runs = visible(Run.objects.filter(state__in=("failed", "lost"), ended_at__gt=since), actor)
    return runs.select_related("experiment", "project").order_by("-ended_at")


@dataclass(frozen=True)
class RunDetail:
    """Everything of a run that its page shows besides what it measured."""

    run: Run
    attempts: list[Attempt]  # newest first
    stages: list[Stage]  # of the newest attempt, in order
    elapsed_s: float | None  # of the run, while it worked; None: it has not started
    left_s: float | None  # estimate; None: not computed
    children: int
    datasets: list[StageDataset]  # that its stages learn from, in their order


def run_detail(run: Run) -> RunDetail:
    attempts = list(run.attempts.select_related("resume_from").order_by("-number"))
    stages = list(attempts[0].stages.order_by("index")) if attempts else []
    datasets = run.stage_datasets.select_related("version__dataset").order_by("stage")
    return RunDetail(
        run,
        attempts,
        stages,
        elapsed_s(attempts),
        left_s(run, stages),
        run.children.count(),
        list(datasets),
    )


def newest_stages(run_ids: Sequence[str]) -> dict[str, list[Stage]]:
    """The stages of each run's newest attempt, in order; one query for all runs."""
    newest = Attempt.objects.filter(run__in=run_ids).order_by("run", "-number").distinct("run")
    found: dict[str, list[Stage]] = {pk: [] for pk in run_ids}
    stages = Stage.objects.filter(attempt__in=newest.values("pk")).select_related("attempt")
    for stage in stages.order_by("index"):
        found[stage.attempt.run_id].append(stage)
    return found


def elapsed_s(attempts: list[Attempt]) -> float | None:
    """Seconds in which attempts of a run worked; the pauses between them do not count."""
    worked = [a for a in attempts if a.started_at is not None]
    if not worked:
        return None
    now = timezone.now()
    return sum(((a.ended_at or now) - a.started_at).total_seconds() for a in worked if a.started_at)


def left_s(run: Run, stages: list[Stage]) -> float | None:
    """Seconds left if every remaining step takes as long as those of the present stage did."""
    running = next((stage for stage in reversed(stages) if stage.state == "running"), None)
    if run.ended_at is not None or running is None or not running.step:
        return None
    each = (timezone.now() - running.started_at).total_seconds() / running.step
    return each * max(run.steps - run.step, 0)


@dataclass(frozen=True)
class Difference:
    """A field of the spec in which runs differ; None where a run has no such field."""

    path: str
    values: list[Any]


@dataclass(frozen=True)
class Comparison:
    runs: list[Run]
    differences: list[Difference]
    metrics: dict[str, list[float | None]]  # newest value by metric, one for each run
    series: dict[str, list[Series]]  # by metric, of every run and attempt


def compare(runs: list[Run]) -> Comparison:
    """Config differences, newest values and series of up to 50 runs, in the order given."""
    if len(runs) > MAX_COMPARED:
        raise invalid_field("runs", f"At most {MAX_COMPARED} runs, not {len(runs)}.")
    by_name: dict[str, list[Series]] = {}
    position = {run.pk: index for index, run in enumerate(runs)}
    metrics: dict[str, list[float | None]] = {}
    found = Series.objects.filter(run__in=runs).select_related("attempt")
    for series in found.order_by("name", "attempt__number", "axis"):
        by_name.setdefault(series.name, []).append(series)
        values = metrics.setdefault(series.name, [None] * len(runs))
        values[position[series.run_id]] = series.last_value  # the newest attempt comes last
    for group in by_name.values():
        group.sort(key=lambda series: position[series.run_id])
    return Comparison(runs, config_differences([run.spec for run in runs]), metrics, by_name)


def newest_by_metric(runs: Sequence[Run], names: Iterable[str]) -> dict[str, list[float | None]]:
    """Newest values of these metrics, one for each run, by the names that some run has."""
    position = {run.pk: index for index, run in enumerate(runs)}
    found = Series.objects.filter(run__in=list(position), name__in=list(names))
    metrics: dict[str, list[float | None]] = {}
    for name, run, value in found.order_by("name", "attempt__number", "axis").values_list(
        "name", "run_id", "last_value"
    ):
        metrics.setdefault(name, [None] * len(runs))[position[run]] = value
    return metrics


def config_differences(specs: list[dict[str, Any]]) -> list[Difference]:
    """The fields whose values are not the same in all specs, by path."""
    return sorted(_differing("", specs), key=lambda row: row.path)


def _differing(path: str, values: list[Any]) -> Iterator[Difference]:
    """What is the same everywhere is not looked into: specs of a megabyte differ in little."""
    if all(value == values[0] for value in values):
        return
    inner = [dict(_children(value)) for value in values]
    for key in dict.fromkeys(key for pairs in inner for key in pairs):
        below = f"{path}.{key}" if path else key
        yield from _differing(below, [pairs.get(key) for pairs in inner])
    leaves = [None if pairs else value for pairs, value in zip(inner, values, strict=True)]
    if any(value != leaves[0] for value in leaves):
        yield Difference(path, leaves)


def flat_spec(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """(path, value) of every leaf in order, however deep; a list of plain values is one."""
    found, waiting = [], [(path, value)]
    while waiting:
        path, value = waiting.pop()
        pairs = _children(value)
        if not pairs:
            found.append((path, value))
        waiting += [(f"{path}.{key}" if path else key, item) for key, item in reversed(pairs)]
    return found


def _children(value: Any) -> list[tuple[str, Any]]:
    """Of a dict or of a list with lists or dicts in it; none of a leaf."""
    if isinstance(value, dict):
        return [(str(key), item) for key, item in value.items()]
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return [(str(index), item) for index, item in enumerate(value)]
    return []


def rows_of(version: DatasetVersion, start: int, count: int) -> list[dict[str, Any]]:
    """Rows start to start+count (from 0) of a version."""
    return list(islice(rows_from(version, start), count))


def rows_from(version: DatasetVersion, start: int = 0) -> Iterator[dict[str, Any]]:
    """Rows of a version from `start` (from 0) on, each read once it is asked for: one may have
    megabytes."""
    with storage.open_blob(version.blob) as file:
        text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        for index, line in enumerate(io.BufferedReader(text)):
            if index >= start:
                yield json.loads(line)
