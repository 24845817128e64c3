"""Review queues: filled once from a filter, judged by editors, turned into dataset versions."""

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.db.models import Count
from django.utils import timezone
from pydantic import ValidationError

from webapp.accounts import audit
from webapp.accounts.models import Membership, Project, Role, User
from webapp.experiments.models import Dataset, DatasetVersion, Run
from webapp.experiments.services import add_dataset_version
from webapp.problems import FieldProblem, RefusedError, conflict, invalid_field
from webapp.reviews import queries, reading
from webapp.reviews.models import Queue, QueueItem, Verdict
from webapp.reviews.rubric import Rubric, outcome
from webapp.reviews.services.comments import storable

MAX_ITEMS = 2_000


def check_rubric(data: dict[str, Any]) -> Rubric:
    """Raises RefusedError with the path of every field that is wrong."""
    try:
        return Rubric.model_validate(data)
    except ValidationError as error:
        problems = [
            FieldProblem(".".join(["rubric", *map(str, item["loc"])]), item["msg"])
            for item in error.errors(include_url=False)
        ]
        raise RefusedError(f"The rubric is not valid: {problems[0].message}", problems) from None


@transaction.atomic
def create_queue(
    run: Run,
    user: User,
    *,
    name: str,
    instructions: str = "",
    rubric: Rubric,
    wanted: queries.Filter,
    size: int,
    sampled: bool = False,
    reviews_per_item: int = 1,
    assignees: Sequence[int] = (),
) -> Queue:
    """A queue of the newest matching trajectories, or of a random sample of them."""
    name = storable(name).strip()
    if not 1 <= len(name) <= 120:
        raise invalid_field("name", f"A name has 1 to 120 characters, not {len(name)}.")
    if reviews_per_item not in (1, 2):
        raise invalid_field("reviews_per_item", "An item is judged by 1 or by 2 people.")
    if not 1 <= size <= MAX_ITEMS:
        raise invalid_field("size", f"A queue holds 1 to {MAX_ITEMS} trajectories, not {size}.")
    people = _editors(run.project, assignees)
    if 0 < len(people) < reviews_per_item:
        raise invalid_field("assignees", "Two reviews an item need at least two people.")
    matching = queries.matching(run, wanted).order_by(*queries.NEWEST_FIRST)
    chosen = list(matching.values_list("id", flat=True)[: None if sampled else size])
    if not chosen:
        raise invalid_field("filter", "No trajectory of this run matches the filter.")
    if sampled:
        chosen = random.sample(chosen, min(size, len(chosen)))
    try:
        with transaction.atomic():
            queue = Queue.objects.create(
                project=run.project,
                run=run,
                name=name,
                instructions=storable(instructions)[:20_000],
                rubric=rubric.model_dump(),
                filter=wanted.model_dump(mode="json", exclude_none=True),
                reviews_per_item=reviews_per_item,
                created_by=user,
            )
    except IntegrityError:
        raise invalid_field("name", f"There is a queue {name!r} already.") from None
    queue.assignees.set(people)
    QueueItem.objects.bulk_create(
        QueueItem(queue=queue, trajectory_id=pk, position=position)
        for position, pk in enumerate(chosen)
    )
    audit.record(
        "queue.create", queue.pk, user=user, project=run.project, name=name, items=len(chosen)
    )
    return queue


def _editors(project: Project, ids: Sequence[int]) -> list[User]:
    members = Membership.objects.filter(project=project, user__in=ids).select_related("user")
    people = {m.user_id: m.user for m in members if Role(m.role).rank >= Role.EDITOR.rank}
    if absent := [pk for pk in ids if pk not in people]:
        raise invalid_field("assignees", f"{absent[0]} is no editor of this project.")
    return list(people.values())


def may_judge(queue: Queue, user: User) -> bool:
    """Of an editor: whether the queue is theirs. A queue without assignees is everybody's."""
    assigned = {person.pk for person in queue.assignees.all()}
    return queue.closed_at is None and (not assigned or user.pk in assigned)


