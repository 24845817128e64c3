"""Saved views: the address of a list under a name, for the whole project or for one person.

A page takes part by `{% include "components/saved_views.html" with page="runs" %}` and, so that it
opens with a person's default, by `default_view`.
"""

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from webapp.accounts import access
from webapp.accounts.access import Actor
from webapp.accounts.audit import record
from webapp.accounts.models import DefaultView, Project, Role, SavedView, User
from webapp.problems import invalid_field

PAGES = ("runs", "compare", "trajectories", "queues", "search")
MAX_QUERY = 4000  # characters
MAX_OWN = 100  # views of a page that one person may keep
PASSING = ("cursor", "view")  # parameters that are no part of a view


@dataclass(frozen=True)
class Here:
    """The views of a page as a person finds them. `opened` is the one that the address names."""

    views: list[SavedView]
    opened: SavedView | None
    default: str  # id of the view with which the page opens; empty: none
    query: str  # of the page now
    changed: bool  # the page shows something else than the opened view
    may_edit: bool  # the opened view


def visible_views(actor: Actor) -> QuerySet[SavedView]:
    """Views of the actor's projects: shared ones and the actor's own, by name."""
    found = access.visible(SavedView.objects.select_related("project", "owner"), actor)
    return found.filter(Q(shared=True) | Q(owner=actor.user)).order_by("name", "pk")


def here(request: HttpRequest, project: Project, page: str) -> Here:
    actor = access.actor_of(request)
    views = list(visible_views(actor).filter(project=project, page=page))
    opened = next((view for view in views if view.pk == request.GET.get("view")), None)
    query = _plain(request.META.get("QUERY_STRING", ""))
    return Here(
        views=views,
        opened=opened,
        default=_defaults(actor.user, project, page).values_list("view", flat=True).first() or "",
        query=query,
        changed=opened is not None and query != opened.query,
        may_edit=opened is not None and may_edit(opened, actor),
    )


def default_view(request: HttpRequest, project: Project, page: str) -> HttpResponse | None:
    """A redirect to the person's default view, if the page was opened without any parameter."""
    if request.GET or request.method != "GET" or getattr(request, "htmx", False):
        return None
    user = access.actor_of(request).user
    found = _defaults(user, project, page).select_related("view").first()
    if found is None or not (found.view.shared or found.view.owner_id == user.pk):
        return None
    return redirect(address(request.path, found.view))


def address(path: str, view: SavedView) -> str:
    """Where a view is opened."""
    return f"{path}?{view.query}{'&' if view.query else ''}view={view.pk}"


def may_edit(view: SavedView, actor: Actor) -> bool:
    """Shared views belong to all editors, the others to their owner."""
    if not view.shared:
        return view.owner_id == actor.user.pk
    role = actor.role_in(view.project_id)
    return role is not None and role.rank >= Role.EDITOR.rank


def clean_query(query: str) -> str:
    """Without what only pages through a list. Raises RefusedError where it is too long."""
    cleaned = _plain(query)
    if len(cleaned) > MAX_QUERY:
        raise invalid_field("query", f"A view keeps an address of up to {MAX_QUERY} characters.")
    return cleaned


@transaction.atomic
def save_view(
    project: Project, user: User, *, page: str, name: str, query: str, shared: bool
) -> SavedView:
    """A new view. Raises RefusedError: a page that has none, a name that is taken."""
    if page not in PAGES:
        raise invalid_field("page", f"{page!r} has no views: use {', '.join(PAGES)}.")
    own = SavedView.objects.filter(project=project, page=page, owner=user)
    if own.count() >= MAX_OWN:
        raise invalid_field("name", f"You have {MAX_OWN} views of this page: delete one first.")
    view = SavedView(
        project=project, page=page, query=clean_query(query), shared=shared, owner=user
    )
    _name(view, name)
    if shared:
        record("view.save", view.pk, user=user, project=project, name=view.name)
    return view


@transaction.atomic
def change_view(
    view_id: str,
    user: User,
    *,
    name: str | None = None,
    query: str | None = None,
    shared: bool | None = None,
) -> SavedView:
    """Rename it, let it show something else, or share it. Sharing an own view keeps its owner."""
    view = SavedView.objects.select_for_update(no_key=True).get(pk=view_id)
    was_shared = view.shared
    if query is not None:
        view.query = clean_query(query)
    if shared is not None and shared != view.shared:
        if not shared and view.owner_id != user.pk:
            raise invalid_field("shared", "Only who saved a view can take it back from the team.")
        view.shared = shared
    _name(view, view.name if name is None else name)
    if view.shared or was_shared:
        record("view.change", view.pk, user=user, project=view.project, name=view.name)
    return view


@transaction.atomic
def delete_view(view_id: str, user: User) -> None:
    view = SavedView.objects.select_related("project").get(pk=view_id)
    if view.shared:
        record("view.delete", view.pk, user=user, project=view.project, name=view.name)
    view.delete()


@transaction.atomic
def set_default(view: SavedView, user: User, default: bool) -> None:
    """Let the page open with this view for this person, or no longer."""
    if default:
        DefaultView.objects.update_or_create(
            user=user, project_id=view.project_id, page=view.page, defaults={"view": view}
        )
    else:
        DefaultView.objects.filter(user=user, view=view).delete()


def _plain(query: str) -> str:
    pairs = parse_qsl(query.removeprefix("?"))
    return urlencode([(name, value) for name, value in pairs if name not in PASSING])


def _defaults(user: User, project: Project, page: str) -> QuerySet[DefaultView]:
    return DefaultView.objects.filter(user=user, project=project, page=page)


def _name(view: SavedView, name: str) -> None:
    """Store it under a name that is free."""
    view.name = name.strip()
    if not 1 <= len(view.name) <= 120 or "\0" in view.name:
        raise invalid_field("name", f"A view's name has 1 to 120 characters, not {len(view.name)}.")
    try:
        with transaction.atomic():
            view.save()
    except IntegrityError:
        raise invalid_field("name", f"There is a view {view.name!r} already.") from None
