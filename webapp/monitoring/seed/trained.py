"""Made-up records of what training saw of the tokens of made-up episodes."""

import math
import random
from array import array
from collections.abc import Sequence
from statistics import fmean, pstdev

from engine.records.trained import TrainedTokens
from engine.records.trajectory import Trajectory

CAP = 5.0  # of importance weights, as CISPO bounds them


def trained(
    rng: random.Random, group: Sequence[Trajectory], step: int, version: int
) -> list[TrainedTokens]:
    """Of a group's members; left out where all have the same reward, as in training."""
    rewards = [one.reward.value or 0.0 for one in group]
    spread = pstdev(rewards)
    if not spread:
        return [TrainedTokens(one.id, step, version, left_out="no_advantage") for one in group]
    mean = fmean(rewards)
    return [
        _of_one(rng, one, step, version, (reward - mean) / spread)
        for one, reward in zip(group, rewards, strict=True)
    ]


def _of_one(
    rng: random.Random, one: Trajectory, step: int, version: int, advantage: float
) -> TrainedTokens:
    segment = one.segments[0]
    spans = [(0, turn.start, turn.stop) for turn in one.steps]
    places = [place for _, start, stop in spans for place in range(start, stop)]
    before = [segment.logprobs[place] for place in places]
    now = [min(-1e-6, value + rng.gauss(0, 0.08 + 0.9 * -math.expm1(value))) for value in before]
    weights = [math.exp(after - then) for after, then in zip(now, before, strict=True)]
    floats = {
        "logprob": now,
        "entropy": [max(0.0, rng.gauss(0.6, 0.3)) * -value / (1 - value) for value in now],
        "advantage": [advantage] * len(places),
        "weight": weights,
    }
    columns = {name: array("f", values).tobytes() for name, values in floats.items()}
    columns["clipped"] = array("b", [weight > CAP for weight in weights]).tobytes()
    columns["passes"] = array("b", [1] * len(places)).tobytes()
    return TrainedTokens(one.id, step, version, spans, columns)
