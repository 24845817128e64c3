"""What the trials of a sweep have taken, against what they may take; counted in the database."""

from dataclasses import dataclass

from django.db.models import Case, Count, DurationField, F, Q, Sum, When
from django.db.models.functions import Coalesce, Now

from webapp.experiments.models import Attempt
from webapp.sweeps.models import Sweep, TrialRun, TrialState
from webapp.sweeps.plan import SweepPlan


@dataclass(frozen=True)
class Counted:
    """Trials of a sweep."""

    all: int  # the number of the next one
    active: int
    launched: int


def counted(sweep: Sweep) -> Counted:
    found = sweep.trials.aggregate(
        all=Count("pk"),
        active=Count("pk", filter=Q(state=TrialState.ACTIVE)),
        launched=Count("pk", filter=~Q(state=TrialState.REFUSED)),
    )
    return Counted(**found)


def spent(sweep: Sweep, plan: SweepPlan, launched: int, next_steps: int = 0) -> str:
    """Which budget a next trial of so many steps would go beyond, in words; empty: none."""
    if plan.budget.trials is not None and launched >= plan.budget.trials:
        return f"all {plan.budget.trials} trials of the budget were launched"
    return worked_enough(sweep, plan, next_steps)


def worked_enough(sweep: Sweep, plan: SweepPlan, next_steps: int) -> str:
    """Which budget so many steps more would go beyond, in words; empty: none."""
    budget = plan.budget
    if budget.steps is not None and steps_spent(sweep) + max(next_steps, 1) > budget.steps:
        return f"the budget of {budget.steps:,} steps has no place for another trial"
    if budget.hours is not None and hours_spent(sweep) >= budget.hours:
        return f"the trials worked for the {budget.hours:g} hours of the budget"
    return ""


def steps_spent(sweep: Sweep) -> int:
    """Trainer steps that ended runs took and that the others will take at most."""
    taken = Case(When(run__ended_at=None, then=F("run__steps")), default=F("run__step"))
    runs = TrialRun.objects.filter(trial__sweep=sweep).exclude(run=None)
    return int(runs.aggregate(steps=Sum(taken))["steps"] or 0)


def hours_spent(sweep: Sweep) -> float:
    """Hours in which attempts worked; the pauses between them do not count."""
    attempts = Attempt.objects.filter(run__trial_run__trial__sweep=sweep)
    worked = Coalesce(F("ended_at"), Now()) - F("started_at")
    found = attempts.aggregate(worked=Sum(worked, output_field=DurationField()))["worked"]
    return found.total_seconds() / 3600 if found is not None else 0.0
