"""Pages of review queues: the list, a new one, where one stands, and judging an item."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Membership, Project, Role
from webapp.accounts.saved_views import default_view
from webapp.experiments.models import Dataset, Run
from webapp.experiments.services import create_dataset
from webapp.pages import field_errors, page_of, show, tell
from webapp.problems import RefusedError
from webapp.reviews import queries, services
from webapp.reviews.models import Queue, QueueItem
from webapp.reviews.pages import given_filter, replay_context
from webapp.reviews.rubric import Rubric
from webapp.reviews.services.queues import MAX_ITEMS, check_rubric, may_judge

QUEUES = Queue.objects.select_related("project", "run")
ITEMS = QueueItem.objects.select_related(
    "queue__project", "trajectory__run__experiment", "trajectory__attempt"
)
DEFAULT_SIZE = 50


@page_of(Project.objects.all())
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    if opened := default_view(request, project, "queues"):
        return opened
    context = {"section": "review", "queues": queries.queues_of(project)}
    return show(request, "reviews/queues.html", context)


@page_of(Run.objects.select_related("project", "experiment"), Role.EDITOR)
def new(request: HttpRequest, run: Run) -> HttpResponse:
    """A queue from the run's trajectories that pass the filter in the address."""
    wanted, problem = given_filter(request)
    context: dict[str, Any] = {
        "section": "review",
        "run": run,
        "wanted": wanted.model_dump(mode="json", exclude_none=True),
        "matching": queries.matching(run, wanted).count(),
        "people": _editors(run.project),
        "most": MAX_ITEMS,
        "problem": problem,
        "values": {"name": f"{run.name} review", "size": DEFAULT_SIZE, "reviews_per_item": "1"},
    }
    if request.method != "POST" or problem:
        return show(request, "reviews/queue_new.html", context)
    form = request.POST
    try:
        size = form.get("size", "")
        queue = services.create_queue(
            run,
            access.actor_of(request).user,
            name=form.get("name", ""),
            instructions=form.get("instructions", ""),
            rubric=_rubric(form.get("labels", ""), form.get("scales", ""), "note" in form),
            wanted=wanted,
            size=int(size) if size.isdecimal() else 0,
            sampled=form.get("order") == "sample",
            reviews_per_item=2 if form.get("reviews_per_item") == "2" else 1,
            assignees=[int(pk) for pk in form.getlist("assignees") if pk.isdecimal()],
        )
    except RefusedError as refused:
        context |= {
            "problem": refused.detail,
            "errors": field_errors(refused),
            "values": form,
            "chosen": form.getlist("assignees"),
        }
        return show(request, "reviews/queue_new.html", context, status=refused.status)
    return redirect("queue", queue.pk)


def _rubric(labels: str, scales: str, note: bool) -> Rubric:
    """From one label a line, and one scale a line: `Helpfulness 1 5`."""
    rows = []
    for line in scales.splitlines():
        *name, low, high = line.split() if len(line.split()) > 2 else [line.strip(), "1", "5"]
        if line.strip():
            rows.append({"name": " ".join(name), "low": low, "high": high})
    names = [line.strip() for line in labels.splitlines() if line.strip()]
    return check_rubric({"labels": names, "scales": rows, "note_on_reject": note})


def _editors(project: Project) -> list[Membership]:
    members = Membership.objects.filter(project=project).select_related("user")
    return [m for m in members.order_by("user__email") if Role(m.role).rank >= Role.EDITOR.rank]


@page_of(QUEUES)
def one(request: HttpRequest, queue: Queue) -> HttpResponse:
    user = access.actor_of(request).user
    role = access.require(access.actor_of(request), queue.project_id)
    datasets = Dataset.objects.filter(project=queue.project_id, kind="trajectories")
    context = {
        "section": "review",
        "queue": queue,
        "rubric": Rubric.model_validate(queue.rubric),
        "state": queries.queue_state(queue, user),
        "may_judge": role.rank >= Role.EDITOR.rank and may_judge(queue, user),
        "datasets": datasets.order_by("name"),
    }
    return show(request, "reviews/queue.html", context)


@page_of(QUEUES, Role.EDITOR)
def go_on(request: HttpRequest, queue: Queue) -> HttpResponse:
    """To the next item for this person, or back to the queue when nothing is left."""
    after = request.GET.get("after", "")
    position = int(after) if after.isdecimal() else -1
    item = services.next_item(queue, access.actor_of(request).user, position)
    if item is None:
        messages.success(request, _("Nothing is left for you in this queue."))
        return redirect("queue", queue.pk)
    return redirect("queue_item", item.pk)


@page_of(ITEMS)
def item(request: HttpRequest, found: QueueItem) -> HttpResponse:
    """The replay, with the rubric above it."""
    user = access.actor_of(request).user
    role = access.require(access.actor_of(request), found.queue.project_id)
    context, status = replay_context(request, found.trajectory)
    own = found.verdicts.filter(reviewer=user).first()
    context |= {
        "section": "review",
        "queue": found.queue,
        "item": found,
        "item_count": found.queue.items.count(),
        "rubric": Rubric.model_validate(found.queue.rubric),
        "verdict": own,
        "may_judge": role.rank >= Role.EDITOR.rank and may_judge(found.queue, user),
        "previous_item": found.queue.items.filter(position__lt=found.position)
        .order_by("-position")
        .first(),
    }
    return show(request, "reviews/queue_item.html", context, status=status)


@require_POST
@page_of(ITEMS, Role.EDITOR)
def verdict(request: HttpRequest, found: QueueItem) -> HttpResponse:
    form = request.POST
    given = {name: str(form[name]) for name in form if name.startswith("score.") and form[name]}
    scores = {
        name.removeprefix("score."): int(value) if value.isdecimal() else -1
        for name, value in given.items()
    }
    try:
        if form.get("accepted") not in ("yes", "no"):
            raise RefusedError(_("Accept or reject first."))
        services.judge(
            found,
            access.actor_of(request).user,
            accepted=form["accepted"] == "yes",
            labels=form.getlist("labels"),
            scores=scores,
            note=form.get("note", ""),
        )
    except RefusedError as refused:
        tell(request, refused)
        return redirect("queue_item", found.pk)
    return redirect(f"{reverse('queue_next', args=[found.queue_id])}?after={found.position}")


@require_POST
@page_of(QUEUES, Role.EDITOR)
def close(request: HttpRequest, queue: Queue) -> HttpResponse:
    services.close_queue(queue, access.actor_of(request).user, request.POST.get("closed") == "yes")
    return redirect("queue", queue.pk)


@require_POST
@page_of(QUEUES, Role.EDITOR)
def dataset(request: HttpRequest, queue: Queue) -> HttpResponse:
    """Accepted trajectories become a version of the chosen dataset, or of a new one."""
    user = access.actor_of(request).user
    try:
        chosen = Dataset.objects.filter(
            project=queue.project_id, pk=request.POST.get("dataset", "")
        ).first()
        if chosen is None:
            name = request.POST.get("name", "") or queue.name
            chosen = create_dataset(queue.project, user, name[:80], "trajectories")
        version = services.make_dataset(queue, chosen, user)
    except RefusedError as refused:
        tell(request, refused)
        return redirect("queue", queue.pk)
    messages.success(
        request,
        _("Version %(number)s of %(name)s holds %(rows)s accepted trajectories.")
        % {"number": version.number, "name": chosen.name, "rows": version.rows},
    )
    return redirect("dataset", chosen.pk)
