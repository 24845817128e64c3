"""Reward schemes: their immutable versions, what changed between two, and a new one."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Count, Max
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from engine.rewards.scheme import RewardTerm
from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import services
from webapp.experiments.models import RewardScheme, RewardSchemeVersion
from webapp.experiments.services.schemes import check_definition
from webapp.pages import page_of, show
from webapp.problems import RefusedError

TERM_KINDS: list[str] = RewardTerm.model_json_schema()["properties"]["kind"]["enum"]
SCHEMES = RewardScheme.objects.select_related("project")


@page_of(Project.objects.all())
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    found = (
        RewardScheme.objects.filter(project=project)
        .annotate(
            version_count=Count("versions", distinct=True),
            newest=Max("versions__created_at"),
            run_count=Count("versions__runs", distinct=True),
        )
        .order_by("name")
    )
    return show(
        request, "experiments/reward_schemes.html", {"section": "rewards", "schemes": found}
    )


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
        "changes": _changes(against, shown) if against else None,
        "runs": shown.runs.order_by("-created_at")[:20],
    }
    return show(request, "experiments/reward_scheme.html", context)


def _chosen(
    versions: Sequence[RewardSchemeVersion], number: str | None
) -> RewardSchemeVersion | None:
    return next((item for item in versions if str(item.number) == number), None)


def _changes(before: RewardSchemeVersion, after: RewardSchemeVersion) -> list[dict[str, Any]]:
    """Weights of each term in both versions; None where a version lacks the term."""
    old = {term["kind"]: term["weight"] for term in before.definition["terms"]}
    new = {term["kind"]: term["weight"] for term in after.definition["terms"]}
    return [
        {"kind": kind, "before": old.get(kind), "after": new.get(kind)}
        for kind in dict.fromkeys([*old, *new])
    ]


@page_of(Project.objects.all(), Role.EDITOR)
def new(request: HttpRequest, project: Project) -> HttpResponse:
    terms = [{"kind": "exact_answer", "weight": "1.0"}]
    return _form(request, {"name": "", "terms": terms, "note": ""}, project, None)


@page_of(SCHEMES, Role.EDITOR)
def new_version(request: HttpRequest, scheme: RewardScheme) -> HttpResponse:
    newest = scheme.versions.order_by("-number")[0]
    values = {"name": scheme.name, "terms": newest.definition["terms"], "note": ""}
    return _form(request, values, scheme.project, scheme)


def _form(
    request: HttpRequest, values: dict[str, Any], project: Project, scheme: RewardScheme | None
) -> HttpResponse:
    errors: dict[str, str] = {}
    problem = ""
    if request.method == "POST":
        values = _given(request, scheme)
        user = access.actor_of(request).user
        try:
            definition = check_definition(_definition(values))
            version = (
                services.add_scheme_version(scheme, user, definition, values["note"])
                if scheme
                else services.create_scheme(project, user, definition, values["note"])
            )
            return redirect("reward_scheme", version.scheme_id)
        except RefusedError as refused:
            errors = {item.path: item.message for item in refused.errors}
            problem = refused.detail
    weights = {term["kind"]: term["weight"] for term in values["terms"]}
    rows = [
        {
            "kind": kind,
            "used": kind in weights,
            "weight": weights.get(kind, ""),
            "error": _error_of(kind, values["terms"], errors),
        }
        for kind in TERM_KINDS
    ]
    context = {
        "section": "rewards",
        "scheme": scheme,
        "values": values,
        "rows": rows,
        "errors": errors,
        "problem": problem,
    }
    status = 422 if problem else 200
    return show(request, "experiments/reward_scheme_form.html", context, status=status)


def _given(request: HttpRequest, scheme: RewardScheme | None) -> dict[str, Any]:
    terms = [
        {"kind": kind, "weight": request.POST.get(f"weight.{kind}", "").strip()}
        for kind in TERM_KINDS
        if request.POST.get(f"use.{kind}")
    ]
    name = scheme.name if scheme else request.POST.get("name", "").strip()
    return {"name": name, "terms": terms, "note": request.POST.get("note", "")}


def _definition(values: dict[str, Any]) -> dict[str, Any]:
    """Weights become numbers where they are; what is no number is left for the validation."""
    terms = []
    for term in values["terms"]:
        try:
            weight: Any = float(term["weight"])
        except ValueError:
            weight = term["weight"]
        terms.append({"kind": term["kind"], "weight": weight})
    return {"name": values["name"], "terms": terms}


def _error_of(kind: str, terms: list[dict[str, Any]], errors: dict[str, str]) -> str:
    for index, term in enumerate(terms):
        if term["kind"] == kind:
            return errors.get(f"terms.{index}.weight", "")
    return ""
