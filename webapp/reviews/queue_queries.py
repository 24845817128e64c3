"""Reading review queues: where one stands, its items, how far its reviewers agree, what waits."""

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import (
    Count,
    Exists,
    ExpressionWrapper,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
)
from django.db.models.functions import Coalesce
from django.utils import timezone

from webapp.accounts.models import Project, User
from webapp.experiments.models import Checkpoint, DatasetVersion
from webapp.paging import keyset
from webapp.reviews.agreement import Pairwise, by_reviewers, krippendorff_alpha, share_of
from webapp.reviews.models import Claim, Queue, QueueItem, StepMark, Verdict
from webapp.reviews.rubric import Rubric

ITEMS = 100


def queues_of(project: Project) -> QuerySet[Queue]:
    """The newest first, each with `item_count`, `done_count` and `disputed_count`."""

    def counted(items: QuerySet[QueueItem]) -> Coalesce:
        numbers = items.filter(queue=OuterRef("pk")).order_by().values("queue")
        return Coalesce(Subquery(numbers.annotate(n=Count("pk")).values("n")), 0)

    return (
        Queue.objects.filter(project=project)
        .select_related("run", "created_by")
        .prefetch_related("assignees")
        .annotate(
            item_count=counted(QueueItem.objects.all()),
            done_count=counted(QueueItem.objects.exclude(outcome__in=["open", "disputed"])),
            disputed_count=counted(QueueItem.objects.filter(outcome="disputed")),
        )
        .order_by("-created_at")
    )


@dataclass(frozen=True)
class JudgedItem:
    item: QueueItem
    verdicts: list[Verdict]  # those that the person who asks may see
    claims: list[Claim]  # leases that have not ended


@dataclass(frozen=True)
class ItemPage:
    items: list[JudgedItem]
    next_cursor: str | None


@dataclass(frozen=True)
class Progress:
    """Items by outcome; verdicts of the person who asks, and what they could still judge."""

    counts: dict[str, int]
    mine: int
    left: int

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def done(self) -> int:
        return self.total - self.counts["open"] - self.counts["disputed"]


def progress_of(queue: Queue, user: User) -> Progress:
    found = queue.items.order_by().values_list("outcome").annotate(Count("pk"))
    names = ["open", "disputed", "accepted", "rejected"]
    if queue.style == "pairwise":
        names = ["open", "disputed", "first", "second", "same"]
    counts: dict[str, int] = dict.fromkeys(names, 0) | dict(found)
    mine = Verdict.objects.filter(item__queue=queue, reviewer=user).count()
    return Progress(counts, mine, judgeable(queue.items.all(), user).count())


def judgeable(items: QuerySet[QueueItem], user: User) -> QuerySet[QueueItem]:
    """Items that this person has not judged, and that lack verdicts."""
    given = (
        Verdict.objects.filter(item=OuterRef("pk"), adjudicates=False)
        .order_by()
        .values("item")
        .annotate(count=Count("pk"))
        .values("count")
    )
    return items.exclude(Exists(Verdict.objects.filter(item=OuterRef("pk"), reviewer=user))).filter(
        outcome="open", queue__reviews_per_item__gt=Coalesce(Subquery(given), 0)
    )


def free_for(queue: Queue, user: User, now: datetime) -> QuerySet[QueueItem]:
    """Judgeable items that others do not hold: as many leases as verdicts are wanted."""

    def number(rows: QuerySet[Verdict] | QuerySet[Claim]) -> Coalesce:
        counted = rows.filter(item=OuterRef("pk")).order_by().values("item")
        return Coalesce(Subquery(counted.annotate(n=Count("pk")).values("n")), 0)

    taken = ExpressionWrapper(
        number(Verdict.objects.filter(adjudicates=False))
        + number(Claim.objects.filter(expires_at__gt=now).exclude(user=user)),
        output_field=IntegerField(),
    )
    open_items = judgeable(queue.items.all(), user).annotate(taken=taken)
    return open_items.filter(taken__lt=queue.reviews_per_item)


def items_page(
    queue: Queue,
    user: User,
    outcome: str | None = None,
    cursor: str | None = None,
    limit: int = ITEMS,
    only: str | None = None,
) -> ItemPage:
    """Items by position, or the one with the id `only`, as `user` may see them.

    Double review is blind: others' verdicts show once the item is complete, or judged by oneself.
    """
    items = queue.items.select_related("trajectory", "other").prefetch_related(
        "verdicts__reviewer", "claims__user"
    )
    if only:
        items = items.filter(pk=only)
    if outcome:
        items = items.filter(outcome=outcome)
    page = keyset(items, ("position",), cursor, limit)
    now = timezone.now()
    return ItemPage(
        [
            JudgedItem(
                item,
                visible_verdicts(item, user),
                [claim for claim in item.claims.all() if claim.expires_at > now],
            )
            for item in page.items
        ],
        page.next_cursor,
    )


def visible_verdicts(item: QueueItem, user: User) -> list[Verdict]:
    """Others' only once one's own is given, or nothing of it is open; the ruling last."""
    verdicts = sorted(item.verdicts.all(), key=lambda one: (one.adjudicates, one.created_at))
    if item.outcome != "open" or any(one.reviewer_id == user.pk for one in verdicts):
        return verdicts
    return []


