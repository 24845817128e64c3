"""REST of sweeps: what one would try, launching, reading, control."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema, Status

from engine.records.events import encode_number
from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import recipes
from webapp.experiments.api import presets
from webapp.experiments.api.schemas import ExperimentRef
from webapp.paging import keyset
from webapp.rest.schemas import Cursor, Limit, Person, ProjectRef
from webapp.sweeps import queries, services
from webapp.sweeps.models import Sweep, with_runs

router = Router(tags=["sweeps"])


class PlanIn(Schema):
    """What varies, what is better, and what all trials may take.

    `space`: [{"kind": "choice", "path": "stages.1.steps", "values": [..]}, {"kind": "uniform",
    "loguniform" or "int", "path": .., "low": .., "high": ..}]; `budget`: {"trials", "steps",
    "hours"}; `seeds`: runs of each trial, judged by their mean; `halving`: {"min_steps", "factor"}
    stops weak trials early and promotes them where others come to be weaker (ASHA).
    """

    method: str = "random"
    metric: str = "eval/completion_rate"
    direction: str = "maximise"
    space: list[dict[str, Any]]
    budget: dict[str, Any] = {}
    at_once: int = 2
    seeds: int = 1
    halving: dict[str, Any] | None = None
    seed: int = 0
    priority: int = 0


class PreviewIn(PlanIn):
    """One of spec (data or YAML text), recipe and preset; overrides are {"stages.1.steps": 10}."""

    spec: dict[str, Any] | str | None = None
    recipe: str | None = None
    preset: str | None = None
    overrides: dict[str, Any] = {}
    project: str | None = None


class SweepIn(PreviewIn):
    experiment: str = ""
    name: str = ""
    notes: str = ""


class RefusedOut(Schema):
    params: dict[str, Any]
    message: str


class PreviewOut(Schema):
    """`trials` at most, null where another budget ends it; of `tried` combinations, `refused`;
    `steps` of one trial with all its seeds, least and most."""

    trials: int | None
    tried: int
    refused: list[RefusedOut]
    steps: tuple[int, int]
    most_steps: int | None


class SweepOut(Schema):
    """A sweep in a list. `most`: trials that it launches at most."""

    id: str
    name: str
    project: ProjectRef
    experiment: ExperimentRef
    state: str
    state_reason: str
    method: str
    metric: str
    direction: str
    launched: int
    active: int
    refused: int
    most: int | None
    best: float | None
    created_by: Person | None
    created_at: datetime
    ended_at: datetime | None


class SweepPage(Schema):
    items: list[SweepOut]
    next_cursor: str | None


class TrialRunOut(Schema):
    """A run of a trial; `run_id` is null where it was deleted."""

    run_id: str | None
    seed: int
    value: float | None


class ArrivalOut(Schema):
    """What a trial brought to a rung, from 0 on; `rank` and `of` are of that moment."""

    rung: int
    step: int
    value: float | str
    rank: int
    of: int
    stays: bool
    promoted_at: datetime | None

    @staticmethod
    def resolve_value(arrival: Any) -> float | str:
        return encode_number(arrival.value)


class TrialOut(Schema):
    """`value`: mean over its runs; `band`: Student's 95% interval of it, null for one seed."""

    number: int
    runs: list[TrialRunOut]
    params: dict[str, Any]
    state: str
    value: float | None
    band: tuple[float, float] | None
    message: str
    rungs: list[ArrivalOut]

    @staticmethod
    def resolve_band(trial: Any) -> tuple[float, float] | None:
        return None if trial.band is None else (trial.band.lower, trial.band.upper)


class RungOut(Schema):
    """A rung, from 0 on: how many trials came there and went on, of them promoted later."""

    rung: int
    step: int
    arrived: int
    went_on: int
    promoted: int
    best: float | None


class SweepDetailOut(SweepOut):
    notes: str
    plan: dict[str, Any]
    base: dict[str, Any]
    counts: dict[str, int]
    steps: int
    hours: float
    rungs: list[RungOut]
    promoted: int
    best_trial: TrialOut | None


class TrialPage(Schema):
    items: list[TrialOut]
    next_cursor: str | None


@router.get("/sweeps", response=SweepPage)
def list_sweeps(
    request: HttpRequest, project: str | None = None, cursor: Cursor = None, limit: Limit = 50
) -> Any:
    """Sweeps, the newest first."""
    actor = access.actor_of(request)
    wanted = access.project_or_all(actor, project)
    rows, following = queries.list_sweeps(actor, wanted, cursor, limit)
    return {"items": [_row(one) for one in rows], "next_cursor": following}


