"""The job that makes a version of tasks of what a run's trajectories were asked."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.db import transaction

from webapp.accounts.models import Project, User
from webapp.experiments.jobs import Working
from webapp.experiments.models import Dataset, Run
from webapp.experiments.services import checked_rows, create_dataset, store_version
from webapp.problems import RefusedError
from webapp.reviews import queries
from webapp.reviews.bulk_reading import Read, read_many
from webapp.reviews.models import Trajectory
from webapp.reviews.services.collecting import KIND, Asked

GONE = "The run whose tasks were to be collected was deleted."


def work(working: Working) -> dict[str, Any]:
    """The function of jobs of kind `collect`: which version of which dataset was made."""
    asked = Asked.model_validate(working.spec)
    run = Run.objects.filter(project=working.job.project_id, pk=asked.run).first()
    if run is None:
        raise RefusedError(GONE)
    wanted = queries.Filter.model_validate(asked.filter)
    each = queries.matching(run, wanted).order_by("task_id", "prompt", "-cursor", "-id")
    newest = each.distinct("task_id", "prompt").values("pk")
    rows = Trajectory.objects.filter(pk__in=newest)
    total, left_out = rows.count(), Counter[str]()

    def lines() -> Iterator[bytes]:
        seen: set[tuple[str, str]] = set()
        for done, one in enumerate(read_many(rows), start=1):
            working.progress(done, total, "Reading")
            if problem := _problem(one, seen):
                left_out[problem] += 1
            else:
                yield _row(one)

    # Before the transaction: in it the progress is seen by nobody, and a wish to stop waits.
    checked = checked_rows(KIND, lines())
    working.write()
    source: dict[str, Any] = {"kind": "trajectories", "run": run.pk, "filter": asked.filter}
    if left_out:
        source["left_out"] = dict(left_out)
    user, note = working.job.created_by, f"Tasks of {run.name}"
    with transaction.atomic():
        dataset = _dataset(run.project, user, asked.dataset)
        version = store_version(dataset, user, checked, source=source, note=note)
    return {
        "dataset": dataset.pk,
        "version": version.pk,
        "number": version.number,
        "rows": version.rows,
        "left_out": dict(left_out),
    }


def _dataset(project: Project, user: User | None, name: str) -> Dataset:
    held = Dataset.objects.filter(project=project, name=name).first()
    if held is not None and held.kind != KIND:
        raise RefusedError(f"{held.name} holds {held.kind} by now: name a dataset of tasks.")
    return held or create_dataset(project, user, name, KIND)


def _problem(one: Read, seen: set[tuple[str, str]]) -> str:
    """Why it is no row; empty where it is one."""
    if one.trajectory is None:
        return one.problem
    key = (one.trajectory.prompt, one.trajectory.answer)
    if not all(key):
        return "without a prompt or a right answer"
    if key in seen:
        return "asked twice"
    seen.add(key)
    return ""


def _row(one: Read) -> bytes:
    assert one.trajectory is not None
    found = one.trajectory
    row = {"prompt": found.prompt, "answer": found.answer, "category": found.category[:40]}
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace")
