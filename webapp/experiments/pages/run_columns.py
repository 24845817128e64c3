"""Columns of the table of runs: the usual ones, any metric, its curve, and any config field.

In the address a column is its name, or `m:` and a metric, `s:` and the metric of a curve, `c:` and
a path of the spec.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from webapp.experiments.models import ConfigField, Run
from webapp.experiments.queries import flat_spec
from webapp.monitoring.headline import HEADLINE
from webapp.monitoring.models import Series
from webapp.monitoring.sparks import sparks

MAX_COLUMNS = 24
FIRST_UP = {"name", "state"}  # sorted ascending by the first click
LOOKED_AT = 200  # newest runs whose metrics the picker knows
MAX_FOUND = 30


@dataclass(frozen=True)
class Column:
    """A column that can be picked. `sort` is what `list_runs` sorts by; empty: not sortable."""

    name: str
    label: Any
    sort: str = ""
    metric: str = ""
    share: bool = False  # shown as a percentage
    kind: str = ""  # m, s or c: of the address

    @property
    def is_number(self) -> bool:
        return self.kind == "m" or (not self.kind and bool(self.metric)) or self.name == "seed"


def _headline(word: str, label: Any, share: bool = False) -> Column:
    return Column(word, label, word, HEADLINE[word], share)


COLUMNS = [
    Column("state", gettext_lazy("State"), "state"),
    Column("experiment", gettext_lazy("Experiment")),
    Column("progress", gettext_lazy("Progress")),
    _headline("success", gettext_lazy("Completion"), share=True),
    _headline("reward", gettext_lazy("Reward")),
    Column("curve", gettext_lazy("Reward curve"), metric=HEADLINE["reward"], kind="s"),
    _headline("tool_success", gettext_lazy("Tool success"), share=True),
    _headline("turns", gettext_lazy("Turns")),
    _headline("loss", gettext_lazy("Loss")),
    _headline("entropy", gettext_lazy("Entropy")),
    _headline("clip_fraction", gettext_lazy("Clip fraction")),
    _headline("staleness", gettext_lazy("Staleness")),
    Column("algorithm", gettext_lazy("Algorithm")),
    Column("seed", gettext_lazy("Seed")),
    Column("tags", gettext_lazy("Tags")),
    Column("user", gettext_lazy("By")),
    Column("elapsed", gettext_lazy("Time")),
    Column("created", gettext_lazy("Launched"), "created"),
]
BY_NAME = {column.name: column for column in COLUMNS}
SHOWN = ["state", "experiment", "progress", "success", "reward", "curve", "created", "tags"]


def column_named(name: str) -> Column | None:
    """None for a name that is no column."""
    kind, colon, what = name.partition(":")
    if not colon:
        return BY_NAME.get(name)
    if not what or len(what) > 120 or kind not in ("m", "s", "c") or "\0" in what:
        return None
    if kind == "c":
        return Column(name, what, kind="c")
    return Column(name, what, what if kind == "m" else "", what, kind=kind)


def picked_columns(given: str | None) -> list[Column]:
    """In the order of the address; the usual ones where it names none."""
    names = given.split(",") if given else SHOWN
    found = [column_named(name) for name in dict.fromkeys(names)]
    return [column for column in found if column][:MAX_COLUMNS]


def cells(runs: Sequence[Run], columns: Sequence[Column]) -> list[list[tuple[Column, Any]]]:
    """What each run shows in each column; two queries at most, whatever their numbers."""
    metrics = {column.metric for column in columns if column.kind == "m"}
    curves = {column.metric for column in columns if column.kind == "s"}
    newest = newest_values(runs, sorted(metrics)) if metrics else {}
    drawn = sparks([run.pk for run in runs], sorted(curves)) if curves else {}
    has_fields = any(column.kind == "c" for column in columns)
    rows = []
    for run in runs:
        fields = dict(flat_spec(run.spec)) if has_fields else {}
        row: list[tuple[Column, Any]] = []
        for column in columns:
            value: Any
            if column.kind == "m":
                value = newest.get((run.pk, column.metric))
            elif column.kind == "s":
                value = drawn.get((run.pk, column.metric))
            elif column.kind == "c":
                value = fields.get(column.label)
            else:
                value = _usual(run, column)
            row.append((column, value))
        rows.append(row)
    return rows


def newest_values(runs: Sequence[Run], metrics: list[str]) -> dict[tuple[str, str], float | None]:
    """By (run id, metric): the newest value, of the newest attempt that has the metric."""
    found = Series.objects.filter(run__in=[run.pk for run in runs], name__in=metrics)
    rows = found.order_by("attempt__number").values_list("run_id", "name", "last_value")
    return {(run, name): value for run, name, value in rows}


def _usual(run: Run, column: Column) -> Any:
    if column.metric:
        return run.headline.get(column.metric)
    if column.name == "algorithm":
        return next((s["algorithm"] for s in run.spec["stages"] if "algorithm" in s), None)
    if column.name == "seed":
        return run.spec.get("seed")
    return None


def find_columns(project: str, text: str) -> list[Column]:
    """Metrics of the project's newest runs, and config fields of any, whose name has every word."""
    words = text.lower().split()
    newest = Run.objects.filter(project=project).order_by("-created_at", "-pk")[:LOOKED_AT]
    names = Series.objects.filter(run__in=newest.values("pk")).values_list("name", flat=True)
    paths = ConfigField.objects.filter(project=project).values_list("path", flat=True)
    for word in words:
        names = names.filter(name__icontains=word)
        paths = paths.filter(path__icontains=word)
    fields = sorted(paths.order_by("path")[: 20 * MAX_FOUND], key=_rank(text))
    metrics = sorted(set(names.order_by().distinct()[: 20 * MAX_FOUND]), key=_rank(text))
    half = MAX_FOUND // 2
    shown = [f"m:{name}" for name in metrics[: max(half, MAX_FOUND - len(fields))]]
    shown += [f"c:{path}" for path in fields[: MAX_FOUND - len(shown)]]
    found = [column_named(name) for name in shown]
    return [column for column in found if column]


def _rank(text: str) -> Any:
    """What begins with the text comes first."""
    return lambda name: (not name.lower().startswith(text.lower()), name)


def sort_link(request: HttpRequest, word: str, now: str) -> tuple[str, str]:
    """(query string, direction now) of a heading; a click on the sorted column turns it round."""
    if not word:
        return "", ""
    wanted = word if word in FIRST_UP else f"-{word}"
    if now == wanted:
        wanted = wanted[1:] if wanted.startswith("-") else f"-{wanted}"
    given = request.GET.copy()
    given.pop("cursor", None)
    given["sort"] = wanted
    direction = {word: "ascending", f"-{word}": "descending"}.get(now, "")
    return "?" + given.urlencode(), direction
