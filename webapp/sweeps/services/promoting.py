"""Promoting a trial that stopped at a rung and is among its best by now: its runs are resumed."""

from django.db import transaction
from django.utils import timezone

from webapp.experiments import services as experiments
from webapp.experiments.models import State
from webapp.problems import RefusedError
from webapp.sweeps.models import Sweep, TrialState
from webapp.sweeps.plan import SweepPlan
from webapp.sweeps.rungs import promotable
from webapp.sweeps.services.budget import worked_enough


def promote(sweep: Sweep, plan: SweepPlan) -> bool:
    """Promote one trial of a locked sweep, if there is one and the budget allows it."""
    found = promotable(sweep, plan) if plan.halving is not None else None
    if found is None:
        return False
    arrival, stands = found
    trial = arrival.trial
    runs = [one.run for one in trial.runs.select_related("run") if one.run is not None]
    stopped = [run for run in runs if run.state == State.STOPPED]
    if worked_enough(sweep, plan, sum(run.steps - run.step for run in stopped)):
        return False
    try:
        with transaction.atomic():
            for run in stopped:
                experiments.resume(run.pk, sweep.acts_for)
    except RefusedError:  # somebody else resumed it at this moment
        return False
    arrival.stays, arrival.promoted_at = True, timezone.now()
    arrival.save(update_fields=["stays", "promoted_at"])
    trial.state, trial.value, trial.told = TrialState.ACTIVE, None, False
    trial.message = (
        f"promoted at rung {arrival.rung + 1}: rank {stands.rank} of {stands.of} by then"
    )
    trial.save()
    return True
