"""Lists of a project's material, a page at a time, narrowed by a part of the name."""

from collections.abc import Collection
from typing import Any

from django.db.models import Count, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Lower

from webapp.accounts.access import Actor, visible
from webapp.experiments.models import (
    Dataset,
    DatasetVersion,
    Experiment,
    Preset,
    RewardScheme,
    RewardSchemeVersion,
)
from webapp.paging import M, Page, keyset

NEWEST = ("-created_at", "-id")
DIGITS = 9  # of the number of a version


def list_experiments(
    actor: Actor,
    project: str | None = None,
    q: str = "",
    archived: bool = False,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Experiment]:
    """Those with the newest run first, each with `run_count`, `active_count`, `last_run_at`."""
    experiments = _named(Experiment.objects.all(), actor, project, q)
    experiments = experiments.filter(archived_at__isnull=not archived)
    experiments = experiments.select_related("baseline", "project", "created_by").annotate(
        run_count=Count("runs", filter=Q(runs__archived_at=None, runs__full_spec__isnull=True)),
        active_count=Count("runs", filter=Q(runs__ended_at=None)),
        last_run_at=Max("runs__created_at"),
        last_at=Coalesce(Max("runs__created_at"), "created_at"),
    )
    return keyset(experiments, ("-last_at", "-id"), cursor, limit)


def list_datasets(
    actor: Actor,
    project: str | None = None,
    q: str = "",
    kind: str = "",
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Dataset]:
    """By name, of all kinds or of some (with commas between them), each with `version_count`,
    `newest_at` and `newest_rows`."""
    datasets = _named(Dataset.objects.all(), actor, project, q)
    datasets = datasets.filter(kind__in=kind.split(",")) if kind else datasets
    newest = DatasetVersion.objects.filter(dataset=OuterRef("pk")).order_by("-number")
    datasets = datasets.annotate(
        version_count=Count("versions"),
        newest_at=Max("versions__created_at"),
        newest_rows=Subquery(newest.values("rows")[:1]),
    )
    return _by_name(datasets, cursor, limit)


def list_schemes(
    actor: Actor,
    project: str | None = None,
    q: str = "",
    cursor: str | None = None,
    limit: int = 50,
) -> Page[RewardScheme]:
    """By name, each with `version_count`, `newest_at` and `run_count`."""
    schemes = _named(RewardScheme.objects.all(), actor, project, q).annotate(
        version_count=Count("versions", distinct=True),
        newest_at=Max("versions__created_at"),
        run_count=Count("versions__runs", distinct=True),
    )
    return _by_name(schemes, cursor, limit)


def list_presets(
    actor: Actor,
    project: str | None = None,
    q: str = "",
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Preset]:
    """Those that were saved last first, without their texts, which may be long."""
    presets = _named(Preset.objects.all(), actor, project, q).defer("text")
    presets = presets.select_related("created_by", "updated_by")
    return keyset(presets, ("-updated_at", "-id"), cursor, limit)


def list_scheme_versions(
    actor: Actor,
    project: str | None = None,
    q: str = "",
    cursor: str | None = None,
    limit: int = 50,
) -> Page[RewardSchemeVersion]:
    """Versions of all reward schemes, the newest first, without their definitions."""
    versions = visible(RewardSchemeVersion.objects.all(), actor)
    if project:
        versions = versions.filter(scheme__project=project)
    versions = versions.select_related("scheme", "created_by").defer("definition")
    return keyset(_of_words(versions, "scheme__name", q), NEWEST, cursor, limit)


def list_dataset_versions(
    actor: Actor,
    project: str | None = None,
    q: str = "",
    kind: str = "",
    cursor: str | None = None,
    limit: int = 50,
) -> Page[DatasetVersion]:
    """Versions of all datasets, or of those of some kinds, the newest first."""
    versions = visible(DatasetVersion.objects.all(), actor)
    if project:
        versions = versions.filter(dataset__project=project)
    if kind:
        versions = versions.filter(dataset__kind__in=kind.split(","))
    versions = versions.select_related("dataset", "created_by")
    return keyset(_of_words(versions, "dataset__name", q), NEWEST, cursor, limit)


def with_chosen(page: Page[M], rows: QuerySet[M], ids: Collection[str]) -> list[M]:
    """What a picker offers: a page, and what is chosen already where it is on another one."""
    missing = set(ids) - {row.pk for row in page.items}
    return [*page.items, *rows.filter(pk__in=missing)] if missing else page.items


def _named(rows: QuerySet[M], actor: Actor, project: str | None, q: str) -> QuerySet[M]:
    rows = visible(rows, actor)
    rows = rows.filter(project=project) if project else rows
    return rows.filter(name__icontains=q.strip()) if q.strip() else rows


def _by_name(rows: QuerySet[Any], cursor: str | None, limit: int) -> Page[Any]:
    """Whatever its case, as names are unique."""
    return keyset(rows.annotate(sort_name=Lower("name")), ("sort_name", "id"), cursor, limit)


def _of_words(versions: QuerySet[M], name: str, q: str) -> QuerySet[M]:
    """Each word is a part of the name, or the number of the version."""
    for word in q.split():
        found = Q(**{f"{name}__icontains": word})
        if word.isdecimal() and len(word) <= DIGITS:
            found |= Q(number=int(word))
        versions = versions.filter(found)
    return versions
