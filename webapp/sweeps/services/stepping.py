"""One step of a sweep, as often as anybody likes: what ended is taken in, who trails at a rung is
stopped, and trials are promoted or begin while places and budget allow.

Each part is a transaction under the sweep's row lock, and a trial is stored with its run: a worker
that dies in between leaves nothing half done and nothing to do twice.
"""

import math
from contextlib import suppress

from django.db import transaction

from webapp.sweeps.models import Sweep, SweepState, Trial, TrialState, with_runs
from webapp.sweeps.plan import SweepPlan
from webapp.sweeps.services.beginning import begin
from webapp.sweeps.services.control import lock, move
from webapp.sweeps.services.ending import end_if_over
from webapp.sweeps.services.judging import judge
from webapp.sweeps.space import Outcome, SearchError

FAILURES = 3  # in a row, until somebody should look
AT_A_TIME = 200  # combinations looked at in one step


def step_sweep(sweep_id: str) -> None:
    """Bring a sweep up to date. Run twice, or late, it changes nothing more."""
    if not Sweep.objects.filter(pk=sweep_id).exists():
        return
    _take_in(sweep_id)
    with suppress(SearchError):  # which the next question meets too, and tells
        _tell(sweep_id)
    for _ in range(AT_A_TIME):
        if not begin(sweep_id):
            return


@transaction.atomic
def _take_in(sweep_id: str) -> None:
    """Judge at rungs, in the order in which trials came there, and end trials whose runs ended."""
    sweep = lock(sweep_id)
    plan = SweepPlan.model_validate(sweep.plan)
    active = list(with_runs(sweep.trials.filter(state=TrialState.ACTIVE)))
    trailing = judge(sweep, plan, active)
    for trial in active:
        end_if_over(trial, plan, trial.pk in trailing)
    if sweep.state == SweepState.RUNNING and (failures := _failures(sweep)):
        move(sweep, SweepState.PAUSED, failures)


def _failures(sweep: Sweep) -> str:
    """Why somebody should look before more is spent; empty: nothing is wrong."""
    ended = sweep.trials.filter(number__gte=sweep.watched_from)
    ended = ended.exclude(state__in=(TrialState.ACTIVE, TrialState.REFUSED)).order_by("-number")
    last = list(ended[:FAILURES])
    if len(last) < FAILURES or any(one.state != TrialState.FAILED for one in last):
        return ""
    return f"The last {FAILURES} trials failed, the newest with: {last[0].message}"


@transaction.atomic
def _tell(sweep_id: str) -> None:
    """Tell the search what came of the trials that it made up."""
    sweep = lock(sweep_id)
    ended = sweep.trials.exclude(state=TrialState.ACTIVE).filter(asked__isnull=False, told=False)
    if not ended:
        return
    from webapp.sweeps import tpe

    plan = SweepPlan.model_validate(sweep.plan)
    for trial in with_runs(ended):
        assert trial.asked is not None
        tpe.tell(sweep.pk, plan, trial.asked, _outcome(trial))
        trial.told = True
        trial.save(update_fields=["told"])


def _outcome(trial: Trial) -> Outcome:
    rungs = list(trial.rungs.all())
    reached = {one.step: one.value for one in rungs if math.isfinite(one.value)}
    if trial.state == TrialState.PRUNED and math.isfinite(rungs[-1].value):
        return Outcome("pruned", None, reached)
    if trial.state == TrialState.COMPLETE:
        return Outcome("complete", trial.value, reached)
    return Outcome("failed", None, {})
