"""Reads of sweeps: lists with their progress, one sweep with its trials."""

from collections import Counter
from dataclasses import dataclass

from django.db.models import Count, Max, Min, Q, QuerySet

from webapp.accounts.access import Actor, visible
from webapp.experiments.models import HEAVY_BY_RUN
from webapp.monitoring.sparks import sparks
from webapp.paging import keyset
from webapp.sweeps.models import Sweep, Trial, TrialState
from webapp.sweeps.plan import SweepPlan
from webapp.sweeps.services.budget import hours_spent, steps_spent

COMPARED = 20
BY_NUMBER = "number"
BY_VALUE = "value"


@dataclass(frozen=True)
class SweepRow:
    """A sweep in a list."""

    sweep: Sweep
    plan: SweepPlan
    launched: int
    active: int
    refused: int
    most: int | None  # trials that it launches at most; None: another budget ends it
    best: float | None


def list_sweeps(
    actor: Actor, project: str | None = None, cursor: str | None = None, limit: int = 50
) -> tuple[list[SweepRow], str | None]:
    """The actor's sweeps, the newest first, and the cursor of the next page."""
    rows = visible(Sweep.objects.all(), actor)
    if project:
        rows = rows.filter(project_id=project)
    complete = Q(trials__state=TrialState.COMPLETE)
    rows = rows.select_related("project", "experiment", "created_by").annotate(
        launched=Count("trials", filter=~Q(trials__state=TrialState.REFUSED)),
        active=Count("trials", filter=Q(trials__state=TrialState.ACTIVE)),
        refused=Count("trials", filter=Q(trials__state=TrialState.REFUSED)),
        lowest=Min("trials__value", filter=complete),
        highest=Max("trials__value", filter=complete),
    )
    page = keyset(rows.defer("base"), ("-created_at", "-id"), cursor, limit)
    return [_row(sweep) for sweep in page.items], page.next_cursor


def _row(sweep: Sweep) -> SweepRow:
    plan = SweepPlan.model_validate(sweep.plan)
    counted = vars(sweep)  # with what the query counted
    return SweepRow(
        sweep,
        plan,
        counted["launched"],
        counted["active"],
        counted["refused"],
        most_trials(plan, counted["refused"]),
        counted["highest" if plan.maximises else "lowest"],
    )


def most_trials(plan: SweepPlan, refused: int = 0) -> int | None:
    """How many trials a plan launches at most; None: only steps or hours end it."""
    size = plan.grid_size() - refused if plan.method == "grid" else None
    limits = [one for one in (size, plan.budget.trials) if one is not None]
    return min(limits) if limits else None


@dataclass(frozen=True)
class SweepDetail:
    """A sweep with its trials, in the order asked for."""

    sweep: Sweep
    plan: SweepPlan
    trials: list[Trial]
    now: dict[int, float | None]  # by trial at work, the newest value of the metric
    counts: dict[str, int]  # trials by state
    most: int | None
    best: Trial | None
    steps: int  # taken by trials that ended, or that those at work may take
    hours: float

    @property
    def launched(self) -> int:
        return len(self.trials) - self.counts.get(TrialState.REFUSED, 0)


def sweep_detail(sweep: Sweep, order: str = BY_NUMBER) -> SweepDetail:
    """`order`: by number, or by value with the best first and those without one last."""
    plan = SweepPlan.model_validate(sweep.plan)
    trials = list(trials_of(sweep))
    active = [one for one in trials if one.state == TrialState.ACTIVE]
    at_work = {one.run_id: one.pk for one in active if one.run_id}
    newest = sparks(list(at_work), [plan.metric], points=1)
    counts = Counter(one.state for one in trials)
    detail = SweepDetail(
        sweep,
        plan,
        trials,
        {at_work[run]: values[-1] for (run, _), values in newest.items()},
        dict(counts),
        most_trials(plan, counts[TrialState.REFUSED]),
        next(iter(ranked(plan, [one for one in trials if one.state == TrialState.COMPLETE])), None),
        steps_spent(trials),
        hours_spent(trials),
    )
    if order == BY_VALUE:
        trials[:] = ranked(plan, trials)
    return detail


def trials_of(sweep: Sweep) -> QuerySet[Trial]:
    return sweep.trials.select_related("run").defer(*HEAVY_BY_RUN).order_by("number")


def ranked(plan: SweepPlan, trials: list[Trial]) -> list[Trial]:
    """The best first; of equals the earlier; those without a value last."""
    sign = -1 if plan.maximises else 1

    def key(trial: Trial) -> tuple[bool, float, int]:
        return trial.value is None, sign * (trial.value or 0.0), trial.number

    return sorted(trials, key=key)


def compared(detail: SweepDetail) -> list[str]:
    """Ids of the runs of the best trials, to be compared."""
    best = ranked(detail.plan, detail.trials)
    return [one.run_id for one in best if one.run_id is not None][:COMPARED]
