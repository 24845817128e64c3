"""What a sweep is asked to do: which fields vary and how, what is better, what it may take."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from engine.spec.base import SpecModel
from webapp.problems import FieldProblem

MOST_TRIALS = 10_000
MOST = 2**53  # of the ends of a range: whole numbers up to here are exact as floats

Path = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\s\x00]+$")]


def _number(given: Any) -> Any:
    """YAML reads 1e-4, without a dot, as text."""
    if not isinstance(given, str):
        return given
    try:
        return float(given)
    except ValueError:
        return given


def _is_scientific(given: Any) -> bool:
    return isinstance(given, str) and given.lower().strip("+-0123456789.") == "e"


class Choice(SpecModel):
    """One of the values, which may be of any kind that the field takes."""

    kind: Literal["choice"] = "choice"
    path: Path
    values: list[Any] = Field(min_length=1, max_length=100)

    @field_validator("values", mode="before")
    @classmethod
    def _plain_numbers(cls, given: Any) -> Any:
        if not isinstance(given, list):
            return given
        return [_number(one) if _is_scientific(one) else one for one in given]


class _Range(SpecModel):
    path: Path
    low: float = Field(ge=-MOST, le=MOST)
    high: float = Field(ge=-MOST, le=MOST)

    _plain_numbers = field_validator("low", "high", mode="before")(_number)


class Uniform(_Range):
    """A number between low and high, each equally likely."""

    kind: Literal["uniform"] = "uniform"


class LogUniform(_Range):
    """A number between low and high whose logarithm is equally likely: for learning rates."""

    kind: Literal["loguniform"] = "loguniform"
    low: float = Field(gt=0, le=MOST)


class Whole(SpecModel):
    """A whole number from low to high, both included, in steps."""

    kind: Literal["int"] = "int"
    path: Path
    low: int = Field(ge=-MOST, le=MOST)
    high: int = Field(ge=-MOST, le=MOST)
    step: int = Field(1, ge=1, le=MOST)

    def numbers(self) -> range:
        return range(self.low, self.high + 1, self.step)


Dimension = Annotated[Choice | Uniform | LogUniform | Whole, Field(discriminator="kind")]


class Budget(SpecModel):
    """What all trials together may take; a trial that would go beyond it is not begun."""

    trials: int | None = Field(None, ge=1, le=MOST_TRIALS)
    steps: int | None = Field(None, ge=1, description="Trainer steps of all trials together")
    hours: float | None = Field(None, gt=0, description="Hours that trials worked, together")


class Halving(SpecModel):
    """ASHA: of the trials that reach a rung only the best go on (Li et al. 2020), the others once
    they are among the best of those that came there by then.

    The rungs lie at min_steps, min_steps * factor, min_steps * factor^2, ... trainer steps.
    """

    min_steps: int = Field(ge=1)
    factor: int = Field(3, ge=2, le=10, description="One in so many goes on")


class SweepPlan(SpecModel):
    """A sweep besides the spec that it varies."""

    method: Literal["grid", "random", "tpe"] = "random"
    metric: str = Field("eval/completion_rate", min_length=1, max_length=120)
    direction: Literal["maximise", "minimise"] = "maximise"
    space: list[Dimension] = Field(min_length=1, max_length=20)
    budget: Budget = Budget()
    at_once: int = Field(2, ge=1, le=64, description="Trials that are queued or at work at once")
    seeds: int = Field(
        1, ge=1, le=20, description="Runs of each trial, with the spec's seed and the next ones"
    )
    halving: Halving | None = None
    seed: int = Field(0, ge=0, lt=2**31, description="Of the search, not of the runs")
    priority: int = Field(0, ge=-1000, le=1000, description="Of the runs, in the queue")

    @property
    def maximises(self) -> bool:
        return self.direction == "maximise"

    def grid_size(self) -> int:
        """Combinations of a grid; 0 where a range has no end of values."""
        size = 1
        for one in self.space:
            if isinstance(one, Choice):
                size *= len(one.values)
            elif isinstance(one, Whole):
                size *= len(one.numbers())
            else:
                return 0
        return size


def read_plan(data: dict[str, Any]) -> tuple[SweepPlan | None, list[FieldProblem]]:
    """The plan, or what is wrong with it, each with its path; exactly one is given."""
    try:
        plan = SweepPlan.model_validate_json(json.dumps(data))
    except ValidationError as error:
        return None, [_problem(item) for item in error.errors(include_url=False)]
    except (TypeError, ValueError) as error:
        return None, [FieldProblem("", f"A sweep holds plain values only: {error}")]
    problems = list(_disagreements(plan))
    return (None, problems) if problems else (plan, [])


def _disagreements(plan: SweepPlan) -> Iterator[FieldProblem]:
    paths = [one.path for one in plan.space]
    for at, one in enumerate(plan.space):
        here = f"space.{at}"
        if not isinstance(one, Choice):
            if one.low >= one.high:
                yield FieldProblem(
                    f"{here}.high", f"The range ends at {one.high:g}: not above {one.low:g}."
                )
            if plan.method == "grid" and not isinstance(one, Whole):
                yield FieldProblem(
                    f"{here}.kind",
                    f"A grid goes through every value, and {one.kind} has no end of them: list "
                    "the values as a choice, or search at random.",
                )
        for other in paths[:at]:
            if f"{one.path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one.path}."):
                yield FieldProblem(f"{here}.path", f"{one.path} and {other} overlap: keep one.")
    if plan.seeds > 1 and "seed" in paths:
        yield FieldProblem(
            "seeds",
            f"The seed varies by itself, and each trial shall have {plan.seeds}: keep one.",
        )
    budget = plan.budget
    if plan.method != "grid" and budget.trials is budget.steps is budget.hours is None:
        yield FieldProblem(
            "budget", f"A {plan.method} search has no end of its own: give trials, steps or hours."
        )
    if plan.method == "grid" and plan.grid_size() > MOST_TRIALS:
        yield FieldProblem(
            "space", f"The grid has {plan.grid_size():,} combinations, at most {MOST_TRIALS:,}."
        )


def _problem(item: Any) -> FieldProblem:
    parts = [str(part) for part in item["loc"]]
    if len(parts) > 2 and parts[0] == "space":
        del parts[2]  # the kind, which pydantic adds and nobody wrote
    path = ".".join(parts)
    if item["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return FieldProblem(
            f"{path}.kind", "This must be one of choice, uniform, loguniform and int."
        )
    if item["type"] == "extra_forbidden":
        return FieldProblem(path, "This field does not exist; check the spelling or remove it.")
    if item["type"] == "missing":
        return FieldProblem(path, "This field is required.")
    given = "" if isinstance(item["input"], dict | list) else f" (given: {item['input']!r})"
    return FieldProblem(path, item["msg"] + given)