@dataclass(frozen=True)
class ScaleAgreement:
    name: str
    ordinal: float | None
    interval: float | None


@dataclass(frozen=True)
class Agreement:
    """Of items with two verdicts or more, rulings left out. `alpha`: Krippendorff's, nominal, of
    the choice and of each label; ordinal and interval of scales. None: not computed."""

    items: int
    share: float | None  # of pairs of verdicts on one item
    alpha: float | None
    reviewers: list[tuple[User, User, Pairwise]]  # each two with items in common
    labels: list[tuple[str, float | None]]
    scales: list[ScaleAgreement]


def agreement_of(queue: Queue) -> Agreement | None:
    """None where no item has two verdicts."""
    found: dict[str, list[Verdict]] = {}
    people: dict[int, User] = {}
    given = Verdict.objects.filter(item__queue=queue, adjudicates=False).select_related("reviewer")
    for verdict in given.order_by("item_id", "reviewer_id"):
        found.setdefault(verdict.item_id, []).append(verdict)
        people[verdict.reviewer_id] = verdict.reviewer
    items = [verdicts for verdicts in found.values() if len(verdicts) > 1]
    if not items:
        return None
    rubric = Rubric.model_validate(queue.rubric)
    code = {name: float(n) for n, name in enumerate(("rejected", "accepted", "first", "second"))}
    pairs: list[tuple[Hashable, Hashable]] = [
        (one.choice, two.choice)
        for verdicts in items
        for n, one in enumerate(verdicts)
        for two in verdicts[n + 1 :]
    ]
    return Agreement(
        items=len(items),
        share=share_of(pairs),
        alpha=krippendorff_alpha([[code.get(v.choice, -1.0) for v in one] for one in items]),
        reviewers=[
            (people[both.first], people[both.second], both)
            for both in by_reviewers([{v.reviewer_id: v.choice for v in one} for one in items])
        ],
        labels=[
            (label, krippendorff_alpha([[float(label in v.labels) for v in one] for one in items]))
            for label in rubric.labels
        ],
        scales=[_scale(scale.name, items) for scale in rubric.scales],
    )


def _scale(name: str, items: list[list[Verdict]]) -> ScaleAgreement:
    units = [[float(v.scores[name]) for v in one if name in v.scores] for one in items]
    return ScaleAgreement(
        name, krippendorff_alpha(units, "ordinal"), krippendorff_alpha(units, "interval")
    )


@dataclass(frozen=True)
class Reviewer:
    person: User
    verdicts: int
    accepted: int  # or a preference, in a pairwise queue


def reviewers_of(queue: Queue) -> list[Reviewer]:
    """Who gave verdicts, most first."""
    favourable = Q(accepted=True) | Q(preferred__in=["first", "second"])
    counted = (
        User.objects.filter(pk__in=Verdict.objects.filter(item__queue=queue).values("reviewer"))
        .annotate(
            given=_verdicts_in(queue, Q()),
            # Of items that are complete: the others are blind.
            favourable=_verdicts_in(queue, ~Q(item__outcome="open") & favourable),
        )
        .order_by("-given", "pk")
    )
    return [Reviewer(person, person.given, person.favourable) for person in counted]


def _verdicts_in(queue: Queue, which: Q) -> Coalesce:
    rows = Verdict.objects.filter(which, item__queue=queue, reviewer=OuterRef("pk"))
    numbers = rows.order_by().values("reviewer").annotate(n=Count("pk")).values("n")
    return Coalesce(Subquery(numbers), 0)


def marks_in(queue: Queue) -> int:
    """Steps that were marked, by whomever."""
    return StepMark.objects.filter(item__queue=queue).count()


def checkpoint_of(queue: Queue) -> Checkpoint | None:
    """The newest of the run whose trajectories are judged: what learns from the labels goes on
    from there."""
    if queue.run is None or queue.run.is_external:
        return None
    return queue.run.checkpoints.filter(removed_at=None).order_by("-created_at").first()


def versions_of(queue: Queue) -> QuerySet[DatasetVersion]:
    """Dataset versions made from the queue's verdicts, newest first, with the runs that learned."""
    return (
        DatasetVersion.objects.filter(
            dataset__project=queue.project_id, source__kind="labels", source__queue=queue.pk
        )
        .select_related("dataset", "created_by")
        .prefetch_related("stage_datasets__run")
        .order_by("-created_at")
    )


def waiting_for(user: User) -> QuerySet[Queue]:
    """Open queues assigned to a person that still have something for them, with `left`."""
    left = (
        judgeable(QueueItem.objects.filter(queue=OuterRef("pk")), user)
        .order_by()
        .values("queue")
        .annotate(count=Count("pk"))
        .values("count")
    )
    return (
        Queue.objects.filter(assignees=user, closed_at=None, project__memberships__user=user)
        .select_related("project")
        .annotate(left=Coalesce(Subquery(left), 0))
        .filter(left__gt=0)
        .order_by("created_at")
    )
