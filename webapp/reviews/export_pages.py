"""Exporting what the Trajectories tab shows: sent where it is little, else made by a job."""

from typing import get_args
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments.models import Run
from webapp.experiments.pages.run import RUNS
from webapp.experiments.services.job_files import EXPORTS_KEPT
from webapp.pages import page_of, show, tell
from webapp.problems import RefusedError, invalid_field
from webapp.reviews import queries, services
from webapp.reviews.pages import given_filter
from webapp.reviews.services import exporting


@require_safe
@page_of(RUNS)
def page(request: HttpRequest, run: Run) -> HttpResponse:
    """`?format=` and the filter of the Trajectories tab. Nothing is made by looking at it."""
    wanted, format = _asked(request)
    extent = exporting.extent_of(run, wanted)
    narrowing = _as_text(wanted)
    if not extent.needs_job:
        query = urlencode({**narrowing, "format": format})
        return redirect(f"/api/v1/runs/{run.pk}/trajectories/export?{query}")
    context = {
        "section": "runs",
        "run": run,
        "extent": extent,
        "format": format,
        "narrowing": list(narrowing.items()),
        "query": urlencode({**narrowing, "format": format}),
        "back": urlencode(narrowing),
        "days": EXPORTS_KEPT.days,
    }
    return show(request, "reviews/export.html", context)


@require_POST
@page_of(RUNS, Role.EDITOR)
def start(request: HttpRequest, run: Run) -> HttpResponse:
    wanted, format = _asked(request)
    user = access.actor_of(request).user
    return redirect("job", services.start_export(run, user, wanted, format).pk)


@require_POST
@page_of(RUNS, Role.EDITOR)
def collect(request: HttpRequest, run: Run) -> HttpResponse:
    """Make a dataset of the tasks of what the Trajectories tab shows."""
    user = access.actor_of(request).user
    wanted, problem = given_filter(request)
    try:
        if problem:
            raise RefusedError(problem)
        job = services.start_collecting(run, user, wanted, request.POST.get("name", ""))
    except RefusedError as refused:
        tell(request, refused)
        return redirect(f"{reverse('run_trajectories', args=[run.pk])}?{request.GET.urlencode()}")
    return redirect("job", job.pk)


def _asked(request: HttpRequest) -> tuple[queries.Filter, exporting.Format]:
    """What the address says. Raises RefusedError."""
    wanted, problem = given_filter(request, ("format",))
    if problem:
        raise RefusedError(problem)
    given = request.GET.get("format", "jsonl")
    for format in get_args(exporting.Format):
        if given == format:
            return wanted, format
    raise invalid_field("format", f"There is no format {given[:20]!r}: use jsonl or parquet.")


def _as_text(wanted: queries.Filter) -> dict[str, str]:
    """What narrows, as it stands in an address."""
    given = wanted.model_dump(mode="json", exclude_none=True)
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in given.items()
    }
