"""Home: what runs, what failed since the last visit, what ended, devices, what waits for review."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from webapp.accounts import access
from webapp.accounts.models import Project
from webapp.experiments import queries
from webapp.experiments.models import Run
from webapp.experiments.pages.run import progress_of
from webapp.monitoring.headline import HEADLINE
from webapp.monitoring.queries import newest_devices
from webapp.monitoring.sparks import sparks
from webapp.pages import page_of, show
from webapp.reviews.queue_queries import waiting_for

SPARK_METRICS = [HEADLINE["success"], HEADLINE["train_success"], HEADLINE["loss"]]
LOOK_BACK = timedelta(days=7)
SHOWN = 8


@page_of(Project.objects.all())
def home(request: HttpRequest, project: Project) -> HttpResponse:
    actor = access.actor_of(request)
    runs = list(queries.active_runs(actor, project.pk)[:30])
    since = _last_look(request, project)
    ended = project.runs.filter(archived_at=None, ended_at__isnull=False)
    context = {
        "section": "home",
        "active": _cards(runs),
        "cursors": {run.pk: run.cursor for run in runs},
        "failures": list(queries.failed_since(actor, since).filter(project=project)[:SHOWN]),
        "since": since,
        "ended": list(ended.select_related("experiment").order_by("-ended_at")[:SHOWN]),
        "inbox": waiting_for(actor.user).filter(project=project),
        "devices": newest_devices(),
        "now": timezone.now().timestamp(),
    }
    return show(request, "experiments/home.html", context, "experiments/home_active.html")


def _cards(runs: list[Run]) -> list[dict[str, Any]]:
    ids = [run.pk for run in runs]
    curves, stages = sparks(ids, SPARK_METRICS), queries.newest_stages(ids)
    cards = []
    for run in runs:
        name = next((m for m in SPARK_METRICS if len(curves.get((run.pk, m), [])) > 1), "")
        cards.append(
            {
                "run": run,
                "progress": progress_of(stages[run.pk]),
                "spark": curves.get((run.pk, name), []),
                "metric": name,
            }
        )
    return cards


def _last_look(request: HttpRequest, project: Project) -> datetime:
    """When this session last opened the page before now; failures since then are shown.

    A look counts for the next one only ten minutes later, so that a reload hides nothing.
    """
    looks = request.session.get("looks", {})
    previous, current = looks.get(project.pk, [None, None])
    now = timezone.now()
    if current is None or now.timestamp() - current > 600:
        previous, current = current, now.timestamp()
        request.session["looks"] = {**looks, project.pk: [previous, current]}
    earliest = now - LOOK_BACK
    return max(datetime.fromtimestamp(previous, UTC), earliest) if previous else earliest
