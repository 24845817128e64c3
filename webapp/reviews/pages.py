"""Pages of trajectories: the list of a run, the replay, two replays side by side."""

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.cache import patch_vary_headers
from pydantic import ValidationError

from engine.records.trajectory import StopReason
from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.accounts.saved_views import PASSING, default_view
from webapp.experiments.models import Run
from webapp.experiments.pages.run import RUNS, run_context
from webapp.pages import page_of, show
from webapp.problems import RefusedError
from webapp.reviews import episodes, queries, reading
from webapp.reviews.models import Trajectory

TRAJECTORIES = Trajectory.objects.select_related("project", "run__experiment", "attempt")


@page_of(RUNS)
def run_trajectories(request: HttpRequest, run: Run) -> HttpResponse:
    if opened := default_view(request, run.project, "trajectories"):
        return opened
    wanted, problem = given_filter(request)
    cursor = request.GET.get("cursor")
    try:
        page = queries.page_of(run, wanted, cursor)
    except RefusedError as refused:
        page, cursor, problem = queries.page_of(run, wanted), None, refused.detail
    context = run_context(run, "trajectories") | {
        "page": page,
        "cursor": cursor,
        "wanted": wanted,
        "narrowed": bool(problem) or wanted != queries.Filter(),
        "problem": problem,
        "running": {"run": run.pk, "cursor": run.cursor, "workers": episodes.playing(run)},
        "categories": queries.categories_of(run),
        "stop_reasons": [reason.value for reason in StopReason],
    }
    return show(request, "reviews/run_trajectories.html", context)


def given_filter(request: HttpRequest, others: tuple[str, ...] = ()) -> tuple[queries.Filter, str]:
    """The filter in the address, and what is wrong with it; `others` there are no part of it."""
    given = {
        name: value for name, value in request.GET.items() if value and name not in PASSING + others
    }
    try:
        return queries.Filter.model_validate(given), ""
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return queries.Filter(), f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


@page_of(RUNS)
def live_episode(request: HttpRequest, run: Run, trajectory: str) -> HttpResponse:
    """A running episode, turn by turn; its replay once only that is left of it."""
    episode = episodes.find(run, trajectory)
    if episode is None:
        stored = access.found_or_404(run.trajectories.filter(pk=trajectory).first())
        return redirect("replay", stored.pk)
    context = {
        "section": "runs",
        "run": run,
        "episode": episode,
        "data": {"run": run.pk, **episodes.detail(run, episode)},
    }
    return show(request, "reviews/live_episode.html", context)


@page_of(TRAJECTORIES)
def replay(request: HttpRequest, trajectory: Trajectory) -> HttpResponse:
    context, status = replay_context(request, trajectory)
    return show(request, "reviews/replay.html", context, status=status)


def replay_context(request: HttpRequest, trajectory: Trajectory) -> tuple[dict[str, Any], int]:
    """What the replay shows before its script runs, and the page's status."""
    role = access.require(access.actor_of(request), trajectory.project_id)
    group = queries.group_of(trajectory)
    context: dict[str, Any] = {
        "section": "runs",
        "trajectory": trajectory,
        "group": group,
        "data": {
            "id": trajectory.id,
            "project": trajectory.project_id,
            "may_comment": role.rank >= Role.EDITOR.rank,
        },
    }
    context |= _neighbours(trajectory, group)
    try:
        return context | _stored(trajectory), 200
    except RefusedError as refused:
        return context | {"problem": refused.detail}, refused.status


def _stored(trajectory: Trajectory) -> dict[str, Any]:
    """What only the stored trajectory knows: the whole prompt, the answer, the reward's terms."""
    with reading.stored(trajectory) as source:
        fields = source.fields
    return {"stored": fields, "terms": reading.terms_of(trajectory.run.spec, fields["reward"])}


def _neighbours(trajectory: Trajectory, group: list[Trajectory]) -> dict[str, Any]:
    at = next((i for i, row in enumerate(group) if row.pk == trajectory.pk), 0)
    return {
        "place": at + 1,
        "previous": group[at - 1] if at > 0 else None,
        "next": group[at + 1] if at + 1 < len(group) else None,
    }


@login_required
def compare(request: HttpRequest) -> HttpResponse:
    """Two trajectories of the same or of different runs, step beside step."""
    actor = access.actor_of(request)
    sides = [access.get(TRAJECTORIES, request.GET.get(name, ""), actor) for name in ("a", "b")]
    request.page_project = sides[0].project  # type: ignore[attr-defined]
    response = render(request, "reviews/compare.html", comparison_context(sides))
    patch_vary_headers(response, ["Cookie"])
    return response


def comparison_context(sides: Sequence[Trajectory]) -> dict[str, Any]:
    """What the page of two trajectories shows before its script runs."""
    return {
        "section": "runs",
        "sides": sides,
        "data": {"a": sides[0].pk, "b": sides[1].pk},
    }