def next_item(queue: Queue, user: User, after: int = -1) -> QueueItem | None:
    """The next item behind position `after` that this person should judge, then from the start.

    Reviewers begin at different places, so that they rarely meet at the same item.
    """
    open_items = (
        queue.items.exclude(verdicts__reviewer=user)
        .annotate(given=Count("verdicts"))
        .filter(given__lt=queue.reviews_per_item)
    )
    found = list(open_items.order_by("position"))
    if not found:
        return None
    people = sorted(person.pk for person in queue.assignees.all())
    share = people.index(user.pk) if user.pk in people else 0
    every = max(1, len(people))

    def rank(item: QueueItem) -> tuple[bool, bool, int]:
        return (item.position % every != share, item.position <= after, item.position)

    return min(found, key=rank)


@transaction.atomic
def judge(
    item: QueueItem,
    user: User,
    *,
    accepted: bool,
    labels: Sequence[str] = (),
    scores: dict[str, int] | None = None,
    note: str = "",
) -> Verdict:
    """Give or change one's verdict. Raises RefusedError (409) where others were faster."""
    queue = item.queue
    if queue.closed_at is not None:
        raise conflict("This queue is closed: verdicts no longer change.")
    if not may_judge(queue, user):
        raise PermissionDenied("This queue is assigned to other people.")
    scores = scores or {}
    rubric = Rubric.model_validate(queue.rubric)
    if problems := rubric.problems(accepted, labels, scores, note):
        raise RefusedError(
            "; ".join(message for _, message in problems),
            [FieldProblem(path, message) for path, message in problems],
        )
    QueueItem.objects.select_for_update(no_key=True).get(pk=item.pk)
    others = item.verdicts.exclude(reviewer=user).count()
    if others >= queue.reviews_per_item:
        raise conflict("Others have judged this trajectory meanwhile; go on to the next one.")
    verdict, _ = Verdict.objects.update_or_create(
        item=item,
        reviewer=user,
        defaults={
            "accepted": accepted,
            "labels": [label for label in rubric.labels if label in labels],
            "scores": scores,
            "note": storable(note)[:10_000],
        },
    )
    return verdict


@transaction.atomic
def close_queue(queue: Queue, user: User, closed: bool) -> Queue:
    """Close a queue, or open it again."""
    if closed == (queue.closed_at is not None):
        return queue
    queue.closed_at = timezone.now() if closed else None
    queue.save(update_fields=["closed_at"])
    action = "queue.close" if closed else "queue.reopen"
    audit.record(action, queue.pk, user=user, project=queue.project)
    return queue


def make_dataset(queue: Queue, dataset: Dataset, user: User) -> DatasetVersion:
    """A version of `dataset` with the trajectories that were accepted, each with its verdicts.

    Items that are open or disputed are left out and counted in the version's source.
    """
    if dataset.project_id != queue.project_id:
        raise invalid_field("dataset", "The dataset belongs to another project.")
    if dataset.kind != "trajectories":
        raise invalid_field("dataset", f"{dataset.name} holds {dataset.kind}, not trajectories.")
    counts = {"accepted": 0, "rejected": 0, "disputed": 0, "open": 0}
    accepted = []
    items = queue.items.select_related("trajectory").prefetch_related("verdicts__reviewer")
    for item in items.order_by("position"):
        verdicts = list(item.verdicts.all())
        found = outcome([verdict.accepted for verdict in verdicts], queue.reviews_per_item)
        counts[found] += 1
        if found == "accepted":
            accepted.append((item, verdicts))
    if not accepted:
        raise conflict("No trajectory of this queue is accepted yet: there would be no rows.")
    return add_dataset_version(
        dataset,
        user,
        _rows(queue, accepted),
        source={"kind": "labels", "queue": queue.pk, "run": queue.run_id, **counts},
        note=f"Accepted in the review queue {queue.name}",
    )


def _rows(queue: Queue, accepted: list[tuple[QueueItem, list[Verdict]]]) -> Iterator[bytes]:
    for item, verdicts in accepted:
        with reading.stored(item.trajectory) as source:
            data = source.whole().to_dict()
        data["review"] = {
            "queue": queue.pk,
            "run": item.trajectory.run_id,
            "verdicts": [
                {
                    "reviewer": verdict.reviewer.email,
                    "labels": verdict.labels,
                    "scores": verdict.scores,
                    "note": verdict.note,
                    "at": verdict.changed_at.isoformat(),
                }
                for verdict in verdicts
            ],
        }
        yield json.dumps(data, ensure_ascii=False).encode()
