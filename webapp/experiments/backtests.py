"""A backtest: the job that grades stored trajectories with a scheme that nobody launched yet."""

import io
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import zstandard
from django.db.models import QuerySet

from engine.records.trajectory import Reward, StopReason, Trajectory
from engine.rewards.backtest import Tally
from engine.rewards.scheme import RewardScheme as Definition
from engine.rewards.score import score
from webapp import storage
from webapp.experiments.jobs import Working
from webapp.experiments.models import DatasetVersion, Run
from webapp.experiments.services.backtests import Asked
from webapp.problems import RefusedError
from webapp.reviews import bulk_reading
from webapp.reviews.models import Trajectory as Row
from webapp.reviews.queries import NEWEST_FIRST, Filter, matching

MOST_REASONS = 10


@dataclass(frozen=True)
class Found:
    """A trajectory to grade and the scheme that it is compared under; or why there is none."""

    trajectory: Trajectory | None
    group: str = ""
    old: Definition | None = None
    problem: str = ""


def work(working: Working) -> dict[str, Any]:
    """The function of jobs of kind `backtest`: an `engine.rewards.backtest.Backtest` as a dict,
    with how many trajectories were graded, which could not be read and why, and the seconds."""
    began = time.monotonic()
    asked = Asked.model_validate(working.spec)
    new = Definition.model_validate(asked.definition)
    total, found = _found(asked, working.job.project_id)
    working.log(f"{total} trajectories to grade")
    tally, unread = Tally(), Counter[str]()
    for done, one in enumerate(found):
        working.progress(done, total, "Grading")
        if one.trajectory is None or one.old is None:
            unread[one.problem] += 1
            continue
        taken = one.trajectory
        tally.add(taken.id, taken.task_id, one.group, score(one.old, taken), score(new, taken))
    for reason, count in unread.most_common(MOST_REASONS):
        working.log(f"{count} left out: {reason}")
    if not len(tally):
        raise RefusedError("None of the trajectories could be read: the log says why.")

    def look() -> None:
        working.progress(total, total, "Counting")

    look()
    return {
        **asdict(tally.result(look)),
        "trajectories": len(tally),
        "unread": dict(unread.most_common(MOST_REASONS)),
        "seconds": time.monotonic() - began,
    }


def rows_of(run: Run, asked: Asked) -> QuerySet[Row]:
    """The run's trajectories that are asked for."""
    rows = matching(run, Filter.model_validate(asked.filter)).order_by(*NEWEST_FIRST)
    if asked.newest is None:
        return rows
    return Row.objects.filter(pk__in=rows.values("pk")[: asked.newest])


def _found(asked: Asked, project_id: str) -> tuple[int, Iterator[Found]]:
    """How many there are, and each of them."""
    given = Definition.model_validate(asked.against) if asked.against else None
    if asked.dataset_version:
        versions = DatasetVersion.objects.filter(dataset__project=project_id)
        version = versions.filter(pk=asked.dataset_version).first()
        if version is None or given is None:
            raise RefusedError("The dataset that was to be graded is gone.")
        return version.rows, _of_dataset(version, given)
    runs = list(Run.objects.filter(project=project_id, pk__in=asked.runs))
    if len(runs) < len(asked.runs):
        raise RefusedError("A run whose trajectories were to be graded was deleted.")
    total = sum(rows_of(run, asked).count() for run in runs)
    return total, _of_runs(runs, asked, given)


def _of_runs(runs: list[Run], asked: Asked, given: Definition | None) -> Iterator[Found]:
    for run in runs:
        old = given or Definition.model_validate(run.spec["reward"])
        for read in bulk_reading.read_many(rows_of(run, asked)):
            taken = read.trajectory
            if taken is None:
                yield Found(None, problem=read.problem)
            else:
                group = f"{run.pk} {taken.group_id}" if taken.group_id else ""
                yield Found(taken, group, old)


def _of_dataset(version: DatasetVersion, old: Definition) -> Iterator[Found]:
    with storage.open_blob(version.blob) as file:
        text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        for line in io.BufferedReader(text):
            try:
                taken = trajectory_of(json.loads(line))
            except KeyError as missing:
                yield Found(None, problem=f"the row has no {missing.args[0]}")
            except (TypeError, ValueError, AttributeError):
                yield Found(None, problem="the row is no trajectory as Caravan records it")
            else:
                yield Found(taken, taken.group_id, old)


def trajectory_of(row: dict[str, Any]) -> Trajectory:
    """The trajectory in a row of a dataset; what no term reads may be missing.

    Raises KeyError for what a term reads, TypeError or ValueError for what is of another form.
    """
    if not all(isinstance(row[name], str) for name in ("prompt", "answer")):
        raise TypeError("prompt and answer are texts: nothing would be as right as no answer")
    steps = [
        {"index": index, "segment": 0, "start": 0, "stop": 0, "call": None, **step}
        for index, step in enumerate(row["steps"])
    ]
    sampled = sum(step["stop"] - step["start"] for step in steps)
    return Trajectory.from_dict(
        {
            "id": str(row["id"]),
            "task_id": row.get("task_id", ""),
            "group_id": row.get("group_id", ""),
            "category": row.get("category", ""),
            "prompt": row["prompt"],
            "answer": row["answer"],
            "segments": [],
            "steps": steps,
            "stop_reason": StopReason(row["stop_reason"]),
            "reward": asdict(Reward(None, False)),
            "success": bool(row.get("success", False)),
            "worker": "",
            "started_at": "",
            "duration_s": 0.0,
            "sampled_tokens": row.get("sampled_tokens", sampled),
        }
    )
