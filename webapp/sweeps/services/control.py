"""What people ask of a sweep: pause, go on, stop."""

from django.db import transaction
from django.utils import timezone

from webapp import queue
from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.experiments import services as experiments
from webapp.problems import RefusedError, conflict
from webapp.sweeps.models import Sweep, SweepState, TrialRun, TrialState

ENDED = (SweepState.FINISHED, SweepState.STOPPED)


def lock(sweep_id: str) -> Sweep:
    """The sweep, its row locked until the transaction ends."""
    return Sweep.objects.select_for_update(no_key=True).get(pk=sweep_id)


@transaction.atomic
def pause_sweep(sweep_id: str, user: User) -> Sweep:
    """Begin no further trial; those at work go on, and halving with them."""
    sweep = _going(sweep_id)
    if sweep.state == SweepState.RUNNING:
        move(sweep, SweepState.PAUSED, f"paused by {user}")
        record("sweep.pause", sweep.pk, user=user, project=sweep.project)
    return sweep


@transaction.atomic
def continue_sweep(sweep_id: str, user: User) -> Sweep:
    """Go on, in the name of who asks for it; failures before count no more."""
    sweep = _going(sweep_id)
    if sweep.state == SweepState.PAUSED:
        sweep.acts_for = user
        sweep.watched_from = sweep.trials.count()
        move(sweep, SweepState.RUNNING, "")
        record("sweep.continue", sweep.pk, user=user, project=sweep.project)
        queue.send("caravan.sweep", sweep.pk)
    return sweep


@transaction.atomic
def stop_sweep(sweep_id: str, user: User) -> Sweep:
    """End the sweep and ask the runs of its trials to save a checkpoint and end."""
    sweep = _going(sweep_id)
    runs = TrialRun.objects.filter(trial__sweep=sweep, trial__state=TrialState.ACTIVE)
    for run_id in runs.exclude(run=None).values_list("run", flat=True):
        stop_run(run_id, user, f"its sweep was stopped by {user}")
    move(sweep, SweepState.STOPPED, f"stopped by {user}")
    record("sweep.stop", sweep.pk, user=user, project=sweep.project)
    return sweep


def stop_run(run_id: str, user: User | None, reason: str) -> None:
    """Ask a run to end; one that has ended meanwhile is no error."""
    try:
        experiments.stop(run_id, user, reason)
    except RefusedError as refused:
        if refused.status != conflict("").status:
            raise


def move(sweep: Sweep, to: SweepState, reason: str) -> None:
    """Move a locked sweep."""
    sweep.state, sweep.state_reason = to, reason
    if to in ENDED:
        sweep.ended_at = timezone.now()
    sweep.save()


def _going(sweep_id: str) -> Sweep:
    sweep = lock(sweep_id)
    if sweep.state in ENDED:
        raise conflict(f"This sweep is {sweep.state} already.")
    return sweep
