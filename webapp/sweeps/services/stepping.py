"""One step of a sweep, as often as anybody likes: what ended is taken in, who trails at a rung is
stopped, and trials begin while places and budget allow.

Each part is a transaction under the sweep's row lock, and a trial is stored with its run: a worker
that dies in between leaves nothing half done and nothing to do twice.
"""

from contextlib import suppress

from django.db import transaction

from webapp.experiments.models import Run, State
from webapp.sweeps import halving
from webapp.sweeps.models import Sweep, SweepState, Trial, TrialState
from webapp.sweeps.plan import SweepPlan
from webapp.sweeps.reports import Report, last_value, reports_at
from webapp.sweeps.services.beginning import begin
from webapp.sweeps.services.control import lock, move, stop_run
from webapp.sweeps.space import SearchError

FAILURES = 3  # in a row, until somebody should look
AT_A_TIME = 200  # combinations looked at in one step

RUN_ENDED = (State.SUCCEEDED, State.STOPPED, State.FAILED, State.LOST)  # interrupted: goes on


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
    """Judge at rungs, in the order in which trials came there, and end trials whose run ended."""
    sweep = lock(sweep_id)
    plan = SweepPlan.model_validate(sweep.plan)
    active = list(sweep.trials.filter(state=TrialState.ACTIVE).select_related("run"))
    if plan.halving is not None:
        _judge(sweep, plan, active)
    for trial in active:
        if trial.run is None:
            _end(trial, TrialState.FAILED, None, "its run was deleted")
        elif trial.run.state in RUN_ENDED:
            _end_with(trial, trial.run, plan)
    if sweep.state == SweepState.RUNNING and (failures := _failures(sweep)):
        move(sweep, SweepState.PAUSED, failures)


def _judge(sweep: Sweep, plan: SweepPlan, active: list[Trial]) -> None:
    """One rung after the other, so that equally old reports are judged rung by rung."""
    rule = plan.halving
    assert rule is not None
    at_rung: dict[int, list[float]] = {}
    for rungs in sweep.trials.order_by("number").values_list("rungs", flat=True):
        for rung, brought in enumerate(rungs):
            at_rung.setdefault(rung, []).append(float(brought["value"]))
    waiting = {trial.pk: trial for trial in active if trial.run is not None and not trailed(trial)}
    while waiting:
        wanted = {
            pk: (
                trial.run_id or "",
                halving.rung_step(len(trial.rungs), rule.min_steps, rule.factor),
            )
            for pk, trial in waiting.items()
        }
        arrivals = sorted(
            reports_at(plan.metric, wanted).items(), key=lambda item: (item[1].at, item[0])
        )
        for pk, report in arrivals:
            trial = waiting[pk]
            before = at_rung.setdefault(len(trial.rungs), [])
            verdict = halving.judge(report.value, before, rule.factor, plan.maximises)
            before.append(report.value)
            _keep(trial, report, verdict)
            if not verdict.stays and trial.run is not None:
                stop_run(trial.run.pk, None, trial.message)
        waiting = {pk: waiting[pk] for pk, _ in arrivals if not trailed(waiting[pk])}


def trailed(trial: Trial) -> bool:
    """Whether it was stopped at its last rung."""
    return bool(trial.rungs) and not trial.rungs[-1]["stays"]


def _keep(trial: Trial, report: Report, verdict: halving.Verdict) -> None:
    trial.rungs = [
        *trial.rungs,
        {
            "step": report.step,
            "value": report.value if _is_number(report.value) else str(report.value),
            "rank": verdict.rank,
            "of": verdict.of,
            "stays": verdict.stays,
        },
    ]
    trial.message = (
        f"rung {len(trial.rungs)}, step {report.step}: rank {verdict.rank} of {verdict.of}"
    )
    if not verdict.stays:
        trial.message = f"stopped at {trial.message}"
    trial.save(update_fields=["rungs", "message"])


def _is_number(value: float) -> bool:
    return value - value == 0  # neither NaN nor infinite, which JSON has no word for


def _end_with(trial: Trial, run: Run, plan: SweepPlan) -> None:
    value = last_value(run, plan.metric)
    if trailed(trial) and run.state != State.SUCCEEDED:  # which may end before it hears
        _end(trial, TrialState.PRUNED, value, trial.message)
    elif run.state in (State.FAILED, State.LOST):
        _end(trial, TrialState.FAILED, value, run.state_reason or f"its run is {run.state}")
    elif run.state == State.STOPPED:
        _end(trial, TrialState.STOPPED, value, run.state_reason)
    elif value is None:
        _end(trial, TrialState.FAILED, None, f"its run reported no finite {plan.metric}")
    else:
        _end(trial, TrialState.COMPLETE, value, trial.message)


def _end(trial: Trial, state: TrialState, value: float | None, message: str) -> None:
    trial.state, trial.value, trial.message = state, value, message
    trial.save()


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
    for trial in ended:
        assert trial.asked is not None
        reached = [(one["step"], float(one["value"])) for one in trial.rungs]
        if trial.state == TrialState.PRUNED and all(_is_number(value) for _, value in reached):
            tpe.tell_pruned(sweep.pk, plan, trial.asked, reached)
        else:
            done = trial.state == TrialState.COMPLETE
            tpe.tell(sweep.pk, plan, trial.asked, trial.value if done else None)
        trial.told = True
        trial.save(update_fields=["told"])
