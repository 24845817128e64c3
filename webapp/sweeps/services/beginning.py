"""Beginning a trial: whether there is a place, a budget and somebody to launch it, and which."""

from typing import Any

from django.db import transaction

from engine.spec import ExperimentSpec
from webapp.accounts.models import Membership, Role
from webapp.experiments.models import HEAVY_BY_RUN
from webapp.experiments.services.launch import Launch, launch_run
from webapp.problems import RefusedError
from webapp.sweeps.models import Sweep, SweepState, Trial, TrialState
from webapp.sweeps.plan import SweepPlan
from webapp.sweeps.services.budget import spent
from webapp.sweeps.services.control import lock, move
from webapp.sweeps.services.create import specified, steps_of
from webapp.sweeps.space import Params, SearchError, params_of

REFUSALS = 50  # in a row, of a search that has no end of its own


@transaction.atomic
def begin(sweep_id: str) -> bool:
    """Begin one trial, or note that the spec refuses it; False: there is nothing more to do now."""
    sweep = lock(sweep_id)
    plan = SweepPlan.model_validate(sweep.plan)
    at_work = sweep.trials.filter(state=TrialState.ACTIVE).count()
    if sweep.state != SweepState.RUNNING or at_work >= plan.at_once:
        return False
    trials = list(
        sweep.trials.order_by("number")
        .select_related("run")
        .defer(*HEAVY_BY_RUN, "run__headline", "rungs")
    )
    if reason := _may_not(sweep) or _refused_too_often(sweep, plan, trials):
        move(sweep, SweepState.PAUSED, reason)
        return False
    try:
        over, asked, params = _next(sweep, plan, trials)
    except SearchError as error:
        move(sweep, SweepState.RUNNING, str(error))
        return False
    if not over and params is not None:
        spec, problems = specified(sweep.base, params)
        if spec is None:
            said = " ".join(dict.fromkeys(one.message for one in problems))
            _add(sweep, trials, params, asked, state=TrialState.REFUSED, message=said)
            return True
        over = spent(plan, trials, steps_of(spec))
        if not over:
            if sweep.state_reason:
                move(sweep, SweepState.RUNNING, "")
            _launch(sweep, plan, trials, spec, params, asked)
            return True
    if not at_work:
        move(sweep, SweepState.FINISHED, over)
    return False


def _launch(
    sweep: Sweep,
    plan: SweepPlan,
    trials: list[Trial],
    spec: ExperimentSpec,
    params: Params,
    asked: int | None,
) -> None:
    """The trial with its run; where the launch is refused, why."""
    launch = Launch(
        experiment=sweep.experiment.name,
        name=f"{sweep.name}-{len(trials) + 1}",
        tags=[sweep.pk],
        priority=plan.priority,
    )
    assert sweep.acts_for is not None
    try:
        with transaction.atomic():
            run = launch_run(sweep.project, sweep.acts_for, spec, launch)
    except RefusedError as refused:
        _add(sweep, trials, params, asked, state=TrialState.REFUSED, message=refused.detail)
    else:
        _add(sweep, trials, params, asked, run=run)


def _add(
    sweep: Sweep, trials: list[Trial], params: Params, asked: int | None, **fields: Any
) -> None:
    Trial.objects.create(sweep=sweep, number=len(trials), params=params, asked=asked, **fields)


def _next(
    sweep: Sweep, plan: SweepPlan, trials: list[Trial]
) -> tuple[str, int | None, Params | None]:
    """Why there is no next trial, or its number in the search, if it has one, and its values."""
    if over := spent(plan, trials):
        return over, None, None
    if plan.method != "tpe":
        params = params_of(plan, len(trials))
        return ("" if params else "every combination was tried"), None, params
    from webapp.sweeps import tpe

    known = {trial.asked for trial in trials if trial.asked is not None}
    asked, params = tpe.ask(sweep.pk, plan, known)
    return "", asked, params


def _may_not(sweep: Sweep) -> str:
    """Why nobody launches its trials any more; empty: somebody does."""
    if sweep.acts_for is None:
        return "Who launched it is gone: an editor who continues it launches its further trials."
    role = Membership.objects.filter(user=sweep.acts_for, project=sweep.project).first()
    if role is None or Role(role.role).rank < Role.EDITOR.rank:
        return (
            f"{sweep.acts_for} may not launch in this project any more: an editor who continues "
            "it launches its further trials."
        )
    return ""


def _refused_too_often(sweep: Sweep, plan: SweepPlan, trials: list[Trial]) -> str:
    last = [one for one in trials if one.number >= sweep.watched_from][-REFUSALS:]
    if plan.method == "grid" or len(last) < REFUSALS:
        return ""
    if any(one.state != TrialState.REFUSED for one in last):
        return ""
    return f"The spec refused the last {REFUSALS} combinations, the newest with: {last[-1].message}"
