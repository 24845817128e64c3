"""Reads of sweeps: lists with their progress, one sweep with its trials."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, F, Max, Min, Q
from django.db.models.expressions import OrderBy
from django.db.models.functions import Mod

from webapp.accounts.access import Actor, visible
from webapp.monitoring.sparks import sparks
from webapp.paging import keyset
from webapp.sweeps.models import Sweep, Trial, TrialState, with_runs
from webapp.sweeps.plan import SweepPlan
from webapp.sweeps.rungs import RungRow, rung_rows
from webapp.sweeps.services.budget import hours_spent, steps_spent

COMPARED = 20
BY_NUMBER = "number"
BY_VALUE = "value"
SHOWN = (TrialState.COMPLETE, TrialState.PRUNED)  # in pictures
MOST_DRAWN = 1000


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
    """A sweep with what its trials come to, counted in the database."""

    sweep: Sweep
    plan: SweepPlan
    counts: dict[str, int]  # trials by state
    most: int | None
    best: Trial | None
    rungs: Sequence[RungRow]
    steps: int  # taken by trials that ended, or that those at work may take
    hours: float

    @property
    def launched(self) -> int:
        return sum(self.counts.values()) - self.counts.get(TrialState.REFUSED, 0)

    @property
    def promoted(self) -> int:
        """How often a trial that was stopped at a rung went on."""
        return sum(row.promoted for row in self.rungs)


def sweep_detail(sweep: Sweep) -> SweepDetail:
    plan = SweepPlan.model_validate(sweep.plan)
    rows = sweep.trials.values("state").annotate(count=Count("pk")).values_list("state", "count")
    counts = dict(rows.order_by())
    complete = sweep.trials.filter(state=TrialState.COMPLETE)
    return SweepDetail(
        sweep,
        plan,
        counts,
        most_trials(plan, counts.get(TrialState.REFUSED, 0)),
        with_runs(complete.order_by(*best_first(plan))[:1]).first(),
        rung_rows(sweep, plan),
        steps_spent(sweep),
        hours_spent(sweep),
    )


def best_first(plan: SweepPlan) -> tuple[OrderBy, str]:
    """Of equals the earlier; those without a value last."""
    value = F("value")
    best = value.desc(nulls_last=True) if plan.maximises else value.asc(nulls_last=True)
    return best, "number"


def trials_of(sweep: Sweep, plan: SweepPlan, order: str, limit: int) -> list[Trial]:
    """`order`: by number, or by value with the best first and those without one last."""
    by = best_first(plan) if order == BY_VALUE else ("number",)
    return list(with_runs(sweep.trials.order_by(*by)[:limit]))


def newest_values(plan: SweepPlan, trials: Sequence[Trial]) -> dict[int, float | None]:
    """By trial at work, the newest value of the metric: its mean over the seeds that have one."""
    active = [one for one in trials if one.state == TrialState.ACTIVE]
    of_run = {one.run_id: trial.pk for trial in active for one in trial.runs.all() if one.run_id}
    found: dict[int, list[float]] = {}
    for (run, _), values in sparks(list(of_run), [plan.metric], points=1).items():
        if (value := values[-1]) is not None:
            found.setdefault(of_run[run], []).append(value)
    return {trial: sum(values) / len(values) for trial, values in found.items()}


def compared(sweep: Sweep, plan: SweepPlan) -> list[str]:
    """Ids of the runs of the best trials, to be compared."""
    trials = trials_of(sweep, plan, BY_VALUE, COMPARED)
    runs = [one.run_id for trial in trials for one in trial.runs.all() if one.run_id is not None]
    return runs[:COMPARED]


def drawn(sweep: Sweep) -> list[Trial]:
    """Trials with a value, by their number: all of few, one in so many of many."""
    rows = sweep.trials.filter(value__isnull=False, state__in=SHOWN).order_by("number")
    every = -(-rows.count() // MOST_DRAWN)
    if every > 1:
        rows = rows.annotate(in_turn=Mod(F("number"), every)).filter(in_turn=0)
    return list(rows.prefetch_related("runs"))
