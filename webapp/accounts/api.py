"""REST of people: who I am, projects, members, invitations, tokens, the audit log."""

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from django.urls import reverse
from ninja import Router, Schema, Status
from pydantic import AwareDatetime

from webapp.accounts import access, services
from webapp.accounts.models import ApiToken, AuditEntry, Invitation, Membership, Project, Role, Team
from webapp.paging import keyset
from webapp.problems import RefusedError
from webapp.rest import idempotency
from webapp.rest.schemas import Cursor, Label, Limit, Person, ProjectRef

router = Router(tags=["team"])
RoleName = Literal["viewer", "editor", "admin"]


class MyProject(ProjectRef):
    role: RoleName


class Me(Person):
    projects: list[MyProject]
    token: str | None  # name of the token that asks


@router.get("/me", response=Me)
def me(request: HttpRequest) -> dict[str, Any]:
    """Who asks, and their role in each project."""
    actor = access.actor_of(request)
    roles = actor.roles()
    projects = Project.objects.filter(pk__in=roles).order_by("created_at")
    return {
        "id": actor.user.pk,
        "email": actor.user.email,
        "display_name": actor.user.display_name,
        "projects": [{"id": p.pk, "name": p.name, "role": roles[p.pk]} for p in projects],
        "token": actor.token and actor.token.name,
    }


class ProjectOut(ProjectRef):
    team: ProjectRef
    max_running: int
    created_at: datetime


class ProjectIn(Schema):
    name: Label


class ProjectPatch(Schema):
    max_running: int


@router.get("/projects", response=list[ProjectOut])
def list_projects(request: HttpRequest) -> Any:
    mine = access.visible(Project.objects.select_related("team"), access.actor_of(request))
    return mine.order_by("created_at", "pk")


@router.post("/projects", response={201: ProjectOut})
def create_project(request: HttpRequest, data: ProjectIn) -> Any:
    """A new project of the team; its creator, an admin of another one, becomes its admin."""
    actor = access.actor_of(request)
    home = access.default_project(actor)
    admin_of = next((pk for pk, role in actor.roles().items() if role is Role.ADMIN), home.pk)
    access.require(actor, admin_of, Role.ADMIN)
    if actor.token is not None and actor.token.project_id is not None:
        raise RefusedError("A token of one project cannot create another.", status=403)
    team = Team.objects.get(projects=admin_of)
    return Status(201, services.create_project(team, data.name, actor.user))


@router.get("/projects/{project_id}", response=ProjectOut)
def get_project(request: HttpRequest, project_id: str) -> Any:
    return _project(request, project_id)


@router.patch("/projects/{project_id}", response=ProjectOut)
def edit_project(request: HttpRequest, project_id: str, data: ProjectPatch) -> Any:
    """How many of the project's runs may work at the same time."""
    project = _project(request, project_id, Role.ADMIN)
    return services.set_max_running(project, data.max_running, access.actor_of(request).user)


class MemberOut(Schema):
    user: Person
    role: RoleName
    created_at: datetime


class MemberPatch(Schema):
    role: RoleName


@router.get("/projects/{project_id}/members", response=list[MemberOut])
def list_members(request: HttpRequest, project_id: str) -> Any:
    project = _project(request, project_id)
    return project.memberships.select_related("user").order_by("created_at", "pk")


@router.patch("/projects/{project_id}/members/{user_id}", response=MemberOut)
def change_member(request: HttpRequest, project_id: str, user_id: int, data: MemberPatch) -> Any:
    member = _member(request, project_id, user_id)
    return services.set_role(member, Role(data.role), access.actor_of(request).user)


@router.delete("/projects/{project_id}/members/{user_id}", response={204: None})
def remove_member(request: HttpRequest, project_id: str, user_id: int) -> Any:
    services.remove_member(_member(request, project_id, user_id), access.actor_of(request).user)
    return Status(204, None)


class InvitationIn(Schema):
    email: str
    role: RoleName = "editor"


class InvitationOut(Schema):
    id: str
    email: str
    role: RoleName
    created_at: datetime
    expires_at: datetime
    accepted_at: datetime | None


class NewInvitation(InvitationOut):
    link: str  # shown once


