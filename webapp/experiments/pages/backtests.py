"""Backtests: what to grade, what came of it, and on from there to a version and a launch."""

import json
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from engine.rewards.scheme import RewardScheme as Definition
from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import backtest_view, lists, scheme_form, services
from webapp.experiments.models import (
    DatasetVersion,
    Job,
    RewardScheme,
    RewardSchemeVersion,
    Run,
)
from webapp.experiments.services.backtests import KIND, Asked
from webapp.experiments.services.schemes import check_definition
from webapp.pages import page_of, show, tell, whole_number
from webapp.problems import RefusedError
from webapp.reviews.models import Trajectory

JOBS = Job.objects.filter(kind=KIND).select_related("project", "created_by")
OFFERED = 50
PURPOSES = ("train", "evaluate", "demonstration")


def schemes_of(project: Project) -> QuerySet[RewardSchemeVersion]:
    return RewardSchemeVersion.objects.filter(scheme__project=project).select_related("scheme")


def datasets_of(project: Project) -> QuerySet[DatasetVersion]:
    return DatasetVersion.objects.filter(dataset__project=project).select_related("dataset")


@page_of(Project.objects.all(), Role.EDITOR)
def new(request: HttpRequest, project: Project) -> HttpResponse:
    """`?version=` names a stored version; POST brings the definition and what to grade."""
    if request.method != "POST":
        version = access.get(
            schemes_of(project),
            request.GET.get("version", ""),
            access.actor_of(request),
        )
        try:
            return form(request, project, check_definition(version.definition))
        except RefusedError as refused:
            tell(request, refused)
            return redirect("reward_scheme", version.scheme_id)
    try:
        given = json.loads(request.POST.get("definition", ""))
    except ValueError:
        raise Http404 from None
    definition = check_definition(given)
    try:
        return redirect("job", _start(request, project, definition).pk)
    except RefusedError as refused:
        return form(request, project, definition, refused)


def form(
    request: HttpRequest,
    project: Project,
    definition: Definition,
    refused: RefusedError | None = None,
) -> HttpResponse:
    """What a definition, stored or not, shall be tried on."""
    stored = Trajectory.objects.filter(run=OuterRef("pk"))
    actor, post = access.actor_of(request), request.POST
    datasets = lists.list_dataset_versions(actor, project.pk, kind="trajectories", limit=OFFERED)
    schemes = lists.list_scheme_versions(actor, project.pk, limit=OFFERED)
    chosen = {name: [pk] if (pk := post.get(name)) else [] for name in ("dataset", "against")}
    plain = definition.model_dump(mode="json")
    context = {
        "section": "rewards",
        "definition": definition,
        "definition_text": json.dumps(plain),
        "values": scheme_form.flat(plain),
        "runs": Run.objects.filter(Exists(stored), project=project, archived_at=None)
        .select_related("experiment")
        .order_by("-created_at")[:OFFERED],
        "datasets": lists.with_chosen(datasets, datasets_of(project), chosen["dataset"]),
        "more_datasets": datasets.next_cursor is not None,
        "versions": lists.with_chosen(schemes, schemes_of(project), chosen["against"]),
        "more_versions": schemes.next_cursor is not None,
        "purposes": PURPOSES,
        "given": post,
        "chosen": post.getlist("runs"),
        "refused": refused,
    }
    status = refused.status if refused else 200
    return show(request, "experiments/backtest_form.html", context, status=status)


def _start(request: HttpRequest, project: Project, definition: Definition) -> Job:
    actor, post = access.actor_of(request), request.POST
    runs = Run.objects.filter(project=project)
    datasets, stored = datasets_of(project), schemes_of(project)
    dataset, against = post.get("dataset"), post.get("against")
    newest = whole_number("newest", post.get("newest") or "0")
    purpose = post.get("purpose")
    return services.start_backtest(
        project,
        actor.user,
        definition,
        runs=[access.get(runs, pk, actor) for pk in dict.fromkeys(post.getlist("runs"))],
        dataset=access.get(datasets, dataset, actor) if dataset else None,
        against=access.get(stored, against, actor) if against else None,
        filter={"purpose": purpose} if purpose in PURPOSES else {},
        newest=newest if newest > 0 else None,
    )


@require_safe
@page_of(JOBS)
def one(request: HttpRequest, job: Job) -> HttpResponse:
    if job.result is None:
        return redirect("job", job.pk)
    asked = Asked.model_validate(job.spec)
    context: dict[str, Any] = {
        "section": "rewards",
        "job": job,
        "asked": asked,
        "found": job.result,
        "name": asked.definition["name"],
        "values": scheme_form.flat(asked.definition),
        "histogram": backtest_view.histogram(job.result),
        "gainers": backtest_view.changes(job, "gainers"),
        "losers": backtest_view.changes(job, "losers"),
        "version": _version(job, asked),
    }
    return show(request, "experiments/backtest.html", context)


def _version(job: Job, asked: Asked) -> RewardSchemeVersion | None:
    """The stored version with this definition, once there is one."""
    return (
        RewardSchemeVersion.objects.filter(
            scheme__project=job.project_id,
            scheme__name__iexact=asked.definition["name"],
            digest=job.subject,
        )
        .select_related("scheme")
        .order_by("-number")
        .first()
    )


@require_POST
@page_of(JOBS, Role.EDITOR)
def save(request: HttpRequest, job: Job) -> HttpResponse:
    """Store the definition that was tried, and go on to launch with it where that was asked."""
    asked = Asked.model_validate(job.spec)
    version = _version(job, asked)
    try:
        version = version or _saved(request, job, check_definition(asked.definition))
    except RefusedError as refused:
        tell(request, refused)
        return redirect("backtest", job.pk)
    if request.POST.get("then") == "launch":
        return redirect(f"{reverse('launch', args=[job.project_id])}?reward={version.pk}")
    return redirect("reward_scheme", version.scheme_id)


def _saved(request: HttpRequest, job: Job, definition: Definition) -> RewardSchemeVersion:
    user = access.actor_of(request).user
    note = request.POST.get("note", "").strip() or _("Saved from backtest %s") % job.pk
    scheme = RewardScheme.objects.filter(
        project=job.project_id, name__iexact=definition.name
    ).first()
    if scheme is None:
        return services.create_scheme(job.project, user, definition, note)
    return services.add_scheme_version(scheme, user, definition, note)
