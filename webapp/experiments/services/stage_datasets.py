"""The versions of datasets that a run reads: checked at launch, kept with the run."""

from dataclasses import dataclass
from itertools import islice

from engine.records.rows import RowError, check_row
from engine.spec import DpoStage, ExperimentSpec, RlStage, SftStage
from webapp.accounts.models import Project
from webapp.experiments.models import DatasetVersion, Run, StageDataset
from webapp.experiments.queries import rows_from
from webapp.experiments.services.distribution import MOST_CATEGORIES
from webapp.problems import FieldProblem, RefusedError

# Kind of dataset by who reads it: a kind of stage, or the evaluations of a run.
EVALUATION = "evaluation"
LEARNS = {"rl": "tasks", "sft": "trajectories", "dpo": "pairs"}
READS = {**LEARNS, EVALUATION: "tasks"}
CHECKED = 100  # rows that are looked at before a launch; the run looks at every one


@dataclass(frozen=True)
class _Use:
    """That somebody reads a version; `stage` is None for the evaluations."""

    stage: int | None
    reader: str
    version: str
    shares: frozenset[str] = frozenset()  # categories that the gate deals to the stage

    @property
    def path(self) -> str:
        return "evaluation.dataset" if self.stage is None else f"stages.{self.stage}.dataset"


def _uses(spec: ExperimentSpec) -> list[_Use]:
    shares = frozenset(spec.pool.gate.shares)
    found = [
        _Use(index, stage.kind, stage.dataset, shares if stage.kind == "rl" else frozenset())
        for index, stage in enumerate(spec.stages)
        if isinstance(stage, SftStage | DpoStage | RlStage) and stage.dataset is not None
    ]
    if spec.evaluation.dataset is not None:
        found.append(_Use(None, EVALUATION, spec.evaluation.dataset))
    return found


def find_stage_datasets(project: Project, spec: ExperimentSpec) -> dict[int | None, DatasetVersion]:
    """By stage, the version that it learns from; by None, the one that evaluations play.

    Raises RefusedError naming every field whose version the project lacks, is of another kind, or
    begins with rows of which none can be read.
    """
    uses = _uses(spec)
    found = _versions(project, uses)
    problems = _problems(uses, found, look_at_rows=True)
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
    uses = _uses(spec)
    return _problems(uses, _versions(project, uses), look_at_rows=False)


def _versions(project: Project, uses: list[_Use]) -> dict[str, DatasetVersion]:
    if not uses:
        return {}
    rows = DatasetVersion.objects.filter(dataset__project=project).select_related("dataset")
    return rows.in_bulk([use.version for use in uses])


def _problems(
    uses: list[_Use], found: dict[str, DatasetVersion], *, look_at_rows: bool
) -> list[FieldProblem]:
    problems = []
    for use in uses:
        version = found.get(use.version)
        said = missing(use.version) if version is None else unfit(version, use.reader)
        if version is not None and not said:
            said = _strange_categories(use, version)
        if version is not None and not said and look_at_rows:
            said = _unreadable(version)
        if said:
            problems.append(FieldProblem(use.path, said))
    return problems


def unfit(version: DatasetVersion, reader: str) -> str:
    """Why a kind of stage, or evaluations, cannot read the version; empty where the kinds fit."""
    if reader not in READS:
        return f"{reader!r} reads no dataset: take {', '.join(READS)}."
    held, wanted = version.dataset.kind, READS[reader]
    if held == wanted:
        return ""
    who = "evaluations play" if reader == EVALUATION else f"a stage of kind {reader} learns from"
    return f"Version {version.number} of {version.dataset.name} holds {held}; {who} {wanted}."


def _strange_categories(use: _Use, version: DatasetVersion) -> str:
    """Where the gate and the rows do not name the same categories."""
    strange = sorted(use.shares ^ set(version.categories))
    if not use.shares or not strange or len(version.categories) >= MOST_CATEGORIES:
        return ""
    return (
        f"The gate (pool.gate.shares) gives shares to {', '.join(sorted(use.shares))}, and the "
        f"rows of version {version.number} of {version.dataset.name} are of "
        f"{', '.join(sorted(version.categories))}: both must name the same categories."
    )


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
