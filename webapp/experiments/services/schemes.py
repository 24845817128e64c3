"""Reward schemes: a name with immutable versions. What changes becomes a new version."""

import hashlib
import json
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max
from pydantic import ValidationError

from engine.rewards.scheme import RewardScheme as Definition
from webapp.accounts.audit import record
from webapp.accounts.models import Project, User
from webapp.experiments.models import RewardScheme, RewardSchemeVersion
from webapp.problems import FieldProblem, RefusedError, conflict


def check_definition(data: dict[str, Any]) -> Definition:
    """Raises RefusedError with the path of every field that is wrong."""
    try:
        return Definition.model_validate(data)
    except ValidationError as error:
        problems = [
            FieldProblem(".".join(str(part) for part in item["loc"]), item["msg"])
            for item in error.errors(include_url=False)
        ]
        raise RefusedError("This reward scheme is not valid.", problems) from None


def definition_digest(definition: Definition) -> str:
    """Equal for equal terms and weights, whatever the scheme is called."""
    data = definition.model_dump(mode="json", exclude={"name"}, exclude_none=True)
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


@transaction.atomic
def create_scheme(
    project: Project, user: User, definition: Definition, note: str = ""
) -> RewardSchemeVersion:
    """A new scheme with its first version. Raises RefusedError (409) where the name is taken."""
    try:
        with transaction.atomic():
            scheme = RewardScheme.objects.create(project=project, name=definition.name)
    except IntegrityError:
        raise conflict(
            f"There is a reward scheme {definition.name!r} already: add a version to it."
        ) from None
    return _add(scheme, user, definition, note)


@transaction.atomic
def add_scheme_version(
    scheme: RewardScheme,
    user: User,
    definition: Definition,
    note: str = "",
    based_on: int | None = None,
) -> RewardSchemeVersion:
    """The next version. `based_on`: the number of the version that its writer began with.

    Raises RefusedError (409) where it equals the newest one, or where that is newer than the one
    that it is based on.
    """
    RewardScheme.objects.select_for_update(no_key=True).get(pk=scheme.pk)
    newest = scheme.versions.select_related("created_by").order_by("-number").first()
    if newest is not None and based_on not in (None, newest.number):
        by = f" by {newest.created_by}" if newest.created_by else ""
        raise conflict(
            f"Version {newest.number} was saved{by} since this was begun from version {based_on}: "
            f"look at what is different, and save it on top of version {newest.number}."
        )
    if newest is not None and newest.digest == definition_digest(definition):
        raise conflict(f"This is version {newest.number} already: nothing changed.")
    return _add(scheme, user, definition, note)


@transaction.atomic
def version_of(project: Project, definition: Definition, user: User) -> RewardSchemeVersion:
    """The version with this definition; scheme and version are created where they are missing."""
    scheme = RewardScheme.objects.filter(project=project, name__iexact=definition.name).first()
    if scheme is None:
        try:
            return create_scheme(project, user, definition, "launched with a run")
        except RefusedError:  # somebody else created it at the same moment
            scheme = RewardScheme.objects.get(project=project, name__iexact=definition.name)
    RewardScheme.objects.select_for_update(no_key=True).get(pk=scheme.pk)
    same = scheme.versions.filter(digest=definition_digest(definition)).order_by("-number").first()
    return same or _add(scheme, user, definition, "launched with a run")


def _add(
    scheme: RewardScheme, user: User, definition: Definition, note: str
) -> RewardSchemeVersion:
    last = scheme.versions.aggregate(last=Max("number"))["last"] or 0
    version = RewardSchemeVersion.objects.create(
        scheme=scheme,
        number=last + 1,
        definition=definition.model_dump(mode="json"),
        digest=definition_digest(definition),
        note=note[:400],
        created_by=user,
    )
    record(
        "reward_scheme.version",
        version.pk,
        user=user,
        project=scheme.project,
        scheme=scheme.name,
        number=version.number,
    )
    return version
