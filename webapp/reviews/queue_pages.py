"""Pages of review queues: the list, a new one with its preview, where one stands."""

import random
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Membership, Project, Role
from webapp.accounts.saved_views import default_view
from webapp.experiments.lists import list_datasets
from webapp.experiments.models import Dataset, Run
from webapp.pages import field_errors, page_of, show, tell
from webapp.paging import keyset
from webapp.problems import RefusedError
from webapp.reviews import queue_queries, services
from webapp.reviews.models import Queue, Trajectory
from webapp.reviews.pages import given_filter
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import CHOICES, Rubric
from webapp.reviews.sampling import Kind, Pick
from webapp.reviews.services.queues import MAX_ITEMS, check_rubric
from webapp.reviews.services.versions import KINDS

QUEUES = Queue.objects.select_related("project", "run").prefetch_related("assignees")
RUNS = Run.objects.select_related("project", "experiment__baseline", "parent")
DEFAULT_SIZE = 50
PREVIEWED = 12
RECENT_RUNS = 12
SAMPLES: list[tuple[Kind, Any]] = [
    ("newest", gettext_lazy("the newest")),
    ("random", gettext_lazy("a random sample")),
    ("disagreement", gettext_lazy("groups that disagree: both sides of each")),
    ("outliers", gettext_lazy("outliers of the reward")),
    ("newly_failing", gettext_lazy("newly failing: solved before, failed in the last evaluation")),
]
OWN_FIELDS = ("sample", "style", "size", "seed")


@page_of(Project.objects.all())
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    if opened := default_view(request, project, "queues"):
        return opened
    with_trajectories = Trajectory.objects.filter(project=project).order_by().values("run")
    runs = Run.objects.filter(project=project, archived_at=None, pk__in=with_trajectories)
    queues, cursor = queue_queries.queues_of(project), request.GET.get("cursor")
    try:
        page = keyset(queues, ("-created_at", "-id"), cursor)
    except RefusedError:
        cursor, page = None, keyset(queues, ("-created_at", "-id"))
    context = {
        "section": "review",
        "page": page,
        "cursor": cursor,
        "runs": runs.order_by("-created_at")[:RECENT_RUNS],
    }
    return show(request, "reviews/queues.html", context)


@page_of(RUNS, Role.EDITOR)
def new(request: HttpRequest, run: Run) -> HttpResponse:
    """A queue from the run's trajectories that pass the filter in the address; `sample`, `style`,
    `size` and `seed` there say what is previewed."""
    wanted, problem = given_filter(request, OWN_FIELDS)
    form: Any = request.POST if request.method == "POST" else request.GET
    values = {
        "name": f"{run.name} review",
        "size": str(DEFAULT_SIZE),
        "sample": "newest",
        "style": "single",
        "seed": str(random.randrange(10**6)),
        "reviews_per_item": "1",
    } | {key: form[key] for key in form if form[key]}
    context: dict[str, Any] = {
        "section": "review",
        "run": run,
        "wanted": wanted.model_dump(mode="json", exclude_none=True),
        "people": _editors(run.project),
        "most": MAX_ITEMS,
        "samples": SAMPLES,
        "problem": problem,
        "values": values,
    }
    if request.method == "POST" and not problem:
        try:
            queue = _create(request, run, wanted, values)
            return redirect("queue", queue.pk)
        except RefusedError as refused:
            context |= {
                "problem": refused.detail,
                "errors": field_errors(refused),
                "chosen": request.POST.getlist("assignees"),
            }
    context |= _previewed(run, wanted, values)
    template, part = "reviews/queue_new.html", "reviews/queue_preview.html"
    return show(request, template, context, part, 422 if context["problem"] else 200)


def _create(request: HttpRequest, run: Run, wanted: Filter, values: dict[str, str]) -> Queue:
    form = request.POST
    return services.create_queue(
        run,
        access.actor_of(request).user,
        name=form.get("name", ""),
        instructions=form.get("instructions", ""),
        rubric=_rubric(form.get("labels", ""), form.get("scales", ""), "note" in form),
        wanted=wanted,
        reviews_per_item=2 if form.get("reviews_per_item") == "2" else 1,
        assignees=[int(pk) for pk in form.getlist("assignees") if pk.isdecimal()],
        **_sample(values),
    )


