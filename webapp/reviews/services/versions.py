"""Verdicts as dataset versions: accepted trajectories, preferences, marks on steps."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from django.db import transaction
from django.db.models import Count

from engine.records.trajectory import Trajectory as Record
from webapp.accounts.models import User
from webapp.experiments.models import Dataset, DatasetVersion
from webapp.experiments.services import add_dataset_version, create_dataset
from webapp.plain_text import storable
from webapp.problems import RefusedError, conflict, invalid_field
from webapp.reviews import reading
from webapp.reviews.models import Queue, QueueItem, StepMark, Trajectory, Verdict
from webapp.reviews.preferences import Preferences
from webapp.reviews.queue_queries import progress_of

KINDS = ("trajectories", "pairs", "step_labels")
MOST_OF_TASK = 32  # accepted and rejected trajectories of one task that are paired, of each
GONE = "no longer in storage"


def make_dataset(queue: Queue, dataset: Dataset, user: User) -> DatasetVersion:
    """A version of `dataset` from the queue's verdicts, by the kind of the dataset.

    trajectories: those accepted. pairs: where an accepted and a rejected trajectory of one task
    part, or a preferred and another one. step_labels: marks on steps. What is open, disputed or
    cannot become a row is left out and counted in the version's source. Raises RefusedError.
    """
    if dataset.project_id != queue.project_id:
        raise invalid_field("dataset", "The dataset belongs to another project.")
    if dataset.kind not in KINDS:
        raise invalid_field(
            "dataset",
            f"{dataset.name} holds {dataset.kind}; verdicts become {', '.join(KINDS)}.",
        )
    if dataset.kind == "trajectories" and queue.style == "pairwise":
        raise invalid_field(
            "dataset",
            "This queue asks which of two is better and accepts none: make pairs of it.",
        )
    left_out: dict[str, int] = {}
    makers: dict[str, Callable[[Queue, dict[str, int]], Iterable[bytes]]] = {
        "trajectories": _accepted,
        "pairs": _pairs,
        "step_labels": _marks,
    }
    lines = makers[dataset.kind](queue, left_out)
    counts = progress_of(queue, user).counts
    source: dict[str, Any] = {"kind": "labels", "queue": queue.pk, "run": queue.run_id, **counts}
    source["reviewers"] = _reviewers(queue, StepMark if dataset.kind == "step_labels" else Verdict)

    def told() -> Iterator[bytes]:
        yield from lines
        if left_out:  # all of it is known once the last line is made, before the version is stored
            source["left_out"] = left_out

    note = f"From the review queue {queue.name}"
    return add_dataset_version(dataset, user, told(), source=source, note=note)


@transaction.atomic
def make_new_dataset(queue: Queue, name: str, kind: str, user: User) -> DatasetVersion:
    """The first version of a new dataset; where no row comes of the verdicts, no dataset does."""
    return make_dataset(queue, create_dataset(queue.project, user, storable(name), kind), user)


def _reviewers(queue: Queue, said: type[StepMark] | type[Verdict]) -> dict[str, int]:
    """Whose labels they are, and how many each gave."""
    given = said._default_manager.filter(item__queue=queue).order_by("reviewer__email")
    return dict(given.values_list("reviewer__email").annotate(Count("pk")))


def _items(queue: Queue, outcomes: Sequence[str]) -> list[QueueItem]:
    rows = queue.items.filter(outcome__in=outcomes).order_by("position")
    return list(rows.select_related("trajectory", "other").prefetch_related("verdicts__reviewer"))


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace")


def _whole(row: Trajectory, left_out: dict[str, int]) -> Record | None:
    """None, and counted, where its shard is gone."""
    try:
        with reading.stored(row) as source:
            return source.whole()
    except RefusedError as refused:
        if refused.status != 410:
            raise
        left_out[GONE] = left_out.get(GONE, 0) + 1
        return None


def _verdicts(item: QueueItem) -> list[dict[str, Any]]:
    return [
        {
            "reviewer": verdict.reviewer.email,
            "choice": verdict.choice,
            "adjudicates": verdict.adjudicates,
            "labels": verdict.labels,
            "scores": verdict.scores,
            "note": verdict.note,
            "at": verdict.changed_at.isoformat(),
        }
        for verdict in item.verdicts.all()
    ]


def _accepted(queue: Queue, left_out: dict[str, int]) -> Iterator[bytes]:
    """One at a time: a trajectory may have hundreds of megabytes, and a queue thousands of them."""
    rows = 0
    for item in _items(queue, ["accepted"]):
        record = _whole(item.trajectory, left_out)
        if record is None:
            continue
        review = {"queue": queue.pk, "run": item.trajectory.run_id, "verdicts": _verdicts(item)}
        rows += 1
        yield _line(record.to_dict() | {"review": review})
    if not rows:
        raise conflict(
            f"No trajectory of this queue is accepted and stored: there would be no rows"
            f"{_told(left_out)}."
        )


def _pairs(queue: Queue, left_out: dict[str, int]) -> list[bytes]:
    preferences = Preferences(left_out)
    compared = _preferred if queue.style == "pairwise" else _of_tasks
    for better, worse, review in compared(queue, preferences):
        preferences.add(better, worse, {"queue": queue.pk, **review})
    lines = [_line(row) for row in preferences.rows()]
    if not lines:
        needed = (
            "a preferred and another trajectory"
            if queue.style == "pairwise"
            else "an accepted and a rejected trajectory of one task"
        )
        raise conflict(
            f"There is no pair yet: {needed} that part at a turn of the policy make one"
            f"{_told(left_out)}."
        )
    return lines


Compared = Iterator[tuple[Record, Record, dict[str, Any]]]


def _preferred(queue: Queue, preferences: Preferences) -> Compared:
    for item in _items(queue, ["first", "second"]):
        assert item.other is not None  # of every item of a pairwise queue
        first = _whole(item.trajectory, preferences.left_out)
        second = _whole(item.other, preferences.left_out)
        if first is None or second is None:
            continue
        review = {"run": item.trajectory.run_id, "verdicts": _verdicts(item)}
        yield (first, second, review) if item.outcome == "first" else (second, first, review)


def _of_tasks(queue: Queue, preferences: Preferences) -> Compared:
    """Each accepted with each rejected trajectory of the same task."""
    tasks: dict[str, tuple[list[QueueItem], list[QueueItem]]] = {}
    for item in _items(queue, ["accepted", "rejected"]):
        # By the question: a trainer of one's own may name no tasks. Longer ones are compared whole.
        sides = tasks.setdefault(item.trajectory.prompt, ([], []))
        sides[item.outcome == "rejected"].append(item)
    for sides in tasks.values():
        if not all(sides):
            continue
        for item in [one for side in sides for one in side[MOST_OF_TASK:]]:
            preferences.count(f"more than {MOST_OF_TASK} of one task, {item.outcome}")
        read = [
            [(item, record) for item in side[:MOST_OF_TASK]
             if (record := _whole(item.trajectory, preferences.left_out))]
            for side in sides
        ]  # fmt: skip
        for (better, chosen), (worse, rejected) in product(*read):
            review = {
                "run": better.trajectory.run_id,
                "verdicts": _verdicts(better),
                "rejected_verdicts": _verdicts(worse),
            }
            yield chosen, rejected, review


def _marks(queue: Queue, left_out: dict[str, int]) -> list[bytes]:
    marks = StepMark.objects.filter(item__queue=queue).select_related(
        "reviewer", "item__trajectory"
    )
    lines = [
        _line(
            {
                "trajectory": mark.item.trajectory_id,
                "step": mark.step,
                "label": mark.mark,
                "note": mark.note,
                "category": mark.item.trajectory.category,
                "prompt": mark.item.trajectory.prompt,
                "review": {
                    "queue": queue.pk,
                    "run": mark.item.trajectory.run_id,
                    "reviewer": mark.reviewer.email,
                    "at": mark.changed_at.isoformat(),
                },
            }
        )
        for mark in marks.order_by("item__position", "step", "reviewer")
    ]
    if not lines:
        raise conflict("No step of this queue is marked yet: there would be no rows.")
    return lines


def _told(left_out: dict[str, int]) -> str:
    said = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    return f" (left out: {said})" if said else ""
