"""What a dry run learns from in place of what its policy earned, so that each stage takes a step.

An untrained policy solves nothing: its groups are tied, its practice is rejected, its errors have
no repair. The real way is gone all the same (tasks are played, graded and reported); what the
trainer gets are stand-ins of the same form.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.pool.group import Group, pack
from engine.records.trajectory import Reward, StopReason, Trajectory
from engine.synthesis.repair import Pair
from workers.cluster import synthesised

MOST = 8  # demonstrations


class RehearsalError(Exception):
    """A stage of a dry run took no optimiser step; a sentence for people."""


def spread(groups: Sequence[Group]) -> list[Group]:
    """The groups with rewards of 1 and 0 by turns, which every advantage tells apart."""
    return [
        pack(
            group.ticket,
            group.version,
            [_graded(one, at + place) for place, one in enumerate(group.trajectories())],
            group.arrived_at,
            group.stored,
        )
        for at, group in enumerate(groups)
    ]


def _graded(one: Trajectory, place: int) -> Trajectory:
    """As an answer of its own with a valid reward, whatever ended it."""
    return replace(
        one,
        reward=Reward(float(place % 2 == 0), True),
        stop_reason=StopReason.ANSWERED,
        steps=[replace(step, reward=None) for step in one.steps],
    )


def accepted(folder: Path, seed: int) -> list[Trajectory]:
    """Demonstrations, as rollouts that the verifier accepts would be."""
    return synthesised.Demonstrations(folder, MOST, seed).batch(0)


def pairs(folder: Path, seed: int) -> list[Pair]:
    """The first turn of demonstrations beside a token that is not its first."""
    found = []
    for one in accepted(folder, seed):
        ids, mask = one.segments[0].ids, one.segments[0].loss_mask
        start = mask.index(True)
        turn = ids[start : mask.index(False, start) if False in mask[start:] else None]
        other = next((token for token in ids if token != turn[0]), None)
        if start and other is not None:
            found.append(Pair("rehearsal", one.task_id, ids[:start], turn, [other]))
    return found


def check_step(figures: Mapping[str, float], stage: int, kind: str) -> None:
    """Raises RehearsalError unless the figures are of an update of the policy."""
    if "loss" not in figures:
        raise RehearsalError(
            f"Stage {stage} ({kind}) took no optimiser step: nothing in its batch could be learned."
        )
