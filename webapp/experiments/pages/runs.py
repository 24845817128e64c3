"""The table of runs: filter, sort, columns, selection and what can be done to many at once."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.accounts.saved_views import default_view
from webapp.experiments import services
from webapp.experiments.models import Run
from webapp.experiments.queries import list_runs
from webapp.monitoring.headline import HEADLINE
from webapp.pages import page_of, show, tell
from webapp.paging import Page
from webapp.problems import RefusedError

PAGE = 50


@dataclass(frozen=True)
class Column:
    """A column that can be picked. `sort` is what `list_runs` sorts by; empty: not sortable."""

    name: str
    label: Any
    sort: str = ""
    metric: str = ""  # of the run's headline
    share: bool = False  # shown as a percentage


COLUMNS = [
    Column("state", gettext_lazy("State"), "state"),
    Column("experiment", gettext_lazy("Experiment")),
    Column("progress", gettext_lazy("Progress")),
    Column("success", gettext_lazy("Completion"), "success", HEADLINE["success"], True),
    Column("reward", gettext_lazy("Reward"), "reward", HEADLINE["reward"]),
    Column(
        "tool_success", gettext_lazy("Tool success"), "tool_success", HEADLINE["tool_success"], True
    ),
    Column("turns", gettext_lazy("Turns"), "turns", HEADLINE["turns"]),
    Column("loss", gettext_lazy("Loss"), "loss", HEADLINE["loss"]),
    Column("entropy", gettext_lazy("Entropy"), "entropy", HEADLINE["entropy"]),
    Column(
        "clip_fraction", gettext_lazy("Clip fraction"), "clip_fraction", HEADLINE["clip_fraction"]
    ),
    Column("staleness", gettext_lazy("Staleness"), "staleness", HEADLINE["staleness"]),
    Column("algorithm", gettext_lazy("Algorithm")),
    Column("seed", gettext_lazy("Seed")),
    Column("tags", gettext_lazy("Tags")),
    Column("user", gettext_lazy("By")),
    Column("elapsed", gettext_lazy("Time")),
    Column("created", gettext_lazy("Launched"), "created"),
]
SHOWN = ["state", "experiment", "progress", "success", "reward", "tags", "user", "created"]
FIRST_UP = {"name", "state"}  # sorted ascending by the first click


@page_of(Project.objects.all())
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    """All state is in the URL: q, sort, columns, archived, cursor."""
    if opened := default_view(request, project, "runs"):
        return opened
    q, sort = request.GET.get("q", ""), request.GET.get("sort", "-created")
    archived = bool(request.GET.get("archived"))
    problem = ""
    try:
        page = list_runs(
            access.actor_of(request),
            project=project.pk,
            q=q,
            sort=sort,
            archived=archived,
            cursor=request.GET.get("cursor") or None,
            limit=PAGE,
        )
    except RefusedError as refused:
        page, problem = Page([], None), refused.detail
    picked = request.GET.get("columns")
    shown = picked.split(",") if picked else SHOWN
    columns = [column for column in COLUMNS if column.name in shown]
    context = {
        "section": "runs",
        "q": q,
        "sort": sort,
        "archived": archived,
        "problem": problem,
        "columns": [(column, _sort_link(request, column.sort, sort)) for column in columns],
        "name_sort": _sort_link(request, "name", sort),
        "choices": [(column, column.name in shown) for column in COLUMNS],
        "rows": [(run, [(column, _cell(run, column)) for column in columns]) for run in page.items],
        "next": page.next_cursor,
        "cursor": request.GET.get("cursor", ""),
        "any_runs": bool(page.items) or project.runs.exists(),
    }
    status = 422 if problem and not request.htmx else 200  # type: ignore[attr-defined]
    return show(request, "experiments/runs.html", context, "experiments/runs_table.html", status)


def _sort_link(request: HttpRequest, word: str, now: str) -> tuple[str, str]:
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


def _cell(run: Run, column: Column) -> Any:
    if column.metric:
        return run.headline.get(column.metric)
    if column.name == "algorithm":
        return next((s["algorithm"] for s in run.spec["stages"] if "algorithm" in s), None)
    if column.name == "seed":
        return run.spec.get("seed")
    return None


@require_POST
@page_of(Project.objects.all(), Role.EDITOR)
def bulk(request: HttpRequest, project: Project) -> HttpResponse:
    """Tag, stop, archive or bring back the chosen runs; what cannot be done is said, one by one."""
    user = access.actor_of(request).user
    action, tag = request.POST.get("action", ""), request.POST.get("tag", "").strip()
    chosen = Run.objects.filter(project=project, pk__in=request.POST.getlist("run"))
    done = 0
    for run in chosen:
        try:
            if action == "tag":
                services.set_tags(run.pk, user, add=[tag], remove=[])
            elif action == "untag":
                services.set_tags(run.pk, user, add=[], remove=[tag])
            elif action == "stop":
                services.stop(run.pk, user)
            elif action in ("archive", "unarchive"):
                services.archive(run.pk, user, archived=action == "archive")
            else:
                raise Http404
            done += 1
        except RefusedError as refused:
            tell(request, RefusedError(f"{run.name}: {refused.detail}"))
    if done:
        text = ngettext("%(n)s run was changed.", "%(n)s runs were changed.", done) % {"n": done}
        messages.success(request, text)
    back = {key: request.POST[key] for key in ("q", "sort", "columns") if request.POST.get(key)}
    address = reverse("runs", args=[project.pk])
    return redirect(f"{address}?{urlencode(back)}" if back else address)
