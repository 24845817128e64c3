"""The advantage of every token of a step, by the estimator of its algorithm."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.algorithms.advantages import advantages
from engine.algorithms.returns import (
    discounted_returns,
    generalised_advantages,
    place_outcomes,
    whitened,
)
from engine.algorithms.turns import gigpo, turn_advantages
from engine.records.trajectory import Trajectory
from engine.spec import RlStage
from engine.spec.algorithms import KL_BY_TOKEN, Advantage
from engine.training.rl_batch import RlBatch

Groups = Sequence[Sequence[Trajectory]]


@dataclass(frozen=True, eq=False)
class Credit:
    """Both [rows, tokens], in fp64, meaningful for tokens in the loss; returns: where a critic
    learns them."""

    advantages: Tensor
    returns: Tensor | None = None


def credit(
    found: RlBatch,
    groups: Groups,
    stage: RlStage,
    kl: Tensor | None = None,
    values: Tensor | None = None,
) -> Credit:
    """Advantages of all rows of a step.

    groups: those that the batch was gathered from; kl [rows, tokens]: what each token takes off
    the reward, already weighted; values [rows, tokens]: a critic's.
    """
    kind = stage.resolved().advantage
    by_turn = kind in ("turn_reward_to_go", "gigpo")
    if by_turn:
        return Credit(_by_turn(found, groups, stage, kind))
    if kind == "gae" or (kind in KL_BY_TOKEN and kl is not None):
        return _by_token(found, stage, kl, values)
    rewards: list[list[float | None]] = [
        [one.trainable_reward for one in group] for group in groups
    ]
    lengths = [[0] * len(group) for group in groups]
    taken = _of_members(found, kl)
    for member, off in zip(found.members, taken, strict=True):
        rewards[member.group][member.place] = (member.trajectory.trainable_reward or 0.0) - off
        lengths[member.group][member.place] = member.loss_tokens
    values_of_groups = advantages(kind, rewards, lengths)
    of_member = [values_of_groups[one.group][one.place] for one in found.members]
    of_row = torch.tensor(of_member, dtype=torch.float64)[found.trajectories]
    return Credit(of_row[:, None].expand(found.batch.ids.shape))


def _of_members(found: RlBatch, values: Tensor | None) -> list[float]:
    """The sum of a [rows, tokens] tensor over each member's tokens."""
    if values is None:
        return [0.0] * len(found.members)
    sums = torch.zeros(len(found.members), dtype=torch.float64)
    sums.index_add_(0, found.trajectories, (values * found.batch.loss_mask).double().sum(1))
    return sums.tolist()


def _by_token(found: RlBatch, stage: RlStage, kl: Tensor | None, values: Tensor | None) -> Credit:
    """Rewards on tokens, and what follows from each of them: returns, or GAE with a critic."""
    mask = found.batch.loss_mask
    outcomes = torch.tensor(
        [one.trajectory.trainable_reward or 0.0 for one in found.members], dtype=torch.float64
    )
    sequence = found.by_token(found.trajectories)
    rewards = place_outcomes(outcomes, sequence)
    if kl is not None:
        rewards = rewards - kl[mask].double()
    trained = found.by_token(found.trained())
    returns = None
    if values is None:
        flat = discounted_returns(rewards, sequence)
    else:
        flat, targets = generalised_advantages(
            rewards, values[mask].double(), sequence, stage.gamma, stage.gae_lambda
        )
        returns = torch.zeros(mask.shape, dtype=torch.float64)
        returns[mask] = targets
    scaled = torch.zeros_like(flat)
    scaled[trained] = whitened(flat[trained])
    placed = torch.zeros(mask.shape, dtype=torch.float64)
    placed[mask] = scaled
    return Credit(placed, returns)


def _by_turn(found: RlBatch, groups: Groups, stage: RlStage, kind: Advantage) -> Tensor:
    """Each turn's advantage on the tokens that the policy sampled in it."""
    of_turns: dict[tuple[int, int], list[float]] = {}
    for number, group in enumerate(groups):
        valid = [place for place, one in enumerate(group) if one.trainable_reward is not None]
        members = [group[place] for place in valid]
        turns = [turn_rewards(one) for one in members]
        if kind == "gigpo":
            outcomes = [one.trainable_reward for one in members]
            anchors = [_situations(one) for one in members]
            values = gigpo(
                outcomes, turns, anchors, step_weight=stage.step_weight, gamma=stage.gamma
            )
        else:
            values = turn_advantages(turns, stage.gamma)
        of_turns |= {(number, place): one for place, one in zip(valid, values, strict=True)}
    placed = torch.zeros(found.batch.ids.shape, dtype=torch.float64)
    first_rows: dict[int, int] = {}
    for row, number in enumerate(found.trajectories.tolist()):
        first_rows.setdefault(number, row)
    for number, member in enumerate(found.members):
        values_of_turns = of_turns[member.group, member.place]
        for step, value in zip(member.trajectory.steps, values_of_turns, strict=True):
            placed[first_rows[number] + step.segment, step.start : step.stop] = value
    return placed


def turn_rewards(trajectory: Trajectory) -> list[float]:
    """What each turn earned; all of the reward on the last one where turns were not graded."""
    parts = [step.reward for step in trajectory.steps]
    if any(part is not None for part in parts):
        return [part or 0.0 for part in parts]
    total = trajectory.trainable_reward or 0.0
    return [0.0] * (len(parts) - 1) + [total] if parts else []


def _situations(trajectory: Trajectory) -> list[Hashable]:
    """What stood before each turn: the last answer of the environment; nothing, at first."""
    answers: list[Hashable] = [None]
    for step in trajectory.steps:
        answers.append((step.call.result, step.call.error) if step.call else None)
    return answers[: len(trajectory.steps)]
