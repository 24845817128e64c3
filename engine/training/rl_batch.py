"""The token batch of one step from groups of trajectories: who is in it, with what weight."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.algorithms.advantages import advantages
from engine.algorithms.aggregation import token_weights
from engine.algorithms.batch import TokenBatch, collate
from engine.records.trajectory import Trajectory
from engine.spec.algorithms import Algorithm


@dataclass(frozen=True, eq=False)
class RlBatch:
    """Rows are segments of trajectories whose advantage is not zero.

    groups [rows]: number of the group; trajectories [rows]: number of the trajectory; weights
    [rows]: what each of the row's tokens weighs in the loss.
    """

    batch: TokenBatch
    groups: list[int]
    trajectories: Tensor
    weights: Tensor


def rl_batch(
    groups: Sequence[Sequence[Trajectory]], how: Algorithm, longest: int
) -> tuple[RlBatch | None, dict[str, float]]:
    """The batch, None where nothing is to be learned, and figures of the rewards.

    longest: tokens that a trajectory may have. A trajectory counts in the weights where its reward
    is valid and its group teaches; one whose advantage is exactly zero counts without being
    computed.

    Raises ValueError where the loss looks at whole trajectories and one has several segments.
    """
    rewards = [[one.trainable_reward for one in group] for group in groups]
    lengths = [[_loss_tokens(one) for one in group] for group in groups]
    values = advantages(how.advantage, rewards, lengths)
    figures = {
        "zero_variance_share": sum(not any(group) for group in values) / len(groups),
        **_reward_figures([one for group in groups for one in group]),
    }
    counted = [
        (number, one, value, length)
        for number, group in enumerate(groups)
        if any(values[number])
        for one, value, length in zip(group, values[number], lengths[number], strict=True)
        if one.trainable_reward is not None and length
    ]
    if not counted:
        return None, figures
    weights = token_weights(how.aggregation, [length for *_, length in counted], longest)
    rows = [
        (segment, value, number, index, weight)
        for index, ((number, one, value, _), weight) in enumerate(
            zip(counted, weights, strict=True)
        )
        if value
        for segment in one.segments
    ]
    if how.loss == "gspo" and (several := len(rows) - len({row[3] for row in rows})):
        raise ValueError(
            f"{several} segments of this batch continue a trajectory after a context edit; gspo's "
            "ratio is of a whole trajectory in one pass: take another loss."
        )
    segments, values_of_rows, numbers, trajectories, weights_of_rows = zip(*rows, strict=True)
    return (
        RlBatch(
            collate(segments, values_of_rows),
            list(numbers),
            torch.tensor(trajectories),
            torch.tensor(weights_of_rows, dtype=torch.float64),
        ),
        figures,
    )


def _loss_tokens(trajectory: Trajectory) -> int:
    return sum(sum(segment.loss_mask) for segment in trajectory.segments)


def _reward_figures(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Mean reward and completion rate of the valid ones, and the share of invalid rewards."""
    valid = [one for one in trajectories if one.trainable_reward is not None]
    figures = {"invalid_reward_share": 1 - len(valid) / len(trajectories)}
    if valid:
        figures["reward_mean"] = sum(one.trainable_reward or 0.0 for one in valid) / len(valid)
        figures["completion_rate"] = sum(one.success for one in valid) / len(valid)
    return figures
