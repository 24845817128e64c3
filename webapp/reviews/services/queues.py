"""Review queues: filled once from a filter and a sample, closed and opened again."""

from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from pydantic import ValidationError

from webapp.accounts import audit
from webapp.accounts.models import Membership, Project, Role, User
from webapp.experiments.models import Run
from webapp.experiments.services.edit import checked_name
from webapp.experiments.states import lock
from webapp.plain_text import storable
from webapp.problems import FieldProblem, RefusedError, invalid_field
from webapp.reviews import queries
from webapp.reviews.models import Queue, QueueItem
from webapp.reviews.rubric import Rubric, Style
from webapp.reviews.sampling import Kind, Picked, pick

MAX_ITEMS = 2_000
NOTHING: dict[Kind, str] = {
    "newest": "No trajectory of this run matches the filter.",
    "random": "No trajectory of this run matches the filter.",
    "disagreement": "No group of the trajectories that match has two sides: all of a group came to "
    "the same, and no label contradicts the reward. Take a size of at least 2.",
    "outliers": "No reward of the trajectories that match lies far from those of its category that "
    "came to the same, solved or not; 20 of them are needed to tell.",
    "newly_failing": "No task that was solved before fails in the newest evaluation of this run.",
}


def preview(
    run: Run, wanted: queries.Filter, sample: Kind, size: int, *, style: Style, seed: int
) -> Picked:
    """What a queue would hold. Raises RefusedError."""
    if not 1 <= size <= MAX_ITEMS:
        raise invalid_field("size", f"A queue holds 1 to {MAX_ITEMS} items, not {size}.")
    return pick(run, wanted, sample, size, style=style, seed=seed)


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
    sample: Kind = "newest",
    style: Style = "single",
    seed: int = 0,
    reviews_per_item: int = 1,
    assignees: Sequence[int] = (),
) -> Queue:
    """A queue of trajectories that match a filter, or of pairs of them; see `sampling.pick`."""
    name = checked_name(storable(name))
    if reviews_per_item not in (1, 2):
        raise invalid_field("reviews_per_item", "An item is judged by 1 or by 2 people.")
    if style == "pairwise" and rubric.scales:
        raise invalid_field(
            "rubric.scales", "Scales are of one trajectory: a queue of pairs has labels only."
        )
    people = _editors(run.project, assignees)
    if 0 < len(people) < reviews_per_item:
        raise invalid_field("assignees", "Two reviews an item need at least two people.")
    picks = preview(run, wanted, sample, size, style=style, seed=seed).picks
    if not picks:
        raise invalid_field("filter", NOTHING[sample])
    lock(run.pk)  # as pruning does before it looks whether a queue asks about the run
    try:
        with transaction.atomic():
            queue = Queue.objects.create(
                project=run.project,
                run=run,
                name=name,
                instructions=storable(instructions)[:20_000],
                rubric=rubric.model_dump(),
                filter=wanted.model_dump(mode="json", exclude_none=True),
                sample=sample,
                style=style,
                reviews_per_item=reviews_per_item,
                created_by=user,
            )
    except IntegrityError:
        raise invalid_field("name", f"There is a queue {name!r} already.") from None
    queue.assignees.set(people)
    QueueItem.objects.bulk_create(
        QueueItem(
            queue=queue,
            trajectory_id=one.trajectory,
            other_id=one.other,
            reason=one.reason,
            position=position,
        )
        for position, one in enumerate(picks)
    )
    audit.record(
        "queue.create", queue.pk, user=user, project=run.project, name=name, items=len(picks)
    )
    return queue


def _editors(project: Project, ids: Sequence[int]) -> list[User]:
    members = Membership.objects.filter(project=project, user__in=ids).select_related("user")
    people = {m.user_id: m.user for m in members if Role(m.role).rank >= Role.EDITOR.rank}
    if absent := [pk for pk in ids if pk not in people]:
        raise invalid_field("assignees", f"{absent[0]} is no editor of this project.")
    return list(people.values())


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
