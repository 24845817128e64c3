"""Judging a queue's items: leases, so that two people never do the same work at once; verdicts, a
third person's rulings, marks on steps."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.utils import timezone

from webapp.accounts import audit
from webapp.accounts.models import User
from webapp.plain_text import storable
from webapp.problems import FieldProblem, RefusedError, conflict, invalid_field
from webapp.reviews.models import Claim, Queue, QueueItem, StepMark, Verdict
from webapp.reviews.queue_queries import free_for, judgeable
from webapp.reviews.rubric import CHOICES, Rubric, outcome

LEASE = timedelta(minutes=5)  # a page that is open renews it every minute
MAX_NOTE = 10_000
MAX_MARK_NOTE = 2_000


def may_judge(queue: Queue, user: User) -> bool:
    """Of an editor: whether the queue is theirs. A queue without assignees is everybody's."""
    assigned = {person.pk for person in queue.assignees.all()}
    return queue.closed_at is None and (not assigned or user.pk in assigned)


def next_item(queue: Queue, user: User, after: int = -1) -> QueueItem | None:
    """The next item behind position `after` that this person could judge, then from the start.

    Reviewers begin at different places, so that they rarely meet at the same item.
    """
    ranked = _ranked(queue, user, after)
    return QueueItem.objects.get(pk=ranked[0]) if ranked else None


def _ranked(queue: Queue, user: User, after: int) -> list[str]:
    found = free_for(queue, user, timezone.now()).values_list("pk", "position")
    people = sorted(person.pk for person in queue.assignees.all())
    share = people.index(user.pk) if user.pk in people else 0
    every = max(1, len(people))

    def rank(row: tuple[str, int]) -> tuple[bool, bool, bool, int]:
        # The one that is skipped comes last, also where it is the only one left of a share.
        return (row[1] == after, row[1] % every != share, row[1] <= after, row[1])

    return [pk for pk, _ in sorted(found, key=rank)]


@transaction.atomic
def claim_next(queue: Queue, user: User, after: int = -1) -> QueueItem | None:
    """The next item, held for this person from now on; what else they held here is let go."""
    Claim.objects.filter(item__queue=queue, user=user).delete()
    for pk in _ranked(queue, user, after):
        # Whoever holds the row is claiming or judging it just now: that one is taken.
        locked = QueueItem.objects.select_for_update(skip_locked=True, no_key=True, of=("self",))
        item = locked.select_related("queue").filter(pk=pk).first()
        if item is not None and _refusal(item, user) is None:
            _hold(item, user)
            return item
    return None


@transaction.atomic
def claim(item: QueueItem, user: User) -> Claim | None:
    """Hold an item, or hold it longer; None where it is judged by oneself already.

    Raises RefusedError (409) where others hold it or have judged it.
    """
    _lock(item)
    if item.verdicts.filter(reviewer=user).exists():
        return None
    if refusal := _refusal(item, user):
        raise conflict(refusal)
    return _hold(item, user)


def refusal(item: QueueItem, user: User) -> str | None:
    """Why this person cannot hold the item now, as `claim` would say; it is not held by asking."""
    return None if item.verdicts.filter(reviewer=user).exists() else _refusal(item, user)


def release(item: QueueItem, user: User) -> None:
    item.claims.filter(user=user).delete()


def _lock(item: QueueItem) -> None:
    QueueItem.objects.select_for_update(no_key=True).get(pk=item.pk)
    item.refresh_from_db(fields=["outcome"])


def _refusal(item: QueueItem, user: User) -> str | None:
    """Why this person cannot work on the item now."""
    needed = item.queue.reviews_per_item
    if not judgeable(QueueItem.objects.filter(pk=item.pk), user).exists():
        return "Others have judged this trajectory meanwhile; go on to the next one."
    given = item.verdicts.filter(adjudicates=False).count()
    held = item.claims.filter(expires_at__gt=timezone.now()).exclude(user=user)
    holders = list(held.select_related("user").order_by("claimed_at"))
    if given + len(holders) < needed:
        return None
    names = " and ".join(str(one.user) for one in holders)
    since = holders[0].claimed_at
    return (
        f"{names} began to review this trajectory at {since:%H:%M} UTC; go on to the next one. "
        "It comes back to you if it is left."
    )


def _hold(item: QueueItem, user: User) -> Claim:
    now = timezone.now()
    item.claims.filter(expires_at__lte=now).exclude(user=user).delete()
    held, _ = Claim.objects.update_or_create(
        item=item,
        user=user,
        defaults={"expires_at": now + LEASE},
        create_defaults={"claimed_at": now, "expires_at": now + LEASE},
    )
    return held


