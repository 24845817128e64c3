"""Who may see and do what. An outsider gets 404, a member without the role 403."""

from dataclasses import dataclass, replace
from typing import TypeVar, cast

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest

from webapp.accounts.models import ApiToken, Membership, Project, Role, User

M = TypeVar("M", bound=Model)

# From each model that people reach by id, the way to its project.
PROJECT_OF = {
    "accounts.Project": "pk",
    "accounts.Invitation": "project",
    "accounts.Webhook": "project",
    "accounts.SavedView": "project",
    "experiments.Experiment": "project",
    "experiments.Run": "project",
    "experiments.Job": "project",
    "experiments.Preset": "project",
    "experiments.Attempt": "run__project",
    "experiments.Checkpoint": "run__project",
    "experiments.RewardScheme": "project",
    "experiments.RewardSchemeVersion": "scheme__project",
    "experiments.Dataset": "project",
    "experiments.DatasetVersion": "dataset__project",
    "monitoring.RunEvent": "run__project",
    "reviews.Trajectory": "project",
    "reviews.Comment": "project",
    "reviews.Queue": "project",
    "reviews.QueueItem": "queue__project",
    "sweeps.Sweep": "project",
    "reviews.Notice": "project",
}


@dataclass(frozen=True)
class Actor:
    """Who asks: a signed-in user, or a token that may be narrower than its user."""

    user: User
    token: ApiToken | None = None
    held: dict[str, Role] | None = None  # the roles, read already; None: they are read each time

    @property
    def may_write(self) -> bool:
        return self.token is None or self.token.scope == "write"

    def roles(self) -> dict[str, Role]:
        """The role in each project, by project id."""
        if self.held is not None:
            return self.held
        found = Membership.objects.filter(user=self.user).values_list("project_id", "role")
        only = self.token.project_id if self.token else None
        return {project: Role(role) for project, role in found if only in (None, project)}

    def role_in(self, project_id: str) -> Role | None:
        if self.held is not None:
            return self.held.get(project_id)
        if self.token and self.token.project_id not in (None, project_id):
            return None
        member = Membership.objects.filter(user=self.user, project_id=project_id).first()
        return Role(member.role) if member else None


def actor_of(request: HttpRequest) -> Actor:
    """The actor of an authenticated request: the API's authentication has set it, or the session.

    Raises PermissionDenied where nobody is signed in; pages ask for a login before they come here.
    """
    found = getattr(request, "actor", None)
    if found is None:
        if isinstance(request.user, AnonymousUser):
            raise PermissionDenied("Sign in first.")
        found = for_request(Actor(request.user), request)
        request.actor = found  # type: ignore[attr-defined]
    return cast(Actor, found)


def for_request(actor: Actor, request: HttpRequest) -> Actor:
    """The actor with the roles read once, where the request does not change them."""
    return replace(actor, held=actor.roles()) if request.method in ("GET", "HEAD") else actor


def visible(queryset: QuerySet[M], actor: Actor) -> QuerySet[M]:
    """The part of a queryset that lies in the actor's projects."""
    way = PROJECT_OF[queryset.model._meta.label]
    return queryset.filter(**{f"{way}__in": list(actor.roles())})


def require(actor: Actor, project_id: str, role: Role = Role.VIEWER) -> Role:
    """The actor's role in the project.

    Raises Http404 for outsiders and PermissionDenied for members below `role`.
    """
    held = actor.role_in(project_id)
    if held is None:
        raise Http404("There is no such thing here.")
    if held.rank < role.rank:
        raise PermissionDenied(f"This needs the role {role.value}; yours is {held.value}.")
    if role is not Role.VIEWER and not actor.may_write:
        raise PermissionDenied("This token can only read.")
    return held


def get(queryset: QuerySet[M], pk: object, actor: Actor, role: Role = Role.VIEWER) -> M:
    """The object with this id, if the actor's role in its project suffices; see `require`."""
    way = PROJECT_OF[queryset.model._meta.label]
    queryset = queryset.none() if "\0" in str(pk) else queryset  # PostgreSQL refuses to look
    found = queryset.filter(pk=pk).first()
    project_id = "" if found is None else str(found.pk) if way == "pk" else _follow(found, way)
    if found is None or actor.role_in(project_id) is None:  # one answer, which tells nothing apart
        what = f"{queryset.model._meta.verbose_name} {str(pk)[:60]!r}"
        raise Http404(f"There is no {what} that you can see.")
    require(actor, project_id, role)
    return found


def found_or_404(found: M | None) -> M:
    if found is None:
        raise Http404("There is no such thing here.")
    return found


def own_token(actor: Actor, token_id: str) -> ApiToken:
    """A token of the actor's own. Raises Http404."""
    tokens = ApiToken.objects.filter(user=actor.user)
    if actor.token is not None and actor.token.project_id is not None:
        tokens = tokens.filter(project_id=actor.token.project_id)
    found = tokens.filter(pk=token_id).first()
    if found is None:
        raise Http404(f"There is no token {token_id[:60]!r} of yours.")
    return found


def _follow(found: Model, way: str) -> str:
    *steps, last = way.split("__")
    for step in steps:
        found = getattr(found, step)
    return cast(str, getattr(found, f"{last}_id"))


def project_or_all(actor: Actor, project: str | None) -> str | None:
    """Id of the project with this id or name; None, which means all, for none. Raises Http404."""
    return default_project(actor, project).pk if project else None


def default_project(actor: Actor, project: str | None = None, role: Role = Role.VIEWER) -> Project:
    """The project with this id or name, or the oldest one the actor is a member of."""
    mine = visible(Project.objects.all(), actor)
    if project:
        found = mine.filter(pk=project).first() or mine.filter(name__iexact=project).first()
    else:
        found = mine.order_by("created_at", "pk").first()
    if found is None:
        raise Http404(f"There is no project {project!r} here." if project else "No project yet.")
    require(actor, found.pk, role)
    return found
