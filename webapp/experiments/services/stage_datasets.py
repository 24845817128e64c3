"""The versions of datasets that stages learn from: checked at launch, kept with the run."""

from typing import Literal

from engine.records.rows import RowError, check_row
from engine.spec import DpoStage, ExperimentSpec, SftStage
from webapp.accounts.models import Project
from webapp.experiments.models import DatasetVersion, Run, StageDataset
from webapp.experiments.queries import rows_of
from webapp.problems import FieldProblem, RefusedError

LEARNS = {"sft": "trajectories", "dpo": "pairs"}  # kind of dataset by kind of stage
CHECKED = 100  # rows that are looked at before a launch; the run looks at every one


def find_stage_datasets(project: Project, spec: ExperimentSpec) -> dict[int, DatasetVersion]:
    """By stage, the version that it learns from.

    Raises RefusedError naming every stage whose version the project lacks, is of another kind, or
    begins with rows of which none can be learned.
    """
    found: dict[int, DatasetVersion] = {}
    problems: list[FieldProblem] = []
    for index, stage in enumerate(spec.stages):
        if not isinstance(stage, SftStage | DpoStage) or stage.dataset is None:
            continue
        versions = DatasetVersion.objects.select_related("dataset")
        version = versions.filter(pk=stage.dataset, dataset__project=project).first()
        said = _problem(stage, version)
        if version is None or said:
            problems.append(FieldProblem(f"stages.{index}.dataset", said))
        else:
            found[index] = version
    if problems:
        sentences = dict.fromkeys(problem.message for problem in problems)
        raise RefusedError(f"This spec cannot be launched: {' '.join(sentences)}", problems)
    return found


def keep_stage_datasets(run: Run, versions: dict[int, DatasetVersion]) -> None:
    StageDataset.objects.bulk_create(
        StageDataset(run=run, stage=stage, version=version) for stage, version in versions.items()
    )


def _problem(stage: SftStage | DpoStage, version: DatasetVersion | None) -> str:
    """Why the stage cannot learn from the version; empty where it can."""
    if version is None:
        return missing(stage.dataset)
    if said := unfit(version, stage.kind):
        return said
    kind: Literal["trajectories", "pairs"]
    kind = "trajectories" if isinstance(stage, SftStage) else "pairs"
    name = f"Version {version.number} of {version.dataset.name}"
    first = ""
    for number, row in enumerate(rows_of(version, 0, CHECKED), start=1):
        try:
            check_row(kind, row)
        except RowError as error:
            first = first or f"row {number}, {error}"
        else:
            return ""
    return f"{name} begins with rows of which none can be learned: {first}"


def dataset_problems(project: Project, spec: ExperimentSpec) -> list[FieldProblem]:
    """Stages whose version the project lacks or is of another kind; its rows are not read."""
    wanted = {
        index: stage.dataset
        for index, stage in enumerate(spec.stages)
        if isinstance(stage, SftStage | DpoStage) and stage.dataset is not None
    }
    if not wanted:
        return []
    rows = DatasetVersion.objects.filter(dataset__project=project).select_related("dataset")
    found = rows.in_bulk(list(wanted.values()))
    problems = []
    for index, pk in wanted.items():
        version = found.get(pk)
        said = unfit(version, spec.stages[index].kind) if version else missing(pk)
        if said:
            problems.append(FieldProblem(f"stages.{index}.dataset", said))
    return problems


def unfit(version: DatasetVersion, kind: str) -> str:
    """Why a stage of this kind cannot learn from the version; empty where its kind fits."""
    if kind not in LEARNS:
        return f"{kind!r} learns from no dataset: take {' or '.join(LEARNS)}."
    held = version.dataset.kind
    if held == LEARNS[kind]:
        return ""
    return (
        f"Version {version.number} of {version.dataset.name} holds {held}; a stage of kind {kind} "
        f"learns from {LEARNS[kind]}."
    )


def missing(pk: str | None) -> str:
    return (
        f"There is no dataset version {pk} in this project: the page of a dataset gives the ids of "
        "its versions."
    )
