"""Tasks of stored datasets on the run's storage: to train on, and to judge by.

They are read from the rows once, by the driver; whoever plays them loads what it kept.
"""

import json
from collections.abc import Sequence
from typing import Any

from engine.environments.protocol import Task
from engine.spec import EvaluateStage, ExperimentSpec
from engine.spec.sampled import SampledStage
from workers.cluster import stored_rows, synthesised
from workers.cluster.storage import RunStorage

_FOLDER = "tasks"
JUDGED = ("held_out", "quick")


def make(storage: RunStorage, spec: ExperimentSpec, version: str) -> dict[str, Any]:
    """Read the tasks of a version that was fetched, unless it was done before; the summary."""
    done = f"{_FOLDER}/{version}.json"  # written last
    if (path := storage.fetch(done)) is not None:
        known: dict[str, Any] = json.loads(path.read_text())
        return known
    found, made = stored_rows.tasks(storage, spec, version)
    sets = {version: found}
    if version == spec.evaluation.dataset:
        sets |= zip(JUDGED, split(found, spec), strict=True)
    for name, part in sets.items():
        synthesised.write_tasks(storage.path(f"{_FOLDER}/{name}").parent, name, part)
        storage.publish(f"{_FOLDER}/{name}.jsonl.zst")
    made["categories"] = sorted({task.category for task in found})
    storage.write_json(done, made)
    return made


def split(tasks: Sequence[Task], spec: ExperimentSpec) -> tuple[list[Task], list[Task]]:
    """Held-out tasks and quick ones, which have none in common: the first `evaluation.tasks`, and
    the `evaluation.quick_tasks` after them. Where there are fewer, both have their share; where no
    stage plays quick ones, there are none."""
    final, quick = spec.evaluation.tasks, spec.evaluation.quick_tasks
    if not _plays_quick(spec):
        quick = 0
    elif len(tasks) < final + quick:
        share = round(len(tasks) * quick / (final + quick))
        quick = min(max(1, share), len(tasks) - 1)
        final = len(tasks) - quick
    return list(tasks[:final]), list(tasks[final : final + quick])


def needed(spec: ExperimentSpec, version: str) -> int:
    """The fewest tasks of a version with which no set that the run plays is empty."""
    return 2 if version == spec.evaluation.dataset and _plays_quick(spec) else 1


def _plays_quick(spec: ExperimentSpec) -> bool:
    return any(
        isinstance(stage, SampledStage)
        or (isinstance(stage, EvaluateStage) and stage.tasks == "quick")
        for stage in spec.stages
    )


def judged(storage: RunStorage, spec: ExperimentSpec, name: str) -> list[Task]:
    """The run's tasks to be judged by. name: held_out or quick."""
    if spec.evaluation.dataset is not None:
        return load(storage, name)
    return synthesised.tasks(synthesised.folder(storage), name)


def judged_too(storage: RunStorage, spec: ExperimentSpec, version: str) -> int:
    """How many tasks of a version the run is also judged by, as their prompts tell."""
    prompts = {one.prompt for name in JUDGED for one in judged(storage, spec, name)}
    return sum(one.prompt in prompts for one in load(storage, version))


def load(storage: RunStorage, name: str) -> list[Task]:
    """name: a version that was made, or held_out or quick of the one that judges.

    Raises FileNotFoundError where they were not made.
    """
    path = storage.fetch(f"{_FOLDER}/{name}.jsonl.zst")
    if path is None:
        raise FileNotFoundError(f"The tasks {name} are not in {storage.place}.")
    return synthesised.tasks(path.parent, name)