@transaction.atomic
def judge(
    item: QueueItem,
    user: User,
    *,
    choice: str,
    labels: Sequence[str] = (),
    scores: dict[str, int] | None = None,
    note: str = "",
) -> Verdict:
    """Give or change one's verdict; on a disputed item of others, a third person's ruling.

    Raises RefusedError: the rubric is not met (422), others were faster or hold it (409).
    """
    queue = item.queue
    if queue.closed_at is not None:
        raise conflict("This queue is closed: verdicts no longer change.")
    checked = _checked(queue, choice, labels, scores or {}, note)
    _lock(item)
    own = item.verdicts.filter(reviewer=user).first()
    ruled = item.verdicts.filter(adjudicates=True).select_related("reviewer").first()
    rules = own.adjudicates if own else item.outcome == "disputed"
    if ruled is not None and ruled.reviewer_id != user.pk:
        raise conflict(f"{ruled.reviewer} has ruled on this trajectory: its verdicts are settled.")
    if not rules and not may_judge(queue, user):
        raise PermissionDenied("This queue is assigned to other people.")
    if own is None and not rules and (refusal := _refusal(item, user)):
        raise conflict(refusal)
    verdict, _ = Verdict.objects.update_or_create(
        item=item, reviewer=user, defaults=checked | {"adjudicates": rules}
    )
    release(item, user)
    _settle(item)
    if rules:
        audit.record("verdict.rule", item.pk, user=user, project=queue.project, queue=queue.name)
    return verdict


def _checked(
    queue: Queue, choice: str, labels: Sequence[str], scores: dict[str, int], note: str
) -> dict[str, Any]:
    """A verdict's fields, held to the queue's rubric. Raises RefusedError."""
    rubric = Rubric.model_validate(queue.rubric)
    choices = CHOICES["single" if queue.style == "single" else "pairwise"]
    wanted = next((known for known in choices if known == choice), None)
    if wanted is None:
        expected = ", ".join(choices)
        raise invalid_field("choice", f"{choice!r} is no verdict of this queue: use {expected}.")
    if problems := rubric.problems(wanted, labels, scores, note):
        raise RefusedError(
            "; ".join(message for _, message in problems),
            [FieldProblem(path, message) for path, message in problems],
        )
    single = queue.style == "single"
    return {
        "accepted": wanted == "accepted" if single else None,
        "preferred": "" if single else wanted,
        "labels": [label for label in rubric.labels if label in labels],
        "scores": scores,
        "note": storable(note)[:MAX_NOTE],
    }


def _settle(item: QueueItem) -> None:
    """Keep with the item what its verdicts come to."""
    verdicts = list(Verdict.objects.filter(item=item))
    ruling = next((one.choice for one in verdicts if one.adjudicates), None)
    choices = [one.choice for one in verdicts if not one.adjudicates]
    item.outcome = outcome(choices, item.queue.reviews_per_item, ruling)
    item.save(update_fields=["outcome"])


@transaction.atomic
def withdraw(item: QueueItem, user: User) -> Verdict:
    """Take one's verdict back and hold the item again. The verdict as it was, no longer stored."""
    if item.queue.closed_at is not None:
        raise conflict("This queue is closed: verdicts no longer change.")
    _lock(item)
    verdict = item.verdicts.filter(reviewer=user).first()
    if verdict is None:
        raise conflict("You have given no verdict on this trajectory.")
    if not verdict.adjudicates and item.verdicts.filter(adjudicates=True).exists():
        raise conflict("A third person has ruled on this trajectory: its verdicts are settled.")
    verdict.delete()
    _settle(item)
    if not verdict.adjudicates:
        _hold(item, user)
    return verdict


def last_judged(queue: Queue, user: User) -> QueueItem | None:
    """The item on which this person gave or changed a verdict last."""
    newest = Verdict.objects.filter(item__queue=queue, reviewer=user).order_by("-changed_at")
    found = newest.select_related("item__queue").first()
    return found.item if found else None


@transaction.atomic
def mark_step(
    item: QueueItem, user: User, step: int, mark: str | None, note: str = ""
) -> StepMark | None:
    """Mark a step good, neutral or bad; None takes the mark away."""
    if item.queue.closed_at is not None:
        raise conflict("This queue is closed: marks no longer change.")
    if item.other_id is not None:
        raise invalid_field("step", "Steps are marked where one trajectory is judged, not of two.")
    if not may_judge(item.queue, user):
        raise PermissionDenied("This queue is assigned to other people.")
    if not 0 <= step < item.trajectory.steps:
        raise invalid_field(
            "step", f"There is no step {step}: the trajectory has {item.trajectory.steps}, from 0."
        )
    if mark is None:
        item.marks.filter(reviewer=user, step=step).delete()
        return None
    if mark not in ("good", "neutral", "bad"):
        raise invalid_field("mark", f"{mark!r} is no mark: use good, neutral or bad.")
    made, _ = StepMark.objects.update_or_create(
        item=item,
        reviewer=user,
        step=step,
        defaults={"mark": mark, "note": storable(note)[:MAX_MARK_NOTE]},
    )
    return made
