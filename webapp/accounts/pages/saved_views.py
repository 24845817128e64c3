"""What the menu of saved views sends: save, update, rename, share, make default, delete."""

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.accounts import access, saved_views
from webapp.accounts.models import Project, Role, SavedView
from webapp.pages import page_of, tell
from webapp.problems import RefusedError


@require_POST
@page_of(Project.objects.all())
def save(request: HttpRequest, project: Project) -> HttpResponse:
    """Everybody keeps views of their own; one for the team needs an editor."""
    actor, form = access.actor_of(request), request.POST
    shared = "shared" in form
    if shared:
        access.require(actor, project.pk, Role.EDITOR)
    try:
        view = saved_views.save_view(
            project,
            actor.user,
            page=form.get("page", ""),
            name=form.get("name", ""),
            query=form.get("query", ""),
            shared=shared,
        )
    except RefusedError as refused:
        tell(request, refused)
        return redirect(f"{_back(request)}?{form.get('query', '')}")
    if "default" in form:
        saved_views.set_default(view, actor.user, True)
    messages.success(request, _("The view is saved."))
    return redirect(saved_views.address(_back(request), view))


@require_POST
@page_of(SavedView.objects.select_related("project"))
def change(request: HttpRequest, view: SavedView) -> HttpResponse:
    actor, form = access.actor_of(request), request.POST
    if not view.shared and view.owner_id != actor.user.pk:
        raise Http404
    action = form.get("action", "")
    try:
        if action in ("default", "no_default"):
            saved_views.set_default(view, actor.user, action == "default")
        elif not saved_views.may_edit(view, actor):
            raise PermissionDenied("This view is the team's: an editor can change it.")
        elif action == "delete":
            saved_views.delete_view(view.pk, actor.user)
            messages.success(request, _("The view is deleted."))
            return redirect(f"{_back(request)}?{view.query}")
        elif action == "update":
            view = saved_views.change_view(view.pk, actor.user, query=form.get("query", ""))
        elif action == "rename":
            view = saved_views.change_view(view.pk, actor.user, name=form.get("name", ""))
        elif action in ("share", "unshare"):
            access.require(actor, view.project_id, Role.EDITOR)
            view = saved_views.change_view(view.pk, actor.user, shared=action == "share")
        else:
            raise Http404
    except RefusedError as refused:
        tell(request, refused)
    return redirect(saved_views.address(_back(request), view))


def _back(request: HttpRequest) -> str:
    """The path of the page that the menu was on."""
    given = request.POST.get("back", "")
    local = url_has_allowed_host_and_scheme(given, allowed_hosts=None)
    return given.partition("?")[0] if local and given.startswith("/") else "/"
