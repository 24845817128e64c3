"""From per-token losses to the number that is minimised: a weight for each trajectory's tokens.

The weights are set once a step, from the loss tokens of all its trajectories over all passes and
ranks. The loss is their sum with the per-token losses: however the step is cut, it is the same.
"""

from collections.abc import Sequence
from typing import get_args

from engine.spec.algorithms import Aggregation, unknown


def token_weights(kind: Aggregation, lengths: Sequence[int], longest: int) -> list[float]:
    """The weight in the loss of each token of each trajectory; names as verl's loss_agg_mode.

    lengths: loss tokens of each trajectory of the step, all its segments together; those that
    teach nothing count too. longest: the tokens that a trajectory may have, a constant of the run,
    which seq-mean-token-sum-norm divides by (Dr. GRPO, 2503.20783).

    Raises ValueError on a step without loss tokens, and for another kind.
    """
    total, trajectories = sum(lengths), len(lengths)
    if total < 1:
        raise ValueError("A step without a single token in the loss has no mean.")
    if kind == "token-mean":
        return [1 / total] * trajectories
    if kind == "token-sum":
        return [1.0] * trajectories
    if kind == "seq-mean-token-mean":
        return [1 / (trajectories * length) if length else 0.0 for length in lengths]
    if kind == "seq-mean-token-sum":
        return [1 / trajectories] * trajectories
    if kind == "seq-mean-token-sum-norm":
        return [1 / (trajectories * longest)] * trajectories
    raise unknown("aggregation", kind, get_args(Aggregation))
