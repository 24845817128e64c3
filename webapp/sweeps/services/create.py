"""From a spec and a plan to a sweep: what it would try is validated before anything is launched."""

import json
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from engine.spec import ExperimentSpec, problems_of
from webapp import queue
from webapp.accounts.audit import record
from webapp.accounts.models import Project, User
from webapp.experiments.recipes import with_overrides
from webapp.experiments.services.launch import find_experiment
from webapp.experiments.spec_text import check_length
from webapp.problems import FieldProblem, RefusedError, invalid_field
from webapp.sweeps.models import Sweep
from webapp.sweeps.plan import SweepPlan, read_plan
from webapp.sweeps.space import Params, params_of, random_params

MOST_TRIED = 200  # combinations that are validated before a launch


@dataclass(frozen=True)
class SweepWish:
    """What a person says about a sweep besides its spec."""

    plan: dict[str, Any]
    name: str = ""  # empty: the spec's
    experiment: str = ""  # name; empty: the sweep's
    notes: str = ""


@dataclass(frozen=True)
class Preview:
    """What a plan comes to, from combinations that were tried against the spec."""

    plan: SweepPlan
    trials: int | None  # at most; None: another budget ends it
    tried: int
    refused: list[tuple[Params, str]]  # of those tried, with what the spec says
    steps: tuple[int, int]  # trainer steps of one trial, of all its seeds, least and most
    name: str  # of the spec

    @property
    def most_steps(self) -> int | None:
        """Of all trials together, at most."""
        most = None if self.trials is None else self.trials * self.steps[1]
        budget = self.plan.budget.steps
        return budget if most is None else min(most, budget or most)


def preview(base: dict[str, Any], plan: dict[str, Any]) -> Preview:
    """What a sweep would try. Raises RefusedError, with the path of every field that is wrong.

    Paths of the plan are as in it ("space.0.low"); what the spec says against all combinations
    stands at the field that varies, or at the spec's own path ("stages.1.steps").
    """
    check_length(base)
    found, problems = read_plan(plan)
    if found is None:
        raise RefusedError("This sweep cannot be launched.", problems)
    known, _ = problems_of(base)  # may be invalid by itself: what varies may mend it
    refused: list[tuple[Params, str]] = []
    first: list[FieldProblem] = []
    steps: list[int] = []
    combinations = _samples(found)
    name = known.name if known else str(base.get("name", ""))
    for params in combinations:
        specs, wrong = seeded(base, params, found.seeds)
        if specs:
            steps.append(sum(map(steps_of, specs)))
        else:
            refused.append((params, " ".join(dict.fromkeys(one.message for one in wrong))))
            first = first or wrong
    if not steps:
        said = " ".join(dict.fromkeys(one.message for one in first))
        raise RefusedError(
            f"No combination of these values is a valid spec: {said}", _placed(found, first)
        )
    budget = found.budget.steps
    if budget is not None and budget < min(steps):
        raise invalid_field(
            "budget.steps",
            f"One trial takes {min(steps):,} steps or more, all together may take {budget:,}.",
        )
    size = found.grid_size() if found.method == "grid" else None
    limits = [one for one in (size, found.budget.trials) if one is not None]
    trials = min(limits) if limits else None
    return Preview(
        found, trials, len(combinations), refused, (min(steps), max(steps)), name or "sweep"
    )


def specified(
    base: dict[str, Any], params: Params
) -> tuple[ExperimentSpec | None, list[FieldProblem]]:
    """The spec of a combination, or what is wrong with it; exactly one is given."""
    try:
        spec, problems = problems_of(with_overrides(base, params))
    except RefusedError as refused:
        return None, refused.errors or [FieldProblem("", refused.detail)]
    return spec, [FieldProblem(one.path, one.message) for one in problems]


def seeded(
    base: dict[str, Any], params: Params, seeds: int
) -> tuple[list[ExperimentSpec], list[FieldProblem]]:
    """The specs of a combination, one for each seed from the spec's own on; or what is wrong."""
    spec, problems = specified(base, params)
    if spec is None:
        return [], problems
    found = [spec]
    for seed in range(spec.seed + 1, spec.seed + seeds):
        other, problems = specified(base, {**params, "seed": seed})
        if other is None:
            return [], problems
        found.append(other)
    return found, []


def steps_of(spec: ExperimentSpec) -> int:
    """Trainer steps of all stages, at most."""
    return sum(getattr(stage, "steps", 0) for stage in spec.stages)


@transaction.atomic
def create_sweep(project: Project, user: User, base: dict[str, Any], wish: SweepWish) -> Sweep:
    """A sweep that begins at once. Raises RefusedError as `preview` does."""
    if "\\u0000" in json.dumps([base, wish.plan, wish.name, wish.experiment, wish.notes]):
        raise RefusedError("A sweep holds no NUL characters.")
    seen = preview(base, wish.plan)
    name = wish.name.strip() or seen.name[:100]
    if len(name) > 100:
        raise invalid_field("name", f"A sweep's name has at most 100 characters, not {len(name)}.")
    sweep = Sweep.objects.create(
        project=project,
        experiment=find_experiment(project, wish.experiment or name, user),
        name=name,
        notes=wish.notes,
        base=base,
        plan=seen.plan.model_dump(mode="json"),
        created_by=user,
        acts_for=user,
    )
    record("sweep.create", sweep.pk, user=user, project=project, name=name)
    queue.send("caravan.sweep", sweep.pk)
    return sweep


def _samples(plan: SweepPlan) -> list[Params]:
    """Combinations that stand for all: every one of a small grid, else spread or drawn."""
    if plan.method != "grid":
        return [random_params(plan, number) for number in range(MOST_TRIED // 2)]
    size = plan.grid_size()
    every = -(-size // MOST_TRIED)
    found = (params_of(plan, number) for number in range(0, size, every))
    return [params for params in found if params is not None]


def _placed(plan: SweepPlan, problems: list[FieldProblem]) -> list[FieldProblem]:
    """Problems at the field of the plan that varies what they are about."""
    where = {one.path: f"space.{at}" for at, one in enumerate(plan.space)}
    found = []
    for one in problems:
        near = next((at for path, at in where.items() if f"{one.path}.".startswith(f"{path}.")), "")
        found.append(FieldProblem(near or one.path, one.message))
    return found
