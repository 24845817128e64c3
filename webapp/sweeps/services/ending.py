"""The end of a trial: what its runs came to, one for each seed."""

from webapp.experiments.models import State
from webapp.sweeps.models import Trial, TrialRun, TrialState
from webapp.sweeps.plan import SweepPlan
from webapp.sweeps.reports import last_value
from webapp.sweeps.services.control import stop_run

RUN_ENDED = (State.SUCCEEDED, State.STOPPED, State.FAILED, State.LOST)  # interrupted: goes on
WENT_WRONG = (State.FAILED, State.LOST)


def end_if_over(trial: Trial, plan: SweepPlan, trails: bool) -> None:
    """End a trial, loaded with its runs, all of whose runs ended. Where one ended without a result
    the others are asked to stop: a mean over fewer seeds is not compared with one over all.

    `trails`: it was stopped at a rung.
    """
    runs = list(trial.runs.all())
    at_work = [one for one in runs if not _is_over(one)]
    if not at_work:
        _end(trial, runs, plan, trails)
    elif not trails and (lacks := _without_result(runs)):
        for one in at_work:
            assert one.run_id is not None
            stop_run(one.run_id, None, f"the run of seed {lacks.seed} of its trial has no result")


def _is_over(one: TrialRun) -> bool:
    return one.run is None or one.run.state in RUN_ENDED


def _without_result(runs: list[TrialRun]) -> TrialRun | None:
    """The run that says why there is none: one that failed before one that somebody stopped."""

    def find(*states: State) -> TrialRun | None:
        return next((one for one in runs if one.run and one.run.state in states), None)

    deleted = next((one for one in runs if one.run is None), None)
    return deleted or find(*WENT_WRONG) or find(State.STOPPED)


def _end(trial: Trial, runs: list[TrialRun], plan: SweepPlan, trails: bool) -> None:
    for one in runs:
        one.value = None if one.run is None else last_value(one.run, plan.metric)
        one.save(update_fields=["value"])
    values = [one.value for one in runs if one.value is not None]
    trial.value = sum(values) / len(runs) if len(values) == len(runs) else None
    trial.state, trial.message = _outcome(trial, runs, plan, trails)
    trial.save()


def _outcome(
    trial: Trial, runs: list[TrialRun], plan: SweepPlan, trails: bool
) -> tuple[TrialState, str]:
    lacks = _without_result(runs)
    if trails and lacks is not None and lacks.run is not None:
        return TrialState.PRUNED, trial.message
    if lacks is not None:
        state, said = TrialState.FAILED, "its run was deleted"
        if lacks.run is not None:
            said = lacks.run.state_reason or f"its run is {lacks.run.state}"
            state = TrialState.STOPPED if lacks.run.state == State.STOPPED else state
        return state, f"seed {lacks.seed}: {said}" if len(runs) > 1 else said
    if trial.value is None:
        return TrialState.FAILED, f"its run reported no finite {plan.metric}"
    return TrialState.COMPLETE, trial.message
