"""Beginning a trial: whether there is a place, a budget and somebody to launch it, and which."""

from collections.abc import Collection, Sequence

from django.db import transaction

from engine.spec import ExperimentSpec
from webapp.accounts.models import Membership, Role
from webapp.experiments.services.launch import Launch, launch_run
from webapp.problems import RefusedError
from webapp.sweeps.models import Sweep, SweepState, Trial, TrialRun, TrialState
from webapp.sweeps.plan import SweepPlan
from webapp.sweeps.services.budget import Counted, counted, spent
from webapp.sweeps.services.control import lock, move
from webapp.sweeps.services.create import seeded, steps_of
from webapp.sweeps.services.promoting import promote
from webapp.sweeps.space import SearchError, params_of

REFUSALS = 50  # in a row, of a search that has no end of its own


@transaction.atomic
def begin(sweep_id: str) -> bool:
    """Promote or begin one trial, or note that the spec refuses it; False: there is nothing more
    to do now."""
    sweep = lock(sweep_id)
    plan = SweepPlan.model_validate(sweep.plan)
    trials = counted(sweep)
    if sweep.state != SweepState.RUNNING or trials.active >= plan.at_once:
        return False
    if reason := _may_not(sweep) or _refused_too_often(sweep, plan):
        move(sweep, SweepState.PAUSED, reason)
        return False
    if promote(sweep, plan):
        return True
    try:
        over, next_one = _next(sweep, plan, trials)
    except SearchError as error:
        move(sweep, SweepState.RUNNING, str(error))
        return False
    if next_one is not None:
        specs, problems = seeded(sweep.base, next_one.params, plan.seeds)
        if not specs:
            said = " ".join(dict.fromkeys(one.message for one in problems))
            _refuse(next_one, said)
            return True
        over = spent(sweep, plan, trials.launched, sum(map(steps_of, specs)))
        if not over:
            if sweep.state_reason:
                move(sweep, SweepState.RUNNING, "")
            _launch(next_one, plan, specs)
            return True
    if not trials.active:
        move(sweep, SweepState.FINISHED, over)
    return False


def _launch(trial: Trial, plan: SweepPlan, specs: Sequence[ExperimentSpec]) -> None:
    """The trial with its runs, one for each seed; where a launch is refused, why."""
    sweep = trial.sweep
    name = f"{sweep.name}-{trial.number + 1}"
    assert sweep.acts_for is not None
    try:
        with transaction.atomic():
            trial.save()
            for spec in specs:
                launch = Launch(
                    experiment=sweep.experiment.name,
                    name=f"{name}-seed-{spec.seed}" if len(specs) > 1 else name,
                    tags=[sweep.pk],
                    priority=plan.priority,
                )
                run = launch_run(sweep.project, sweep.acts_for, spec, launch)
                TrialRun.objects.create(trial=trial, run=run, seed=spec.seed)
    except RefusedError as refused:
        trial.pk = None
        _refuse(trial, refused.detail)


def _refuse(trial: Trial, message: str) -> None:
    trial.state, trial.message = TrialState.REFUSED, message
    trial.save()


def _next(sweep: Sweep, plan: SweepPlan, trials: Counted) -> tuple[str, Trial | None]:
    """Why there is no next trial, or the next one, not stored yet; exactly one is given."""
    if over := spent(sweep, plan, trials.launched):
        return over, None
    asked: int | None = None
    if plan.method == "tpe":
        from webapp.sweeps import tpe

        asked, params = tpe.ask(sweep.pk, plan, lambda numbers: _known(sweep, numbers))
    else:
        found = params_of(plan, trials.all)
        if found is None:
            return "every combination was tried", None
        params = found
    return "", Trial(sweep=sweep, number=trials.all, params=params, asked=asked)


def _known(sweep: Sweep, numbers: Collection[int]) -> set[int]:
    """Which of these numbers of the search trials have already."""
    found = sweep.trials.filter(asked__in=numbers).values_list("asked", flat=True)
    return {number for number in found if number is not None}


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


def _refused_too_often(sweep: Sweep, plan: SweepPlan) -> str:
    if plan.method == "grid":
        return ""
    newest = sweep.trials.filter(number__gte=sweep.watched_from).order_by("-number")
    last = list(newest.values_list("state", "message")[:REFUSALS])
    if len(last) < REFUSALS or any(state != TrialState.REFUSED for state, _ in last):
        return ""
    return f"The spec refused the last {REFUSALS} combinations, the newest with: {last[0][1]}"
