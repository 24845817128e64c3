"""REST of reward schemes: immutable versions."""

from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema, Status

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import lists, services
from webapp.experiments.api.schemas import (
    SchemeDetail,
    SchemeOut,
    SchemePage,
    SchemeVersionOut,
    SchemeVersionPage,
)
from webapp.experiments.models import RewardScheme
from webapp.experiments.services.schemes import check_definition
from webapp.rest.schemas import Cursor, Limit, NamePart

router = Router(tags=["reward schemes"])


class SchemeIn(Schema):
    definition: dict[str, Any]
    note: str = ""
    project: str | None = None


class VersionIn(Schema):
    definition: dict[str, Any]
    note: str = ""
    based_on: int | None = None  # number of the version that it was made from


@router.get("/reward-schemes", response=SchemePage)
def list_schemes(
    request: HttpRequest,
    project: str | None = None,
    q: NamePart = "",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Any:
    """Reward schemes of my projects, by name."""
    actor = access.actor_of(request)
    return lists.list_schemes(actor, access.project_or_all(actor, project), q, cursor, limit)


@router.get("/reward-scheme-versions", response=SchemeVersionPage)
def list_scheme_versions(
    request: HttpRequest,
    project: str | None = None,
    q: NamePart = "",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Any:
    """Versions of the schemes of my projects, the newest first. A number in `q` is a version's."""
    actor = access.actor_of(request)
    wanted = access.project_or_all(actor, project)
    return lists.list_scheme_versions(actor, wanted, q, cursor, limit)


@router.post("/reward-schemes", response={201: SchemeVersionOut})
def create_scheme(request: HttpRequest, data: SchemeIn) -> Any:
    """A new scheme, named in its definition, with its first version."""
    actor = access.actor_of(request)
    project = access.default_project(actor, data.project, Role.EDITOR)
    definition = check_definition(data.definition)
    return Status(201, services.create_scheme(project, actor.user, definition, data.note))


@router.get("/reward-schemes/{scheme_id}", response=SchemeDetail)
def get_scheme(request: HttpRequest, scheme_id: str) -> Any:
    scheme = access.get(RewardScheme.objects.all(), scheme_id, access.actor_of(request))
    versions = list(scheme.versions.select_related("created_by").order_by("-number"))
    return {**SchemeOut.from_orm(scheme).dict(), "versions": versions}


@router.post("/reward-schemes/{scheme_id}/versions", response={201: SchemeVersionOut})
def add_version(request: HttpRequest, scheme_id: str, data: VersionIn) -> Any:
    """The next version. Refused (409): one that equals the newest, or that is based on an older."""
    actor = access.actor_of(request)
    scheme = access.get(RewardScheme.objects.all(), scheme_id, actor, Role.EDITOR)
    definition = check_definition({**data.definition, "name": scheme.name})
    made = services.add_scheme_version(scheme, actor.user, definition, data.note, data.based_on)
    return Status(201, made)
