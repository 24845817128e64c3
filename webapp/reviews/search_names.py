"""Search in the names, notes and tags of what a project holds, by a part of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from django.db.models import Model, Q, QuerySet
from django.urls import reverse

from webapp.accounts.models import Project
from webapp.experiments.models import Dataset, Experiment, RewardScheme, Run
from webapp.reviews import finding
from webapp.reviews.models import Queue

Kind = Literal["run", "experiment", "dataset", "scheme", "queue"]
MOST = 5  # of each kind


@dataclass(frozen=True)
class Named:
    """Something whose name, id, notes or tags hold the text; `match` is where, see `finding`."""

    kind: Kind
    id: str
    name: str
    field: str
    match: dict[str, Any]
    url: str


def named(project: Project, query: str) -> list[Named]:
    """At most MOST of each kind, the newest first; one query for each kind."""
    return [
        hit
        for kind, (model, url, fields, narrowed) in _KINDS.items()
        for hit in _of_kind(project, query, kind, narrowed(model.objects.all()), url, fields)
    ]


def _of_kind(
    project: Project, query: str, kind: Kind, rows: QuerySet[Any], url: str, fields: tuple[str, ...]
) -> list[Named]:
    where = Q(pk=query) | Q(*[(f"{name}__icontains", query) for name in fields], _connector=Q.OR)
    found = rows.filter(where, project=project).order_by("-created_at", "-pk")[:MOST]
    return [
        Named(kind, row.pk, row.name, name, match, reverse(url, args=[row.pk]))
        for row in found
        for name, match in [_where(row, ("pk", *fields), query)]
    ]


def _where(row: Model, fields: tuple[str, ...], query: str) -> tuple[str, dict[str, Any]]:
    """The first field with the text; PostgreSQL folds some letters that `finding` does not."""
    for name in fields:
        value = getattr(row, name)
        text = " ".join(value) if isinstance(value, list) else value
        if found := finding.matches(iter([(None, name, text)]), query, 1):
            return ("id" if name == "pk" else name), found[0]
    whole = {"start": 0, "stop": 0, "before": "", "match": "", "after": ""}
    return "name", whole | {"step": None, "field": "name"}


def _all(rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows


def _kept(rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows.filter(archived_at=None)


_Narrowed = Callable[[QuerySet[Any]], QuerySet[Any]]
_KINDS: dict[Kind, tuple[type[Any], str, tuple[str, ...], _Narrowed]] = {
    "run": (Run, "run", ("name", "tags", "notes"), _kept),
    "experiment": (Experiment, "experiment", ("name", "notes"), _kept),
    "dataset": (Dataset, "dataset", ("name",), _all),
    "scheme": (RewardScheme, "reward_scheme", ("name",), _all),
    "queue": (Queue, "queue", ("name", "instructions"), _all),
}