def _sample(values: dict[str, str]) -> dict[str, Any]:
    kinds = [kind for kind, _name in SAMPLES]
    size, seed = values["size"], values["seed"]
    return {
        "sample": values["sample"] if values["sample"] in kinds else "newest",
        "style": values["style"] if values["style"] in CHOICES else "single",
        "size": int(size) if size.isdecimal() and len(size) < 9 else 0,
        "seed": int(seed) if seed.isdecimal() and len(seed) < 9 else 0,
    }


def _previewed(run: Run, wanted: Filter, values: dict[str, str]) -> dict[str, Any]:
    """What the queue would hold, or why it cannot be told."""
    chosen = _sample(values)
    try:
        found = services.preview(run, wanted, **chosen)
    except RefusedError as refused:
        return {"preview": None, "preview_problem": refused.detail}
    return {"preview": found, "previewed": _rows(found.picks[:PREVIEWED])}


def _rows(picks: list[Pick]) -> list[dict[str, Any]]:
    wanted = {pk for one in picks for pk in (one.trajectory, one.other) if pk}
    rows = Trajectory.objects.in_bulk(list(wanted))
    return [
        {
            "trajectory": rows[one.trajectory],
            "other": rows[one.other] if one.other else None,
            "reason": one.reason,
        }
        for one in picks
    ]


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
    """`?outcome=` narrows the items."""
    actor = access.actor_of(request)
    role = access.require(actor, queue.project_id)
    progress = queue_queries.progress_of(queue, actor.user)
    outcome = request.GET.get("outcome")
    outcome, cursor = outcome if outcome in progress.counts else None, request.GET.get("cursor")
    try:
        page = queue_queries.items_page(queue, actor.user, outcome, cursor)
    except RefusedError:
        cursor, page = None, queue_queries.items_page(queue, actor.user, outcome)
    datasets = list_datasets(actor, queue.project_id, kind=",".join(KINDS))
    context = {
        "section": "review",
        "queue": queue,
        "rubric": Rubric.model_validate(queue.rubric),
        "progress": progress,
        "page": page,
        "outcome": outcome,
        "cursor": cursor,
        "agreement": queue_queries.agreement_of(queue) if queue.reviews_per_item > 1 else None,
        "reviewers": queue_queries.reviewers_of(queue),
        "versions": queue_queries.versions_of(queue),
        "checkpoint": queue_queries.checkpoint_of(queue),
        "marks": queue_queries.marks_in(queue),
        "may_judge": role.rank >= Role.EDITOR.rank and services.may_judge(queue, actor.user),
        "datasets": datasets.items,
        "more_datasets": datasets.next_cursor is not None,
    }
    return show(request, "reviews/queue.html", context)


@require_POST
@page_of(QUEUES, Role.EDITOR)
def close(request: HttpRequest, queue: Queue) -> HttpResponse:
    services.close_queue(queue, access.actor_of(request).user, request.POST.get("closed") == "yes")
    return redirect("queue", queue.pk)


@require_POST
@page_of(QUEUES, Role.EDITOR)
def dataset(request: HttpRequest, queue: Queue) -> HttpResponse:
    """Verdicts become a version of the chosen dataset, or of a new one of the given kind."""
    user = access.actor_of(request).user
    kind = next((one for one in KINDS if one == request.POST.get("kind")), "trajectories")
    target = request.POST.get("dataset", "").replace("\0", "")
    try:
        chosen = Dataset.objects.filter(project=queue.project_id, kind=kind, pk=target).first()
        if chosen is None:
            name = request.POST.get("name", "") or queue.name
            version = services.make_new_dataset(queue, name[:80], kind, user)
        else:
            version = services.make_dataset(queue, chosen, user)
    except RefusedError as refused:
        tell(request, refused)
        return redirect("queue", queue.pk)
    messages.success(
        request,
        _("Version %(number)s of %(name)s holds %(rows)s rows. Launch a run on it below.")
        % {"number": version.number, "name": version.dataset.name, "rows": version.rows},
    )
    return redirect(f"{reverse('queue', args=[queue.pk])}#versions")
