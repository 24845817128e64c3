"""The reward curriculum: outcome alone until it is learnt, then process terms, back on harm.

A pure state machine. After every trainer step it looks at the trajectories that were completed
since the last one, those included that were not trained on, and moves one weight: the factor of
the scheme's process terms. All noise is judged over groups, whose trajectories share a task.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from engine.rewards.moments import Moments
from engine.rewards.scheme import RewardCurriculum

Z = 1.96  # two-sided 95%
CEILING_AFTER_HARM = 0.5  # of the weight at which harm was seen

Phase = Literal["outcome", "ramp", "full"]


@dataclass(frozen=True)
class Look:
    """Completed trajectories of one trainer step, by group: means with their standard errors.

    success: share of solved trajectories; process: weighted sum of the process terms, before its
    weight and cap; correlation: of process and outcome over trajectories, None where one of them
    does not vary.
    """

    groups: int
    success: float
    success_error: float
    process: float
    process_error: float | None
    correlation: float | None

    @staticmethod
    def of(groups: Moments, trajectories: Moments) -> "Look | None":
        """From pairs (share of solved, mean process) by group and (outcome, process) by trajectory;
        None where there is no group."""
        if not groups.count:
            return None
        return Look(
            groups.count,
            groups.x,
            groups.error_of_rate,
            groups.y,
            groups.error_of_y,
            trajectories.correlation,
        )


@dataclass(frozen=True)
class CurriculumState:
    """weight: of the process terms now; ceiling: where a ramp ends; success: running success rate
    and its variance; above: looks in a row with it over the threshold; start: success when the
    ramp began; mean, count: of success over all looks since, the steady ones before included;
    looks: the newest of this phase."""

    ceiling: float
    phase: Phase = "outcome"
    weight: float = 0.0
    success: float | None = None
    variance: float = 0.0
    above: int = 0
    start: float = 0.0
    mean: float = 0.0
    count: int = 0
    looks: tuple[Look, ...] = field(default=())

    @staticmethod
    def first(plan: RewardCurriculum) -> "CurriculumState":
        return CurriculumState(ceiling=plan.weight_max)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "CurriculumState":
        looks = tuple(Look(**look) for look in data["looks"])
        return CurriculumState(**{**data, "looks": looks})


def advance(
    plan: RewardCurriculum, state: CurriculumState, look: Look
) -> tuple[CurriculumState, str]:
    """The state after a look, and a sentence where its phase changed, else ""."""
    state = _seen(plan, state, look)
    if state.phase == "outcome":
        return _may_begin(plan, state)
    assert state.success is not None
    width = 2 * Z * math.sqrt(state.variance)
    if state.mean - state.success > width:
        return _withdrawn(
            state,
            f"success fell to {state.success:.1%} from a mean of {state.mean:.1%}, by more than "
            f"its 95% interval is wide ({width:.1%})",
        )
    if _rises_alone(plan, state):
        if _goes_to_failures(state.looks):
            return _withdrawn(
                state,
                "the process reward rises while success does not, and trajectories that fail "
                "collect more of it than those that succeed",
            )
        return state, ""  # it may be a cheaper way to the same success: wait and see
    if state.phase == "full":
        return state, ""
    weight = min(state.ceiling, state.weight + plan.weight_max / plan.ramp_steps)
    if weight < state.ceiling:
        return replace(state, weight=weight), ""
    return (
        replace(state, weight=weight, phase="full"),
        f"Reward curriculum: the ramp is over, process terms weigh {weight:.3g}.",
    )


def _seen(plan: RewardCurriculum, state: CurriculumState, look: Look) -> CurriculumState:
    """The running success rate, and what follows from it alone."""
    share = 1.0 if state.success is None else plan.smoothing
    before = 0.0 if state.success is None else state.success
    success = before + share * (look.success - before)
    return replace(
        state,
        success=success,
        variance=(1 - share) ** 2 * state.variance + share**2 * look.success_error**2,
        above=state.above + 1 if success >= plan.success_above else 0,
        mean=state.mean + (look.success - state.mean) / (state.count + 1),
        count=state.count + 1,
        looks=(*state.looks, look)[-plan.steady_steps :],
    )


def _may_begin(plan: RewardCurriculum, state: CurriculumState) -> tuple[CurriculumState, str]:
    count = plan.steady_steps
    if min(state.above, len(state.looks)) < count or state.success is None:
        return state, ""
    rates = [look.success for look in state.looks]
    slope, error = _slope(rates, [look.success_error for look in state.looks])
    if abs(slope) > Z * error:
        return state, ""
    mean = math.fsum(rates) / count
    begun = replace(state, phase="ramp", start=mean, mean=mean, count=count, looks=())
    return begun, (
        f"Reward curriculum: success has been steady at {mean:.1%} over {count} steps; "
        f"{', '.join(plan.process)} ramp in, up to a weight of {state.ceiling:.3g}."
    )


def _withdrawn(state: CurriculumState, why: str) -> tuple[CurriculumState, str]:
    """Outcome alone again. The next ramp ends well below the weight that did harm."""
    ceiling = CEILING_AFTER_HARM * state.weight if state.weight else state.ceiling
    back = replace(state, phase="outcome", weight=0.0, ceiling=ceiling, above=0, looks=())
    return back, (
        f"Reward curriculum: {why}; the process terms are withdrawn, and the next ramp ends at "
        f"{ceiling:.3g}."
    )


def _rises_alone(plan: RewardCurriculum, state: CurriculumState) -> bool:
    """True where process rises beyond noise and success is not above where the ramp began."""
    errors = [look.process_error for look in state.looks if look.process_error is not None]
    if len(errors) < plan.steady_steps or state.success is None or state.success > state.start:
        return False
    slope, error = _slope([look.process for look in state.looks], errors)
    return slope > Z * error


def _goes_to_failures(looks: Sequence[Look]) -> bool:
    """True where process and outcome correlate below zero, beyond noise."""
    known = [(look.correlation, look.groups) for look in looks if look.correlation is not None]
    groups = sum(count for _, count in known)
    if not groups:
        return False
    mean = sum(correlation * count for correlation, count in known) / groups
    return mean < -Z / math.sqrt(groups)


def _slope(values: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """Least-squares slope of evenly spaced values, and its standard error from theirs."""
    middle = (len(values) - 1) / 2
    spread = sum((place - middle) ** 2 for place in range(len(values)))
    slope = sum((place - middle) * value for place, value in enumerate(values)) / spread
    variance = sum(((place - middle) * error) ** 2 for place, error in enumerate(errors))
    return slope, math.sqrt(variance) / spread
