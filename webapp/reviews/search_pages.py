"""The Search page of a project."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from pydantic import ValidationError

from webapp.accounts.models import Project
from webapp.experiments.models import Run
from webapp.pages import page_of, show
from webapp.problems import RefusedError
from webapp.reviews import search, search_names


@page_of(Project.objects.all())
def page(request: HttpRequest, project: Project) -> HttpResponse:
    """Everything that holds a text; where and what for, the address says."""
    context: dict[str, Any] = {"section": "search", "cursor": request.GET.get("cursor")}
    given = {name: value for name, value in request.GET.items() if value and name != "cursor"}
    if not request.GET.get("q", "").strip():
        return show(request, "reviews/search.html", context | {"wanted": None})
    try:
        wanted = search.Wanted.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        return show(request, "reviews/search.html", context | {"wanted": None, "problem": problem})
    context |= {"wanted": wanted, "run": _run(project, wanted.run)}
    if not context["cursor"] and not wanted.run:
        context["named"] = search_names.named(project, wanted.q)
    try:
        context["hits"] = search.trajectories(project, wanted, context["cursor"])
    except RefusedError as refused:
        context["problem"] = refused.detail
    return show(request, "reviews/search.html", context)


def _run(project: Project, pk: str | None) -> Run | None:
    return Run.objects.filter(project=project, pk=pk).first() if pk else None
