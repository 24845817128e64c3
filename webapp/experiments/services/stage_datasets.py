"""The versions of datasets that a run reads: checked at launch, kept with the run."""

from itertools import islice

from engine.records.rows import RowError, check_row
from engine.spec import ExperimentSpec, OpdStage
from engine.spec.datasets import EVALUATION, PRACTICE, DatasetUse, datasets_of
from engine.spec.opd import category_disagreements
from engine.spec.sampled import SampledStage
from webapp.accounts.models import Project
from webapp.experiments.models import DatasetVersion, Run, StageDataset
from webapp.experiments.queries import rows_from
from webapp.experiments.services.distribution import MOST_CATEGORIES
from webapp.problems import FieldProblem, RefusedError

# Kind of dataset by who reads it: a kind of stage, its practice, or the evaluations of a run.
LEARNS = {"rl": "tasks", "opd": "tasks", "sft": "trajectories", "dpo": "pairs"}
READS = {**LEARNS, PRACTICE: "tasks", EVALUATION: "tasks"}
CHECKED = 100  # rows that are looked at before a launch; the run looks at every one


def find_stage_datasets(project: Project, spec: ExperimentSpec) -> dict[int | None, DatasetVersion]:
    """By stage, the version that it reads; by None, the one that evaluations play.

    Raises RefusedError naming every field whose version the project lacks, is of another kind, or
    begins with rows of which none can be read.
    """
    uses = datasets_of(spec)
    found = _versions(project, uses)
    problems = _problems(spec, uses, found, look_at_rows=True)
    if problems:
        sentences = dict.fromkeys(problem.message for problem in problems)
        raise RefusedError(f"This spec cannot be launched: {' '.join(sentences)}", problems)
    return {use.stage: found[use.version] for use in uses}


def keep_stage_datasets(run: Run, versions: dict[int | None, DatasetVersion]) -> None:
    StageDataset.objects.bulk_create(
        StageDataset(run=run, stage=stage, version=version) for stage, version in versions.items()
    )


def dataset_problems(project: Project, spec: ExperimentSpec) -> list[FieldProblem]:
    """Fields whose version the project lacks or is of another kind; its rows are not read."""
    uses = datasets_of(spec)
    return _problems(spec, uses, _versions(project, uses), look_at_rows=False)


def _versions(project: Project, uses: list[DatasetUse]) -> dict[str, DatasetVersion]:
    if not uses:
        return {}
    rows = DatasetVersion.objects.filter(dataset__project=project).select_related("dataset")
    return rows.in_bulk([use.version for use in uses])


def _problems(
    spec: ExperimentSpec,
    uses: list[DatasetUse],
    found: dict[str, DatasetVersion],
    *,
    look_at_rows: bool,
) -> list[FieldProblem]:
    problems = []
    for use in uses:
        version = found.get(use.version)
        said = missing(use.version) if version is None else unfit(version, use.reader)
        strange = _strange_categories(spec, use, version) if version and not said else []
        if version is not None and not said and not strange and look_at_rows:
            said = _unreadable(version)
        problems += [*strange, *([FieldProblem(use.path, said)] if said else [])]
    return problems


def unfit(version: DatasetVersion, reader: str) -> str:
    """Why a reader, one of READS, cannot read the version; empty where the kinds fit."""
    held, wanted = version.dataset.kind, READS[reader]
    if held == wanted:
        return ""
    who = {EVALUATION: "evaluations play", PRACTICE: "practice plays"}.get(
        reader, f"a stage of kind {reader} learns from"
    )
    return f"Version {version.number} of {version.dataset.name} holds {held}; {who} {wanted}."


def _strange_categories(
    spec: ExperimentSpec, use: DatasetUse, version: DatasetVersion
) -> list[FieldProblem]:
    """Where the gate and the rows, or teachers and the rows, do not name the same categories."""
    stage = None if use.stage is None else spec.stages[use.stage]
    if not isinstance(stage, SampledStage) or len(version.categories) >= MOST_CATEGORIES:
        return []
    problems, shares, made = [], set(spec.pool.gate.shares), sorted(version.categories)
    if shares and shares != set(made):
        said = (
            f"The gate (pool.gate.shares) gives shares to {', '.join(sorted(shares))}, and the "
            f"rows of version {version.number} of {version.dataset.name} are of "
            f"{', '.join(made)}: both must name the same categories."
        )
        problems.append(FieldProblem(use.path, said))
    if isinstance(stage, OpdStage):
        for one in category_disagreements(stage, made, f"stages.{use.stage}"):
            problems += [FieldProblem(path, one.message) for path in one.paths]
    return problems


def _unreadable(version: DatasetVersion) -> str:
    """Why nothing can be read from the version's first rows; empty where something can."""
    name = f"Version {version.number} of {version.dataset.name}"
    first = ""
    for number, row in enumerate(islice(rows_from(version), CHECKED), start=1):
        try:
            check_row(version.dataset.kind, row)
        except RowError as error:
            first = first or f"row {number}, {error}"
        else:
            return ""
    return f"{name} begins with rows of which none can be learned: {first}"


def missing(pk: str | None) -> str:
    return (
        f"There is no dataset version {pk} in this project: the page of a dataset gives the ids of "
        "its versions."
    )
