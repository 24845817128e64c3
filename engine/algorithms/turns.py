"""Credit for single turns: rewards from a turn on, and comparison of equal situations (GiGPO)."""

from collections import defaultdict
from collections.abc import Hashable, Sequence

from engine.algorithms.advantages import group_centred, group_normalised


def rewards_to_go(rewards: Sequence[float], gamma: float = 1.0) -> list[float]:
    """What a trajectory still earns from each of its turns on: G_k = r_k + gamma G_{k+1}."""
    found = [0.0] * len(rewards)
    following = 0.0
    for k in reversed(range(len(rewards))):
        following = rewards[k] + gamma * following
        found[k] = following
    return found


def turn_advantages(
    group: Sequence[Sequence[float]], gamma: float = 1.0, scale: bool = True
) -> list[list[float]]:
    """Reward-to-go of each turn, compared with the same turn of the group's other trajectories.

    group: the turn rewards of each trajectory of one prompt, of any number of turns. A turn that
    only one trajectory reached has no peer and gets 0.
    """
    compared = group_normalised if scale else group_centred
    returns = [rewards_to_go(turns, gamma) for turns in group]
    advantages = [[0.0] * len(turns) for turns in returns]
    for k in range(max(map(len, returns), default=0)):
        rows = [row for row, turns in enumerate(returns) if k < len(turns)]
        for row, value in zip(rows, compared([returns[row][k] for row in rows]), strict=True):
            advantages[row][k] = value
    return advantages


def gigpo(
    outcomes: Sequence[float | None],
    group: Sequence[Sequence[float]],
    anchors: Sequence[Sequence[Hashable]],
    *,
    step_weight: float = 1.0,
    gamma: float = 0.95,
    scale: bool = True,
) -> list[list[float]]:
    """Episode advantage plus `step_weight` times a step advantage, for each turn (2505.10978).

    outcomes: of each trajectory of one prompt; group: its turn rewards; anchors: what stood before
    each turn, equal where two turns began in the same situation. Turns of one situation, whichever
    trajectories they come from, are compared by their reward-to-go; one without a peer gets the
    episode advantage alone.
    """
    compared = group_normalised if scale else group_centred
    peers: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    returns = [rewards_to_go(turns, gamma) for turns in group]
    for row, (turns, situations) in enumerate(zip(returns, anchors, strict=True)):
        if len(turns) != len(situations):
            raise ValueError(
                f"Trajectory {row} has {len(turns)} turns and {len(situations)} situations: each "
                "turn needs the one that it began in."
            )
        for k, situation in enumerate(situations):
            peers[situation].append((row, k))
    episode = compared(outcomes)
    advantages = [[value] * len(turns) for value, turns in zip(episode, returns, strict=True)]
    for places in peers.values():
        steps = compared([returns[row][k] for row, k in places])
        for (row, k), value in zip(places, steps, strict=True):
            advantages[row][k] += step_weight * value
    return advantages
