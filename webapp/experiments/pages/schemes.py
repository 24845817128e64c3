"""Reward schemes: their immutable versions, what changed between two, and a new one."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from engine.rewards.presets import PRESETS
from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import lists, scheme_form, services
from webapp.experiments.models import Job, RewardScheme, RewardSchemeVersion
from webapp.experiments.pages import backtests
from webapp.experiments.services.backtests import KIND
from webapp.experiments.services.schemes import check_definition
from webapp.pages import page_of, show
from webapp.problems import RefusedError

SCHEMES = RewardScheme.objects.select_related("project")


@page_of(Project.objects.all())
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    """`?q=` is a part of the name."""
    q, cursor = request.GET.get("q", ""), request.GET.get("cursor")
    actor = access.actor_of(request)
    context = {
        "section": "rewards",
        "page": lists.list_schemes(actor, project.pk, q, cursor),
        "q": q,
        "cursor": cursor,
    }
    template = "experiments/reward_schemes.html"
    return show(request, template, context, "experiments/reward_schemes_table.html")


@page_of(SCHEMES)
def one(request: HttpRequest, scheme: RewardScheme) -> HttpResponse:
    """`?version=` shows one, `?against=` the difference from another."""
    versions = list(
        scheme.versions.select_related("created_by")
        .annotate(run_count=Count("runs"))
        .order_by("-number")
    )
    if not versions:
        raise Http404
    shown = _chosen(versions, request.GET.get("version")) or versions[0]
    against = _chosen(versions, request.GET.get("against"))
    context = {
        "section": "rewards",
        "scheme": scheme,
        "versions": versions,
        "shown": shown,
        "against": against,
        "changes": _changes(against.definition, shown.definition) if against else None,
        "values": scheme_form.flat(shown.definition),
        "runs": shown.runs.order_by("-created_at")[:20],
        "backtests": Job.objects.filter(
            project=scheme.project_id, kind=KIND, subject=shown.digest
        ).order_by("-created_at")[:20],
    }
    return show(request, "experiments/reward_scheme.html", context)


def _chosen(
    versions: Sequence[RewardSchemeVersion], number: str | None
) -> RewardSchemeVersion | None:
    return next((item for item in versions if str(item.number) == number), None)


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """Each value of both definitions; None where one lacks it."""
    old, new = scheme_form.flat(before), scheme_form.flat(after)
    return [
        {"name": name, "before": old.get(name), "after": new.get(name)}
        for name in dict.fromkeys([*old, *new])
    ]


@page_of(Project.objects.all(), Role.EDITOR)
def new(request: HttpRequest, project: Project) -> HttpResponse:
    """`?preset=` names a scheme to start from."""
    chosen = PRESETS.get(request.GET.get("preset", ""))
    definition = {"name": "", "terms": [{"kind": "exact_answer", "weight": 1.0}]}
    if chosen is not None:
        definition = chosen[0].model_dump(mode="json")
    return _form(request, definition, project, None)


@page_of(SCHEMES, Role.EDITOR)
def new_version(request: HttpRequest, scheme: RewardScheme) -> HttpResponse:
    newest = scheme.versions.order_by("-number")[0]
    return _form(request, newest.definition, scheme.project, scheme)


def _form(
    request: HttpRequest, definition: dict[str, Any], project: Project, scheme: RewardScheme | None
) -> HttpResponse:
    errors: dict[str, str] = {}
    problem = note = ""
    newest = scheme.versions.order_by("-number").first() if scheme else None
    meanwhile = None  # what a version that was saved meanwhile and this one say
    if request.method == "POST":
        name = scheme.name if scheme else request.POST.get("name", "").strip()
        definition, note = scheme_form.posted(request.POST, name), request.POST.get("note", "")
        user = access.actor_of(request).user
        try:
            checked = check_definition(definition)
            if request.POST.get("then") == "backtest":
                return backtests.form(request, project, checked)
            version = (
                services.add_scheme_version(scheme, user, checked, note, _based_on(request))
                if scheme
                else services.create_scheme(project, user, checked, note)
            )
            return redirect("reward_scheme", version.scheme_id)
        except RefusedError as refused:
            errors = {item.path: item.message for item in refused.errors}
            problem = refused.detail
            if newest is not None and _based_on(request) not in (None, newest.number):
                meanwhile = _changes(newest.definition, definition)
    context = {
        "section": "rewards",
        "scheme": scheme,
        "name": definition["name"],
        "note": note,
        "rows": scheme_form.term_rows(definition, errors),
        "curriculum": scheme_form.curriculum_fields(definition, errors),
        "presets": [] if scheme else [(name, purpose) for name, (_, purpose) in PRESETS.items()],
        "errors": errors,
        "problem": problem,
        "newest": newest,
        "meanwhile": meanwhile,
    }
    status = (409 if meanwhile else 422) if problem else 200
    return show(request, "experiments/reward_scheme_form.html", context, status=status)


def _based_on(request: HttpRequest) -> int | None:
    given = request.POST.get("based_on", "")
    return int(given) if given.isdecimal() else None
