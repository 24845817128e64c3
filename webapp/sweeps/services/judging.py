"""Judging at rungs: trials that reach one are compared there, and stopped where they trail."""

from collections.abc import Mapping, Sequence

from webapp.sweeps import halving
from webapp.sweeps.models import Arrival, Sweep, Trial
from webapp.sweeps.plan import SweepPlan
from webapp.sweeps.reports import Report, reports_at
from webapp.sweeps.rungs import verdict
from webapp.sweeps.services.control import stop_run


def judge(sweep: Sweep, plan: SweepPlan, active: Sequence[Trial]) -> set[int]:
    """Judge active trials, with their runs and rungs loaded; those that were stopped at a rung.

    One rung after the other, so that equally old reports are judged rung by rung.
    """
    if plan.halving is None:
        return set()
    reached = {trial.pk: len(trial.rungs.all()) for trial in active}
    trailing = {t.pk for t in active if any(not one.stays for one in t.rungs.all())}
    waiting = {trial.pk: trial for trial in active if trial.pk not in trailing}
    while waiting:
        arrivals = _arrivals(plan, waiting, reached)
        for pk, report in sorted(arrivals.items(), key=lambda item: (item[1].at, item[0])):
            if not _judged(sweep, plan, waiting[pk], reached[pk], report).stays:
                trailing.add(pk)
            reached[pk] += 1
        waiting = {pk: waiting[pk] for pk in arrivals if pk not in trailing}
    return trailing


def _arrivals(
    plan: SweepPlan, waiting: Mapping[int, Trial], reached: Mapping[int, int]
) -> dict[int, Report]:
    """By trial, what it brought to its next rung: the mean over its seeds, once all are there."""
    rule = plan.halving
    assert rule is not None
    wanted = {
        one.pk: (one.run_id or "", halving.rung_step(reached[pk], rule.min_steps, rule.factor))
        for pk, trial in waiting.items()
        for one in trial.runs.all()
    }
    reports = reports_at(plan.metric, wanted)
    found = {}
    for pk, trial in waiting.items():
        brought = [reports[one.pk] for one in trial.runs.all() if one.pk in reports]
        if brought and len(brought) == len(trial.runs.all()):
            mean = sum(one.value for one in brought) / len(brought)  # NaN where one is
            found[pk] = Report(max(b.step for b in brought), max(b.at for b in brought), mean)
    return found


def _judged(
    sweep: Sweep, plan: SweepPlan, trial: Trial, rung: int, report: Report
) -> halving.Verdict:
    """The verdict, which is kept; runs of a trial that trails are asked to stop."""
    found = verdict(sweep, plan, rung, report.value)
    Arrival.objects.create(
        sweep=sweep,
        trial=trial,
        rung=rung,
        step=report.step,
        value=report.value,
        rank=found.rank,
        of=found.of,
        stays=found.stays,
    )
    trial.message = f"rung {rung + 1}, step {report.step}: rank {found.rank} of {found.of}"
    if not found.stays:
        trial.message = f"stopped at {trial.message}"
        for one in trial.runs.all():
            if one.run_id is not None:
                stop_run(one.run_id, None, trial.message)
    trial.save(update_fields=["message"])
    return found
