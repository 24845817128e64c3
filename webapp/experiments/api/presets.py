"""REST of presets: recipes that a project saved."""

from datetime import datetime
from typing import Any, Protocol

from django.http import HttpRequest
from ninja import Router, Schema, Status

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import lists, recipes, services
from webapp.experiments.models import Preset
from webapp.experiments.spec_text import check_length
from webapp.problems import RefusedError
from webapp.rest.schemas import Cursor, Label, Limit, NamePart, Person

router = Router(tags=["presets"])
PRESETS = Preset.objects.select_related("created_by", "updated_by", "project")


class PresetIn(Schema):
    name: Label
    text: str
    project: str | None = None
    replace: bool = False  # the preset of this name, where there is one


class PresetRow(Schema):
    """A preset in a list, without its text."""

    id: str
    name: str
    project_id: str
    created_by: Person | None
    created_at: datetime
    updated_by: Person | None
    updated_at: datetime


class PresetOut(PresetRow):
    text: str


class PresetPage(Schema):
    items: list[PresetRow]
    next_cursor: str | None


@router.get("/presets", response=PresetPage)
def list_presets(
    request: HttpRequest,
    project: str | None = None,
    q: NamePart = "",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Any:
    """Presets of my projects, those that were saved last first."""
    actor = access.actor_of(request)
    return lists.list_presets(actor, access.project_or_all(actor, project), q, cursor, limit)


@router.post("/presets", response={201: PresetOut})
def save_preset(request: HttpRequest, data: PresetIn) -> Any:
    """Save a recipe. A name that is taken is refused (409) without `replace`."""
    actor = access.actor_of(request)
    project = access.default_project(actor, data.project, Role.EDITOR)
    saved = services.save_preset(project, actor.user, data.name, data.text, data.replace)
    return Status(201, saved)


@router.get("/presets/{preset_id}", response=PresetOut)
def get_preset(request: HttpRequest, preset_id: str) -> Any:
    return access.get(PRESETS.all(), preset_id, access.actor_of(request))


@router.delete("/presets/{preset_id}", response={204: None})
def delete_preset(request: HttpRequest, preset_id: str) -> Any:
    """Runs that were launched with it keep their specs."""
    actor = access.actor_of(request)
    preset = access.get(PRESETS.all(), preset_id, actor, Role.EDITOR)
    services.delete_preset(preset, actor.user)
    return Status(204, None)


class SpecSource(Protocol):
    """A call's body that names what to launch in one of three ways."""

    spec: str | dict[str, Any] | None
    recipe: str | None
    preset: str | None
    project: str | None


def given_spec(data: SpecSource, actor: access.Actor) -> str | dict[str, Any]:
    """The text or data of the one that was given. Raises RefusedError, Http404."""
    if len([one for one in (data.spec, data.recipe, data.preset) if one is not None]) != 1:
        raise RefusedError("Give exactly one of spec, recipe and preset.")
    if data.recipe is not None:
        return recipes.recipe(data.recipe).text
    if data.preset is not None:
        return find(data.preset, actor, data.project).text
    assert data.spec is not None
    check_length(data.spec)
    return data.spec


def find(wanted: str, actor: access.Actor, project: str | None) -> Preset:
    """A preset by its id, or by its name in the project that is launched into. Raises Http404."""
    named = PRESETS.filter(project=access.default_project(actor, project), name__iexact=wanted)
    return named.first() or access.get(PRESETS.all(), wanted, actor)
