"""From a spec to a queued run: validated, frozen, and linked to what it was launched with."""

from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max

from engine.spec import ExperimentSpec, load_spec, problems_of, spec_hash
from engine.spec.code import code_version
from webapp import live, queue
from webapp.accounts.audit import record
from webapp.accounts.models import Project, User
from webapp.accounts.services import first_admin
from webapp.experiments import recipes
from webapp.experiments.models import Attempt, Checkpoint, Experiment, Run
from webapp.experiments.services.config_fields import keep_config_fields
from webapp.experiments.services.dry_runs import tried_spec
from webapp.experiments.services.edit import clean_tags
from webapp.experiments.services.fork import check_start, lock_checkpoint
from webapp.experiments.services.queueing import check_priority
from webapp.experiments.services.schemes import version_of
from webapp.experiments.services.stage_datasets import find_stage_datasets, keep_stage_datasets
from webapp.experiments.spec_text import check_length
from webapp.problems import FieldProblem, RefusedError, invalid_field

DEMO_RECIPE = "kg-search"


@dataclass(frozen=True)
class Launch:
    """What a person may say about a launch besides the spec itself."""

    experiment: str = ""  # name; empty: the spec's
    name: str = ""  # of the run; empty: the spec's, numbered
    notes: str = ""
    tags: list[str] = field(default_factory=list)
    parent: Run | None = None
    checkpoint: Checkpoint | None = None  # to start from; its run is the parent
    priority: int = 0  # in the project's queue; higher goes first
    is_demo: bool = False
    dry_run: bool = False  # on tiny amounts; see engine.spec.dry_run


def check_spec(spec: str | dict[str, Any]) -> ExperimentSpec:
    """The spec in YAML text or parsed data. Raises RefusedError with every problem's field path."""
    check_length(spec)
    found, problems = load_spec(spec) if isinstance(spec, str) else problems_of(spec)
    if found is None:
        raise RefusedError(
            "This spec cannot be launched: "
            + " ".join(dict.fromkeys(problem.message for problem in problems)),
            [FieldProblem(problem.path, problem.message) for problem in problems],
        )
    return found


@transaction.atomic
def launch_run(
    project: Project, user: User, spec: ExperimentSpec, launch: Launch | None = None
) -> Run:
    """A queued run with its first attempt; the submission is enqueued on commit."""
    launch = launch or Launch()
    parent, checkpoint = launch.parent, launch.checkpoint
    if checkpoint is not None:
        checkpoint = lock_checkpoint(project, spec, checkpoint.pk)
        parent = checkpoint.run
    else:
        check_start(spec)
    full_spec = None
    if launch.dry_run:
        tried = tried_spec(spec, fork=checkpoint is not None)
        full_spec, spec = spec.model_dump(mode="json"), tried
    if parent is not None and parent.project_id != project.pk:
        raise invalid_field("parent", "The parent run belongs to another project.")
    datasets = find_stage_datasets(project, spec)
    experiment = find_experiment(project, launch.experiment or spec.name, user)
    run = create_run(
        experiment,
        user,
        launch,
        name=run_name(launch, experiment, f"{spec.name}-dry-run" if full_spec else spec.name),
        full_spec=full_spec,
        tags=[*spec.tags, *launch.tags],
        spec=spec.model_dump(mode="json"),
        spec_hash=spec_hash(spec),
        code_version=code_version(),
        reward_scheme=version_of(project, spec.reward, user),
        parent=parent,
        checkpoint=checkpoint,
        priority=check_priority(launch.priority),
        is_demo=launch.is_demo,
        steps=sum(getattr(stage, "steps", 0) for stage in spec.stages),
    )
    keep_stage_datasets(run, datasets)
    attempt = Attempt.objects.create(run=run, number=1)
    record("run.launch", run.pk, user=user, project=project, name=run.name, spec_hash=run.spec_hash)
    queue.send("caravan.submit", attempt.pk)
    live.announce(run)
    return run


def run_name(launch: Launch, experiment: Experiment, base: str) -> str:
    """The name that was given, else `base` with its number within the experiment."""
    name = launch.name.strip() or numbered(experiment, base)
    if len(name) > 120:
        raise invalid_field("name", f"A run's name has at most 120 characters, not {len(name)}.")
    return name


def numbered(experiment: Experiment, base: str) -> str:
    """`base` with the next number that is free in the experiment."""
    number = experiment.runs.filter(full_spec__isnull=True).count() + 1
    while experiment.runs.filter(name=f"{base}-{number}").exists():  # others were deleted
        number += 1
    return f"{base}-{number}"


def create_run(
    experiment: Experiment,
    user: User,
    launch: Launch,
    *,
    name: str,
    tags: list[str],
    spec: dict[str, Any],
    **fields: Any,
) -> Run:
    """The row of a new run, numbered within its project."""
    project = experiment.project
    keep_config_fields(project, spec)
    return Run.objects.create(
        project=project,
        experiment=experiment,
        name=name,
        number=(project.runs.aggregate(last=Max("number"))["last"] or 0) + 1,
        notes=launch.notes,
        tags=clean_tags(tags),
        created_by=user,
        spec=spec,
        **fields,
    )


def launch_demo() -> Run | None:
    """Launch the quick start as the first admin, unless this database has one already."""
    if Run.objects.filter(is_demo=True).exists():
        return None
    admin = first_admin()
    if admin is None:
        raise RefusedError("There is no admin yet: run ensure_admin.")
    project = Project.objects.filter(memberships__user=admin).order_by("created_at")[0]
    spec = check_spec(recipes.recipe(DEMO_RECIPE).text)
    return launch_run(project, admin, spec, Launch(is_demo=True))


def find_experiment(project: Project, name: str, user: User) -> Experiment:
    """The project's experiment of this name, created where it is missing."""
    name = name.strip()
    if not 1 <= len(name) <= 120:
        raise invalid_field("experiment", "An experiment's name has 1 to 120 characters.")
    found = Experiment.objects.filter(project=project, name__iexact=name).first()
    if found is not None:
        if found.archived_at is not None:  # it is asked again
            Experiment.objects.filter(pk=found.pk).update(archived_at=None)
        return found
    try:
        with transaction.atomic():
            return Experiment.objects.create(project=project, name=name, created_by=user)
    except IntegrityError:  # somebody else created it at the same moment
        return Experiment.objects.get(project=project, name__iexact=name)
