"""REST of launching: recipes, the spec's schema and validation, new runs."""

from typing import Any

from django.http import Http404, HttpRequest
from ninja import Router, Schema, Status

from engine.spec import ExperimentSpec, load_spec, problems_of
from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import queries, recipes, services
from webapp.experiments.api import checkpoints, presets, runs, schemas
from webapp.experiments.models import RewardSchemeVersion, Run
from webapp.experiments.planning import planned
from webapp.experiments.spec_text import check_length
from webapp.experiments.stored import definition_of
from webapp.problems import invalid_field

router = Router(tags=["launch"])


class RecipeOut(Schema):
    name: str
    description: str
    text: str


@router.get("/recipes", response=list[RecipeOut])
def list_recipes(request: HttpRequest) -> Any:
    return recipes.recipes()


@router.get("/recipes/{name}", response=RecipeOut)
def get_recipe(request: HttpRequest, name: str) -> Any:
    found = next((recipe for recipe in recipes.recipes() if recipe.name == name), None)
    if found is None:
        raise Http404(f"There is no recipe {name!r}.")
    return found


class SpecIn(Schema):
    """Either YAML text or data; devices as 8xH100-80, to plan for others than its own cores."""

    text: str | None = None
    spec: dict[str, Any] | None = None
    devices: str = ""


class SpecProblemOut(Schema):
    path: str
    message: str


class Validation(Schema):
    valid: bool
    problems: list[SpecProblemOut]
    spec: dict[str, Any] | None  # complete, with every default
    plan: dict[str, Any] | None  # memory by phase and component, FLOPs and time of the run
    advice: dict[str, Any] | None  # which algorithms fit the devices, what breaks, what helps


@router.post("/specs/validate", response=Validation)
def validate_spec(request: HttpRequest, data: SpecIn) -> Any:
    """What is wrong with a spec, by field path, or else what its run takes; nothing is launched."""
    check_length(data.text if data.text is not None else data.spec or {})
    if data.text is not None:
        spec, problems = load_spec(data.text)
    else:
        spec, problems = problems_of(data.spec or {})
    return {
        "valid": spec is not None,
        "problems": [{"path": p.path, "message": p.message} for p in problems],
        "spec": spec and spec.model_dump(mode="json"),
        **(planned(spec, data.devices) if spec else {"plan": None, "advice": None}),
    }


@router.get("/specs/schema", response=dict[str, Any])
def spec_schema(request: HttpRequest) -> Any:
    """The JSON schema of a spec."""
    return ExperimentSpec.model_json_schema()


class LaunchIn(Schema):
    """One of spec (data or YAML text), recipe and preset; overrides are {"stages.1.steps": 10}, and
    `reward` is the id of a stored version of a reward scheme that replaces the spec's. A preset is
    named by its id, or by its name in the project.

    With `checkpoint` the run starts from that checkpoint's weights, and its run is the parent; the
    spec is then the parent's where none is given.
    """

    spec: dict[str, Any] | str | None = None
    recipe: str | None = None
    preset: str | None = None
    overrides: dict[str, Any] = {}
    reward: str | None = None
    project: str | None = None
    experiment: str = ""
    name: str = ""
    notes: str = ""
    tags: list[str] = []
    parent: str | None = None
    checkpoint: str | None = None
    priority: int = 0  # in the project's queue, -1000 to 1000; higher goes first
    dry_run: bool = False  # start every part, train one step of each stage on tiny amounts


# On the router of runs: two routers cannot share a path.
@runs.router.post("/runs", response={201: schemas.RunDetailOut})
def launch_run(request: HttpRequest, data: LaunchIn) -> Any:
    """Launch a run. An invalid spec is refused with every problem's field path."""
    actor = access.actor_of(request)
    checkpoint = checkpoints.find(request, data.checkpoint) if data.checkpoint else None
    wanted = data.project or (checkpoint.run.project_id if checkpoint else None)
    project = access.default_project(actor, wanted, Role.EDITOR)
    parent = access.get(Run.objects.all(), data.parent, actor) if data.parent else None
    if checkpoint is not None:
        if parent is not None and parent.pk != checkpoint.run_id:
            raise invalid_field("parent", "The checkpoint is of another run: leave parent out.")
        if data.spec is data.recipe is data.preset is None:
            data.spec = checkpoint.run.spec
        data.experiment = data.experiment or checkpoint.run.experiment.name
    spec = services.check_spec(_spec_data(data, actor))
    run = services.launch_run(
        project,
        actor.user,
        spec,
        services.Launch(
            experiment=data.experiment,
            name=data.name,
            notes=data.notes,
            tags=data.tags,
            parent=parent,
            checkpoint=checkpoint,
            priority=data.priority,
            dry_run=data.dry_run,
        ),
    )
    return Status(201, schemas.detail_out(queries.run_detail(run)))


def _spec_data(data: LaunchIn, actor: access.Actor) -> str | dict[str, Any]:
    given = presets.given_spec(data, actor)
    if data.reward is not None:
        rows = RewardSchemeVersion.objects.select_related("scheme")
        version = access.get(rows, data.reward, actor)
        data.overrides = {"reward": definition_of(version), **data.overrides}
    if data.spec is not None and not data.overrides:
        return given
    return recipes.with_overrides(given, data.overrides)
