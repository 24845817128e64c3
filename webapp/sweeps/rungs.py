"""What trials brought to the rungs of a sweep, counted in the database: a rung may hold thousands.

PostgreSQL takes NaN for the greatest number, and Infinity for the next: only finite values count.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Exists, Max, Min, OuterRef, Q, QuerySet

from webapp.experiments.models import Checkpoint, State
from webapp.sweeps import halving
from webapp.sweeps.models import Arrival, Sweep, TrialRun, TrialState
from webapp.sweeps.plan import SweepPlan

FINITE = Q(value__gt=-math.inf, value__lt=math.inf)


@dataclass(frozen=True)
class RungRow:
    """A rung of a sweep, and what became of those that came there."""

    rung: int  # from 0
    step: int
    arrived: int
    went_on: int  # at once or promoted
    promoted: int
    best: float | None


def verdict(sweep: Sweep, plan: SweepPlan, rung: int, value: float) -> halving.Verdict:
    """Of a trial that brings `value` to a rung, against all that came there before."""
    assert plan.halving is not None
    found = sweep.arrivals.filter(rung=rung).aggregate(
        before=Count("pk"), better=Count("pk", filter=_better(value, plan))
    )
    return halving.judge(value, found["better"], found["before"], plan.halving.factor)


def promotable(sweep: Sweep, plan: SweepPlan) -> tuple[Arrival, halving.Verdict] | None:
    """Who stopped at a rung and is among the best of it by now, and where it stands: the best of
    the highest rung that has one. Of equal values the earlier counts as better."""
    assert plan.halving is not None
    waiting = _waiting(sweep)
    rungs = waiting.order_by("-rung").values_list("rung", flat=True).distinct()
    order = ("-value" if plan.maximises else "value", "pk")
    for rung in list(rungs):
        best = waiting.filter(rung=rung).order_by(*order)[0]
        ahead = _better(best.value, plan) | Q(value=best.value, pk__lt=best.pk)
        found = sweep.arrivals.filter(rung=rung).aggregate(
            of=Count("pk"), ahead=Count("pk", filter=ahead)
        )
        if found["ahead"] < halving.top(found["of"], plan.halving.factor):
            return best, halving.Verdict(found["ahead"] + 1, found["of"], True)
    return None


def _waiting(sweep: Sweep) -> QuerySet[Arrival]:
    """Where trials stopped whose runs can be resumed: not those that people put away, nor those
    whose checkpoints are gone."""
    kept = Checkpoint.objects.filter(run=OuterRef("run"), removed_at=None)
    can = Q(run__state=State.STOPPED, run__archived_at=None) & Exists(kept)
    lost = TrialRun.objects.filter(trial=OuterRef("trial"))
    lost = lost.filter(Q(run=None) | ~(Q(run__state=State.SUCCEEDED) | can))
    return sweep.arrivals.filter(FINITE, ~Exists(lost), stays=False, trial__state=TrialState.PRUNED)


def rung_rows(sweep: Sweep, plan: SweepPlan) -> Sequence[RungRow]:
    """The rungs that trials have reached, the lowest first."""
    if plan.halving is None:
        return []
    best = Max if plan.maximises else Min
    rows = sweep.arrivals.values("rung").annotate(
        arrived=Count("pk"),
        went_on=Count("pk", filter=Q(stays=True)),
        promoted=Count("promoted_at"),
        best=best("value", filter=FINITE),
    )
    rule = plan.halving
    return [
        RungRow(step=halving.rung_step(row["rung"], rule.min_steps, rule.factor), **row)
        for row in rows.order_by("rung")
    ]


def _better(value: float, plan: SweepPlan) -> Q:
    side = Q(value__gt=value) if plan.maximises else Q(value__lt=value)
    return side & FINITE
