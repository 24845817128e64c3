"""Labels that contradict the reward: what people accepted and the scheme paid too little for, and
what they rejected and it paid. Each is a suspect of the reward scheme, not of the policy."""

from dataclasses import dataclass
from typing import Any

from django.db.models import (
    Avg,
    Case,
    CharField,
    Count,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)

from webapp.experiments.models import RewardScheme
from webapp.paging import Page, keyset
from webapp.reviews.models import QueueItem, Trajectory

SHOWN = 50

_group_mean = (
    Trajectory.objects.filter(
        run=OuterRef("trajectory__run"), group_id=OuterRef("trajectory__group_id")
    )
    .exclude(group_id="")
    .order_by()
    .values("group_id")
    .annotate(mean=Avg("reward"))
    .values("mean")
)


def suspects_of(scheme: RewardScheme) -> QuerySet[QueueItem]:
    """Items of single trajectories whose settled label contradicts the reward; with `contradiction`
    and `group_mean`, the mean reward of the stored trajectories of the same group.

    unpaid: accepted, and the task counts as failed. underpaid: accepted, solved, and its reward is
    below the mean of its group, so that training pushed it down. paid: rejected, and solved.
    """
    judged = QueueItem.objects.filter(
        other=None,
        outcome__in=["accepted", "rejected"],
        trajectory__run__reward_scheme__scheme=scheme,
    ).annotate(group_mean=Subquery(_group_mean))
    accepted = Q(outcome="accepted")
    return judged.annotate(
        contradiction=Case(
            When(accepted & Q(trajectory__success=False), then=Value("unpaid")),
            When(
                accepted & Q(trajectory__reward__lt=F("group_mean") - 1e-9),
                then=Value("underpaid"),
            ),
            When(Q(outcome="rejected", trajectory__success=True), then=Value("paid")),
            default=Value(""),
            output_field=CharField(),
        )
    ).exclude(contradiction="")


@dataclass(frozen=True)
class OfVersion:
    """Suspects of one version of a scheme; `judged` trajectories have a settled label."""

    number: int
    judged: int
    unpaid: int
    underpaid: int
    paid: int

    @property
    def suspects(self) -> int:
        return self.unpaid + self.underpaid + self.paid


def counts_of(scheme: RewardScheme) -> list[OfVersion]:
    """By version of which anything was judged, the newest first. A trajectory that is in several
    queues counts once for each kind of contradiction."""
    number = "trajectory__run__reward_scheme__number"
    judged = (
        QueueItem.objects.filter(
            other=None,
            outcome__in=["accepted", "rejected"],
            trajectory__run__reward_scheme__scheme=scheme,
        )
        .order_by()
        .values_list(number)
        .annotate(Count("trajectory", distinct=True))
    )
    found: dict[int, dict[str, Any]] = {
        version: {"unpaid": 0, "underpaid": 0, "paid": 0, "judged": n} for version, n in judged
    }
    kinds = suspects_of(scheme).order_by().values_list(number, "contradiction")
    for version, kind, n in kinds.annotate(n=Count("trajectory", distinct=True)):
        found[version][kind] = n
    return [OfVersion(version, **found[version]) for version in sorted(found, reverse=True)]


def page_of(
    scheme: RewardScheme,
    version: int | None = None,
    cursor: str | None = None,
    limit: int = SHOWN,
) -> Page[QueueItem]:
    """Of all versions, or of one; the newest items first."""
    rows = (
        suspects_of(scheme)
        .select_related("queue", "trajectory__run__reward_scheme")
        .prefetch_related("verdicts__reviewer")
    )
    if version is not None:
        rows = rows.filter(trajectory__run__reward_scheme__number=version)
    return keyset(rows.annotate(made=F("queue__created_at")), ("-made", "-id"), cursor, limit)
