"""The table of runs: filter, sort, columns, groups, and what can be done to many at once."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.accounts.saved_views import default_view
from webapp.experiments import services
from webapp.experiments.models import Run
from webapp.experiments.pages.run_columns import (
    COLUMNS,
    Column,
    cells,
    column_named,
    find_columns,
    picked_columns,
    sort_link,
)
from webapp.experiments.pages.run_group_rows import GROUPINGS, group_context
from webapp.experiments.queries import find_runs, list_runs
from webapp.pages import is_fragment, page_of, show, tell
from webapp.paging import Page
from webapp.problems import RefusedError

PAGE = 50
MOST_TOLD = 5  # runs that could not be changed


@page_of(Project.objects.all())
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    """All state is in the URL: q, sort, columns, archived, group, open, cursor; `find` searches the
    columns that can be picked."""
    if opened := default_view(request, project, "runs"):
        return opened
    find = request.GET.get("find")
    columns = picked_columns(request.GET.get("columns"))
    found = {"found": find_columns(project.pk, find), "typed": _typed(find)} if find else {}
    if find is not None and is_fragment(request):
        return show(request, "experiments/runs_columns.html", {"find": find, **found})
    group = request.GET.get("group", "")
    context: dict[str, Any] = {
        "section": "runs",
        "q": request.GET.get("q", ""),
        "archived": bool(request.GET.get("archived")),
        "group": group,
        "problem": "",
        "choices": [(column, column in columns) for column in COLUMNS],
        "carried": ("columns", "group", "view"),
        "groupings": GROUPINGS,
        "extra": [column for column in columns if column not in COLUMNS],
        "find": find,
        "cursor": request.GET.get("cursor", ""),
        **found,
    }
    try:
        context |= (group_context if group else _runs)(request, project, columns)
    except RefusedError as refused:
        context |= {"problem": refused.detail, "matching": 0}
    context["any_runs"] = bool(context["matching"]) or project.runs.exists()
    status = 422 if context["problem"] and not request.htmx else 200  # type: ignore[attr-defined]
    return show(request, "experiments/runs.html", context, "experiments/runs_table.html", status)


def _runs(request: HttpRequest, project: Project, columns: list[Column]) -> dict[str, Any]:
    """A page of single runs."""
    actor = access.actor_of(request)
    q, sort = request.GET.get("q", ""), request.GET.get("sort", "-created")
    archived = bool(request.GET.get("archived"))
    page: Page[Run] = list_runs(
        actor,
        project=project.pk,
        q=q,
        sort=sort,
        archived=archived,
        cursor=request.GET.get("cursor") or None,
        limit=PAGE,
    )
    return {
        "sort": sort,
        "columns": [(column, sort_link(request, column.sort, sort)) for column in columns],
        "name_sort": sort_link(request, "name", sort),
        "rows": list(zip(page.items, cells(page.items, columns), strict=True)),
        "next": page.next_cursor,
        "matching": find_runs(actor, project=project.pk, q=q, archived=archived).count(),
    }


def _typed(find: str) -> list[Column]:
    """A metric and a field of just the name that was typed: the picker knows newest runs only."""
    found = [column_named(f"{kind}:{find.strip()}") for kind in ("m", "c")]
    return [column for column in found if column]


@require_POST
@page_of(Project.objects.all(), Role.EDITOR)
def bulk(request: HttpRequest, project: Project) -> HttpResponse:
    """Change the chosen runs, or with `all` every run that the filter finds."""
    actor, form = access.actor_of(request), request.POST
    try:
        if form.get("all"):
            runs = find_runs(
                actor, project=project.pk, q=form.get("q", ""), archived=bool(form.get("archived"))
            )
        else:
            ids = [pk for given in form.getlist("run") for pk in given.split(",")]
            runs = Run.objects.filter(project=project, pk__in=ids)
        tag = form.get("tag", "").strip()
        changed = services.change_runs(project, actor.user, runs, form.get("action", ""), tag)
    except RefusedError as refused:
        tell(request, refused)
        return redirect(_back(request, project))
    for run, why in changed.refused[:MOST_TOLD]:
        tell(request, RefusedError(f"{run.name}: {why}"))
    if (more := len(changed.refused) - MOST_TOLD) > 0:
        text = ngettext("%(n)s more was refused.", "%(n)s more were refused.", more)
        messages.error(request, text % {"n": more})
    if changed.done:
        text = ngettext("%(n)s run was changed.", "%(n)s runs were changed.", changed.done)
        messages.success(request, text % {"n": changed.done})
    elif not changed.refused:
        messages.info(request, _("There was nothing to change."))
    return redirect(_back(request, project))


def _back(request: HttpRequest, project: Project) -> str:
    names = ("q", "sort", "columns", "group", "archived", "view")
    back = {name: request.POST[name] for name in names if request.POST.get(name)}
    address = reverse("runs", args=[project.pk])
    return f"{address}?{urlencode(back)}" if back else address
