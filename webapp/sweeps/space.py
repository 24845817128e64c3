"""Which values a trial of a grid or of a random search takes: a function of its number alone."""

import math
import random
from dataclasses import dataclass
from typing import Any, Literal

from webapp.sweeps.plan import Choice, Dimension, LogUniform, SweepPlan, Uniform, Whole

Params = dict[str, Any]  # value by path into the spec


@dataclass(frozen=True)
class Outcome:
    """What came of a trial, for the search that made it up."""

    state: Literal["complete", "pruned", "failed"]
    value: float | None  # of complete ones
    reached: dict[int, float]  # at rungs, by step


class SearchError(Exception):
    """A search's memory cannot be read or written; it may be asked again later."""


def params_of(plan: SweepPlan, number: int) -> Params | None:
    """Values of trial `number` (from 0); None where a grid has no such combination.

    The last field of a grid changes fastest. Asking twice gives the same answer, so that what was
    asked before a crash is asked again after it.
    """
    if plan.method == "grid":
        return _cell(plan, number)
    return random_params(plan, number)


def random_params(plan: SweepPlan, number: int) -> Params:
    """Independent draws of every field, from the plan's seed and the trial's number."""
    source = random.Random(f"{plan.seed}:{number}")
    return {one.path: _drawn(one, source) for one in plan.space}


def _cell(plan: SweepPlan, number: int) -> Params | None:
    if number >= plan.grid_size():
        return None
    found: Params = {}
    for one in reversed(plan.space):
        values = one.values if isinstance(one, Choice) else _numbers(one)
        number, at = divmod(number, len(values))
        found[one.path] = values[at]
    return {one.path: found[one.path] for one in plan.space}


def _numbers(one: Dimension) -> range:
    if not isinstance(one, Whole):
        raise ValueError(f"A grid cannot go through a field that is {one.kind}.")
    return one.numbers()


def _drawn(one: Dimension, source: random.Random) -> Any:
    match one:
        case Choice():
            return source.choice(one.values)
        case Whole():
            return source.choice(one.numbers())
        case LogUniform():
            drawn = math.exp(source.uniform(math.log(one.low), math.log(one.high)))
            return min(max(drawn, one.low), one.high)
        case Uniform():
            return source.uniform(one.low, one.high)