@router.post("/sweeps/preview", response=PreviewOut)
def preview_sweep(request: HttpRequest, data: PreviewIn) -> Any:
    """What a sweep would try, or what is wrong with it; nothing is launched."""
    actor = access.actor_of(request)
    access.default_project(actor, data.project, Role.EDITOR)
    seen = services.preview(_base(data, actor), _plan(data))
    refused = [{"params": params, "message": message} for params, message in seen.refused]
    return {
        "trials": seen.trials,
        "tried": seen.tried,
        "refused": refused,
        "steps": seen.steps,
        "most_steps": seen.most_steps,
    }


@router.post("/sweeps", response={201: SweepDetailOut})
def create_sweep(request: HttpRequest, data: SweepIn) -> Any:
    """Launch a sweep. What cannot be valid is refused with every problem's field path."""
    actor = access.actor_of(request)
    project = access.default_project(actor, data.project, Role.EDITOR)
    wish = services.SweepWish(
        _plan(data), name=data.name, experiment=data.experiment, notes=data.notes
    )
    sweep = services.create_sweep(project, actor.user, _base(data, actor), wish)
    return Status(201, _detail(sweep))


@router.get("/sweeps/{sweep_id}", response=SweepDetailOut)
def get_sweep(request: HttpRequest, sweep_id: str) -> Any:
    return _detail(_sweep(request, sweep_id))


@router.get("/sweeps/{sweep_id}/trials", response=TrialPage)
def list_trials(
    request: HttpRequest, sweep_id: str, cursor: Cursor = None, limit: Limit = 50
) -> Any:
    """Trials by their number, from 0 on."""
    trials = _sweep(request, sweep_id).trials.all()
    return keyset(with_runs(trials), ("number",), cursor, limit)


@router.post("/sweeps/{sweep_id}/pause", response=SweepDetailOut)
def pause_sweep(request: HttpRequest, sweep_id: str) -> Any:
    """Begin no further trial; those at work go on."""
    sweep = _sweep(request, sweep_id, Role.EDITOR)
    services.pause_sweep(sweep.pk, access.actor_of(request).user)
    return _detail(_sweep(request, sweep_id))


@router.post("/sweeps/{sweep_id}/continue", response=SweepDetailOut)
def continue_sweep(request: HttpRequest, sweep_id: str) -> Any:
    """Go on; further trials are launched in the caller's name."""
    sweep = _sweep(request, sweep_id, Role.EDITOR)
    services.continue_sweep(sweep.pk, access.actor_of(request).user)
    return _detail(_sweep(request, sweep_id))


@router.post("/sweeps/{sweep_id}/stop", response=SweepDetailOut)
def stop_sweep(request: HttpRequest, sweep_id: str) -> Any:
    """End it, and ask the runs of its trials to save a checkpoint and end."""
    sweep = _sweep(request, sweep_id, Role.EDITOR)
    services.stop_sweep(sweep.pk, access.actor_of(request).user)
    return _detail(_sweep(request, sweep_id))


def _sweep(request: HttpRequest, pk: str, role: Role = Role.VIEWER) -> Sweep:
    rows = Sweep.objects.select_related("project", "experiment", "created_by")
    return access.get(rows, pk, access.actor_of(request), role)


def _plan(data: PlanIn) -> dict[str, Any]:
    return data.dict(include=set(PlanIn.model_fields))


def _base(data: PreviewIn, actor: access.Actor) -> dict[str, Any]:
    """The spec that varies, as data. Raises RefusedError."""
    return recipes.with_overrides(presets.given_spec(data, actor), data.overrides)


def _row(row: queries.SweepRow) -> dict[str, Any]:
    sweep = row.sweep
    shared = set(SweepOut.model_fields) & set(vars(sweep))
    return {
        **{name: getattr(sweep, name) for name in shared},
        "project": sweep.project,
        "experiment": sweep.experiment,
        "created_by": sweep.created_by,
        "method": row.plan.method,
        "metric": row.plan.metric,
        "direction": row.plan.direction,
        "launched": row.launched,
        "active": row.active,
        "refused": row.refused,
        "most": row.most,
        "best": row.best,
    }


def _detail(sweep: Sweep) -> dict[str, Any]:
    found = queries.sweep_detail(sweep)
    counts = found.counts
    row = queries.SweepRow(
        sweep,
        found.plan,
        found.launched,
        counts.get("active", 0),
        counts.get("refused", 0),
        found.most,
        found.best.value if found.best else None,
    )
    return {
        **_row(row),
        "notes": sweep.notes,
        "plan": sweep.plan,
        "base": sweep.base,
        "counts": counts,
        "steps": found.steps,
        "hours": found.hours,
        "rungs": found.rungs,
        "promoted": found.promoted,
        "best_trial": found.best,
    }