@router.get("/projects/{project_id}/invitations", response=list[InvitationOut])
def list_invitations(request: HttpRequest, project_id: str) -> Any:
    return _project(request, project_id, Role.ADMIN).invitations.order_by("-created_at")


@router.post("/projects/{project_id}/invitations", response={201: NewInvitation})
def invite(request: HttpRequest, project_id: str, data: InvitationIn) -> Any:
    """Invite somebody by a one-time link, which is shown only now."""
    project = _project(request, project_id, Role.ADMIN)
    by = access.actor_of(request).user
    invitation, secret = services.invite(project, data.email, Role(data.role), by)
    link = request.build_absolute_uri(reverse("invitation", args=[secret]))
    idempotency.shows_secret(request, invitation.pk, "invite the person again with a new key.")
    shown = InvitationOut.from_orm(invitation).dict()
    return Status(201, {**shown, "link": link})


@router.delete("/invitations/{invitation_id}", response={204: None})
def withdraw_invitation(request: HttpRequest, invitation_id: str) -> Any:
    actor = access.actor_of(request)
    rows = Invitation.objects.select_related("project")
    services.withdraw_invitation(access.get(rows, invitation_id, actor, Role.ADMIN), actor.user)
    return Status(204, None)


class TokenIn(Schema):
    name: str
    project: str | None = None
    scope: Literal["read", "write"] = "write"
    expires_at: AwareDatetime | None = None


class TokenOut(Schema):
    id: str
    name: str
    prefix: str
    project_id: str | None
    scope: str
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None


class NewToken(TokenOut):
    token: str  # shown once


@router.get("/tokens", response=list[TokenOut])
def list_tokens(request: HttpRequest) -> Any:
    """My tokens; a token sees those of its own project."""
    actor = access.actor_of(request)
    tokens = ApiToken.objects.filter(user=actor.user).order_by("-created_at")
    if actor.token is not None and actor.token.project_id is not None:
        tokens = tokens.filter(project_id=actor.token.project_id)
    return tokens


@router.post("/tokens", response={201: NewToken})
def create_token(request: HttpRequest, data: TokenIn) -> Any:
    """A token for me. It is shown only now. A token cannot make one that may do more than it."""
    actor = access.actor_of(request)
    project = access.default_project(actor, data.project) if data.project else None
    if actor.token is not None:
        wider = actor.token.project_id is not None and project is None
        end = actor.token.expires_at
        outlives = end is not None and (data.expires_at is None or data.expires_at > end)
        if wider or outlives or not actor.may_write:
            raise RefusedError("This token cannot make a token that may do more.", status=403)
    token, text = services.create_token(
        actor.user, data.name, project=project, scope=data.scope, expires_at=data.expires_at
    )
    idempotency.shows_secret(
        request, token.pk, f"DELETE /api/v1/tokens/{token.pk} and make another with a new key."
    )
    return Status(201, {**TokenOut.from_orm(token).dict(), "token": text})


@router.delete("/tokens/{token_id}", response={204: None})
def revoke_token(request: HttpRequest, token_id: str) -> Any:
    actor = access.actor_of(request)
    if not actor.may_write:
        raise RefusedError("This token can only read.", status=403)
    services.revoke_token(access.own_token(actor, token_id), actor.user)
    return Status(204, None)


class AuditOut(Schema):
    id: int
    at: datetime
    user: Person | None
    action: str
    target: str
    detail: dict[str, Any]
    request_id: str


class AuditPage(Schema):
    items: list[AuditOut]
    next_cursor: str | None


@router.get("/projects/{project_id}/audit", response=AuditPage)
def audit(request: HttpRequest, project_id: str, cursor: Cursor = None, limit: Limit = 50) -> Any:
    """Who changed what, the newest first."""
    project = _project(request, project_id, Role.ADMIN)
    entries = AuditEntry.objects.filter(project=project).select_related("user")
    return keyset(entries, ("-id",), cursor, limit)


def _project(request: HttpRequest, project_id: str, role: Role = Role.VIEWER) -> Project:
    return access.get(
        Project.objects.select_related("team"), project_id, access.actor_of(request), role
    )


def _member(request: HttpRequest, project_id: str, user_id: int) -> Membership:
    project = _project(request, project_id, Role.ADMIN)
    rows = Membership.objects.select_related("user", "project")
    return access.found_or_404(rows.filter(project=project, user_id=user_id).first())
