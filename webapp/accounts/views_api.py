"""REST of saved views: those of a project that I see, and what can be done with them."""

from datetime import datetime
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from ninja import Router, Schema, Status

from webapp.accounts import access, saved_views
from webapp.accounts.models import DefaultView, Role, SavedView
from webapp.rest.schemas import Label, Person, ProjectRef

router = Router(tags=["saved views"])


class ViewOut(Schema):
    """`query` is the query string of the page, `runs` for example: q, sort, columns, ..."""

    id: str
    project: ProjectRef
    page: str
    name: str
    query: str
    shared: bool
    owner: Person | None
    is_default: bool  # mine
    created_at: datetime


class ViewIn(Schema):
    project: str | None = None
    page: str
    name: Label
    query: str = ""
    shared: bool = False
    is_default: bool = False


class ViewPatch(Schema):
    name: Label | None = None
    query: str | None = None
    shared: bool | None = None
    is_default: bool | None = None


@router.get("/saved-views", response=list[ViewOut])
def list_views(request: HttpRequest, project: str | None = None, page: str | None = None) -> Any:
    """Shared views of my projects and my own ones, by name."""
    actor = access.actor_of(request)
    found = saved_views.visible_views(actor)
    if project:
        found = found.filter(project=access.default_project(actor, project))
    if page:
        found = found.filter(page=page)
    defaults = set(DefaultView.objects.filter(user=actor.user).values_list("view", flat=True))
    return [_out(view, view.pk in defaults) for view in found]


@router.post("/saved-views", response={201: ViewOut})
def save_view(request: HttpRequest, data: ViewIn) -> Any:
    """Everybody who may write keeps views of their own; a shared one needs an editor."""
    actor = access.actor_of(request)
    role = Role.EDITOR if data.shared else Role.VIEWER
    project = access.default_project(actor, data.project, role)
    _may_write(actor)
    view = saved_views.save_view(
        project,
        actor.user,
        page=data.page,
        name=data.name,
        query=data.query,
        shared=data.shared,
    )
    if data.is_default:
        saved_views.set_default(view, actor.user, True)
    return Status(201, _out(view, data.is_default))


@router.patch("/saved-views/{view_id}", response=ViewOut)
def change_view(request: HttpRequest, view_id: str, data: ViewPatch) -> Any:
    actor = access.actor_of(request)
    view = _view(request, view_id)
    changes = {
        name: value
        for name, value in data.dict(exclude_unset=True).items()
        if name != "is_default" and value is not None
    }
    if changes:
        _check_may_edit(view, actor, sharing=bool(data.shared))
        view = saved_views.change_view(view.pk, actor.user, **changes)
    if data.is_default is not None:
        saved_views.set_default(view, actor.user, data.is_default)
    return _out(view, view.defaults.filter(user=actor.user).exists())


@router.delete("/saved-views/{view_id}", response={204: None})
def delete_view(request: HttpRequest, view_id: str) -> Any:
    actor = access.actor_of(request)
    view = _view(request, view_id)
    _check_may_edit(view, actor)
    saved_views.delete_view(view.pk, actor.user)
    return Status(204, None)


def _view(request: HttpRequest, view_id: str) -> SavedView:
    """That exists and that the caller sees: another member's own view is not there."""
    actor = access.actor_of(request)
    _may_write(actor)
    return access.get(saved_views.visible_views(actor), view_id, actor)


def _may_write(actor: access.Actor) -> None:
    if not actor.may_write:
        raise PermissionDenied("This token can only read.")


def _check_may_edit(view: SavedView, actor: access.Actor, sharing: bool = False) -> None:
    if not saved_views.may_edit(view, actor):
        raise PermissionDenied("This view is the team's: an editor can change it.")
    if sharing:
        access.require(actor, view.project_id, Role.EDITOR)


def _out(view: SavedView, is_default: bool) -> dict[str, Any]:
    fields = {name: getattr(view, name) for name in ViewOut.model_fields if hasattr(view, name)}
    return {**fields, "is_default": is_default}
