"""What all pages share: who may open them, whole page or fragment, and what went wrong in words."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import DataError
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _

from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.problems import RefusedError, invalid_field

M = TypeVar("M", bound=Model)
View = Callable[..., HttpResponse]


def page_of(queryset: QuerySet[Any], role: Role = Role.VIEWER) -> Callable[[View], View]:
    """The view takes the object whose id is in the URL, once the person's role in it suffices."""

    def decorate(view: View) -> View:
        @wraps(view)
        def checked(request: HttpRequest, pk: str, **kwargs: Any) -> HttpResponse:
            found = access.get(queryset, pk, access.actor_of(request), role)
            project = project_of(found)
            request.page_project = project  # type: ignore[attr-defined]
            if request.session.get("project") != project.pk:
                request.session["project"] = project.pk
            response = view(request, found, **kwargs)
            patch_vary_headers(response, ["HX-Request", "Cookie"])
            return response

        return cast(View, login_required(checked))

    return decorate


class Refusals:
    """Middleware: what no form on a page asks for, such as an address that somebody wrote, is
    refused with a page that says why."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, DataError | UnicodeEncodeError):
            error = RefusedError(
                _("A value cannot be stored: a text with a NUL or half a character.")
            )
        if not isinstance(error, RefusedError):
            return None
        return render(request, "refused.html", {"refused": error}, status=error.status)


def project_of(found: Model) -> Project:
    for step in access.PROJECT_OF[found._meta.label].split("__"):
        found = found if step == "pk" else getattr(found, step)
    return cast(Project, found)


def is_fragment(request: HttpRequest) -> bool:
    """htmx asked for a part of the page; a person who opens the same URL gets the whole page."""
    htmx: Any = getattr(request, "htmx", None)
    return bool(htmx) and not htmx.history_restore_request


def show(
    request: HttpRequest,
    template: str,
    context: dict[str, Any],
    fragment: str | None = None,
    status: int = 200,
) -> HttpResponse:
    name = fragment if fragment and is_fragment(request) else template
    return render(request, name, context, status=status)


def tell(request: HttpRequest, refused: RefusedError) -> None:
    """Show what was refused on the next page."""
    messages.error(request, refused.detail)


def field_errors(refused: RefusedError) -> dict[str, str]:
    """Messages by field name, for forms; what belongs to no field is under `form`."""
    found = {problem.path or "form": problem.message for problem in refused.errors}
    return found or {"form": refused.detail}


def whole_number(field: str, text: str) -> int:
    """What a person wrote into a field. Raises RefusedError."""
    try:
        return int(text)
    except ValueError:
        raise invalid_field(field, f"{text[:20]!r} is no whole number.") from None


def frame(request: HttpRequest) -> dict[str, Any]:
    """Context of the navigation: the project of the page, or the one last opened."""
    if not getattr(request, "user", None) or not request.user.is_authenticated:
        return {}
    actor = access.actor_of(request)
    project = getattr(request, "page_project", None)
    if project is None:
        try:
            project = last_project(request)
        except Http404:
            project = None
    role = actor.role_in(project.pk) if project else None
    return {
        "project": project,
        "projects": access.visible(Project.objects.order_by("name"), actor),
        "role": role,
        "can_edit": role is not None and role.rank >= Role.EDITOR.rank,
        "is_admin": role is Role.ADMIN,
        "theme_choices": [("auto", _("as the system")), ("light", _("light")), ("dark", _("dark"))],
    }


def last_project(request: HttpRequest) -> Project:
    """The project that this session opened last, or the person's oldest one. Raises Http404."""
    actor = access.actor_of(request)
    wanted = request.session.get("project")
    if wanted:
        try:
            return access.default_project(actor, wanted)
        except Http404:
            del request.session["project"]
    return access.default_project(actor)
