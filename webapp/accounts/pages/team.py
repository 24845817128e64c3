"""Team: members and roles, invitations, API tokens, the audit log."""

from datetime import timedelta

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.accounts import access, services
from webapp.accounts.models import (
    ApiToken,
    AuditEntry,
    Invitation,
    Membership,
    Project,
    Role,
)
from webapp.pages import page_of, show, tell
from webapp.paging import keyset
from webapp.problems import RefusedError

AUDIT_PAGE = 100
TOKEN_DAYS = (7, 30, 90, 365)


@page_of(Project.objects.all())
def team(request: HttpRequest, project: Project) -> HttpResponse:
    return _team(request, project)


def _team(request: HttpRequest, project: Project, secret: str = "", link: str = "") -> HttpResponse:
    """`secret` and `link` are shown on this one page and never again."""
    user = access.actor_of(request).user
    role = access.require(access.actor_of(request), project.pk)
    context = {
        "section": "team",
        "members": project.memberships.select_related("user").order_by("user__email"),
        "invitations": project.invitations.filter(accepted_at=None).order_by("-created_at")
        if role is Role.ADMIN
        else Invitation.objects.none(),
        "tokens": ApiToken.objects.filter(user=user, revoked_at=None).select_related("project"),
        "roles": Role.choices,
        "now": timezone.now(),
        "days": TOKEN_DAYS,
        "secret": secret,
        "link": link,
    }
    return show(request, "accounts/team.html", context)


@require_POST
@page_of(Project.objects.all(), Role.ADMIN)
def invite(request: HttpRequest, project: Project) -> HttpResponse:
    try:
        _invitation, secret = services.invite(
            project,
            request.POST.get("email", ""),
            _role(request),
            access.actor_of(request).user,
        )
    except RefusedError as refused:
        tell(request, refused)
        return redirect("team", project.pk)
    link = settings.CARAVAN_URL + reverse("invitation", args=[secret])
    return _team(request, project, link=link)


def _role(request: HttpRequest) -> Role:
    given = request.POST.get("role", "")
    if given not in Role.values:
        raise RefusedError(f"{given!r} is no role: use viewer, editor or admin.")
    return Role(given)


@require_POST
@page_of(Invitation.objects.select_related("project"), Role.ADMIN)
def withdraw(request: HttpRequest, invitation: Invitation) -> HttpResponse:
    project = invitation.project_id
    services.withdraw_invitation(invitation, access.actor_of(request).user)
    return redirect("team", project)


@require_POST
@page_of(Project.objects.all(), Role.ADMIN)
def change_member(request: HttpRequest, project: Project, member: int) -> HttpResponse:
    found = Membership.objects.filter(project=project, pk=member).first()
    if found is None:
        raise Http404
    user = access.actor_of(request).user
    try:
        if request.POST.get("remove"):
            services.remove_member(found, user)
            messages.success(request, _("%(name)s was removed.") % {"name": found.user})
        else:
            services.set_role(found, _role(request), user)
    except RefusedError as refused:
        tell(request, refused)
    if found.user_id == user.pk and request.POST.get("remove"):
        return redirect("home")
    return redirect("team", project.pk)


@require_POST
@page_of(Project.objects.all())
def create_token(request: HttpRequest, project: Project) -> HttpResponse:
    days = request.POST.get("days", "")
    try:
        if days not in ("", *map(str, TOKEN_DAYS)):
            raise RefusedError("A token lives for one of the times that are offered.")
        _token, text = services.create_token(
            access.actor_of(request).user,
            request.POST.get("name", ""),
            project=project if request.POST.get("only") else None,
            scope=request.POST.get("scope", "read"),
            expires_at=timezone.now() + timedelta(days=int(days)) if days else None,
        )
    except RefusedError as refused:
        tell(request, refused)
        return redirect("team", project.pk)
    return _team(request, project, secret=text)


@require_POST
@page_of(Project.objects.all())
def revoke_token(request: HttpRequest, project: Project, token: str) -> HttpResponse:
    user = access.actor_of(request).user
    found = ApiToken.objects.filter(user=user, pk=token).first()
    if found is None:
        raise Http404
    services.revoke_token(found, user)
    messages.success(request, _("%(name)s works no more.") % {"name": found.name})
    return redirect("team", project.pk)


@require_POST
@page_of(Project.objects.all(), Role.ADMIN)
def set_limit(request: HttpRequest, project: Project) -> HttpResponse:
    given = request.POST.get("max_running", "")
    try:
        if not given.isdecimal():
            raise RefusedError(f"{given!r} is no whole number of runs.")
        services.set_max_running(project, int(given), access.actor_of(request).user)
        messages.success(request, _("Saved."))
    except RefusedError as refused:
        tell(request, refused)
    return redirect("team", project.pk)


@page_of(Project.objects.all(), Role.ADMIN)
def audit(request: HttpRequest, project: Project) -> HttpResponse:
    entries = AuditEntry.objects.filter(project=project).select_related("user")
    if action := request.GET.get("q", "").strip():
        entries = entries.filter(action__startswith=action)
    cursor = request.GET.get("cursor")
    page = keyset(entries, ("-id",), cursor, AUDIT_PAGE)
    context = {
        "section": "team",
        "entries": page.items,
        "next": page.next_cursor,
        "q": action,
        "cursor": cursor,
    }
    return show(request, "accounts/audit.html", context)


@require_POST
@login_required
def create_project(request: HttpRequest) -> HttpResponse:
    """Whoever is admin of a project of the team may open another one."""
    user = access.actor_of(request).user
    admin = Membership.objects.filter(user=user, role=Role.ADMIN).select_related("project__team")
    member = admin.first()
    if member is None:
        raise Http404
    try:
        project = services.create_project(member.project.team, request.POST.get("name", ""), user)
    except RefusedError as refused:
        tell(request, refused)
        return redirect("home")
    request.session["project"] = project.pk
    return redirect("project_home", project.pk)
