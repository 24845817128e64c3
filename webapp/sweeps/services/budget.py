"""What the trials of a sweep have taken, against what they may take."""

from collections.abc import Sequence

from webapp.experiments.models import Attempt
from webapp.experiments.queries import elapsed_s
from webapp.sweeps.models import Trial, TrialState
from webapp.sweeps.plan import SweepPlan


def spent(plan: SweepPlan, trials: Sequence[Trial], next_steps: int = 0) -> str:
    """Which budget a next trial of so many steps would go beyond, in words; empty: none."""
    budget = plan.budget
    if budget.trials is not None and launched(trials) >= budget.trials:
        return f"all {budget.trials} trials of the budget were launched"
    if budget.steps is not None and steps_spent(trials) + max(next_steps, 1) > budget.steps:
        return f"the budget of {budget.steps:,} steps has no place for another trial"
    if budget.hours is not None and hours_spent(trials) >= budget.hours:
        return f"the trials worked for the {budget.hours:g} hours of the budget"
    return ""


def launched(trials: Sequence[Trial]) -> int:
    return sum(trial.state != TrialState.REFUSED for trial in trials)


def steps_spent(trials: Sequence[Trial]) -> int:
    """Trainer steps that ended runs took and that the others will take at most."""
    runs = [trial.run for trial in trials if trial.run is not None]
    return sum(run.step if run.ended_at is not None else run.steps for run in runs)


def hours_spent(trials: Sequence[Trial]) -> float:
    runs = [trial.run_id for trial in trials if trial.run_id is not None]
    return (elapsed_s(list(Attempt.objects.filter(run__in=runs))) or 0.0) / 3600
