"""Rows of groups of runs in the table of runs, one of them opened into its runs."""

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from webapp.accounts import access
from webapp.accounts.models import Project
from webapp.experiments.models import Run
from webapp.experiments.pages.run_columns import Column, cells, sort_link
from webapp.experiments.queries import MAX_COMPARED, config_differences, find_runs
from webapp.experiments.run_groups import MAX_METRICS, VARIANT, Group, list_groups, without_labels

PAGE = 50
MOST_RUNS = 50  # of the group that is opened
NOT_SET = "~"  # the key of runs without the field, in the address
GROUPINGS = [
    (VARIANT, gettext_lazy("config without the seed")),
    ("seed", gettext_lazy("seed")),
    ("name", gettext_lazy("name of the spec")),
]
MOST_DIFFERENCES = 4  # that tell a variant from the others


def group_context(request: HttpRequest, project: Project, columns: list[Column]) -> dict[str, Any]:
    """`group` is what runs are grouped by, `open` the key of the group whose runs are shown."""
    actor = access.actor_of(request)
    word, sort = request.GET["group"], request.GET.get("sort", "-newest")
    sort = "-newest" if sort.lstrip("-") in ("created", "name", "state", "") else sort
    archived = bool(request.GET.get("archived"))
    runs = find_runs(actor, project=project.pk, q=request.GET.get("q", ""), archived=archived)
    measured = [column for column in columns if column.is_number and column.metric][:MAX_METRICS]
    page = list_groups(
        runs,
        group=word,
        metrics=[column.metric for column in measured],
        sort=sort,
        cursor=request.GET.get("cursor") or None,
        limit=PAGE,
    )
    opened = request.GET.get("open")
    shown = next((one for one in page.items if _key(one) == opened), None)
    inside = _runs_of(shown) if shown else []
    told = _told(page.items) if word == VARIANT else {}
    return {
        "sort": sort,
        "columns": [(column, sort_link(request, column.metric, sort)) for column in measured],
        "n_sort": sort_link(request, "n", sort),
        "newest_sort": sort_link(request, "newest", sort),
        "groups": [
            {
                "group": one,
                "key": _key(one),
                "differences": told.get(one.key or "", []),
                "cells": [(column, one.metrics[column.metric]) for column in measured],
                "ids": ",".join(one.runs) if one.n <= MAX_COMPARED else "",
                "opened": one is shown,
                "inside": list(zip(inside, cells(inside, measured), strict=True))
                if one is shown
                else [],
                "hidden": one.n - len(inside),
            }
            for one in page.items
        ],
        "next": page.next_cursor,
        "total": page.total,
        "matching": runs.count(),
    }


def _key(group: Group) -> str:
    return NOT_SET if group.key is None else group.key


def _runs_of(group: Group) -> list[Run]:
    found = Run.objects.filter(pk__in=group.runs[:MOST_RUNS])
    return list(found.select_related("experiment", "project").order_by("-created_at", "-pk"))


def _told(groups: list[Group]) -> dict[str, list[tuple[str, Any]]]:
    """By key: the fields in which the groups of this page differ, with each one's values."""
    newest = {group.runs[0]: group.key or "" for group in groups}
    specs = dict(Run.objects.filter(pk__in=newest).values_list("pk", "spec"))
    ids = list(specs)
    found = config_differences([without_labels(specs[pk]) for pk in ids])
    return {
        newest[pk]: [(row.path, row.values[at]) for row in found[:MOST_DIFFERENCES]]
        for at, pk in enumerate(ids)
    }
