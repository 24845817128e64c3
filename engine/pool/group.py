"""The trajectories of one prompt, packed: what the pool's rules read, and the rest as bytes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import zstandard

from engine.records.trajectory import Trajectory

_MAX_BYTES = 1 << 30  # of an unpacked group; a larger one is a bomb, not a group


@dataclass(frozen=True)
class Group:
    """One prompt's trajectories. `version` is the policy version of the oldest sampled token."""

    ticket: int  # place in the order in which groups were started
    id: str
    category: str
    version: int
    rewards: tuple[float | None, ...]  # None: the reward is missing, which is not zero
    tokens: int  # sampled tokens
    arrived_at: float  # seconds since 1970
    payload: bytes  # zstd-compressed JSON
    solved: int = 0  # trajectories with a reward that succeeded
    # Ids of those on their way to the control plane. In memory alone: after a crash nobody knows.
    stored: frozenset[str] = field(default=frozenset(), compare=False)

    def trajectories(self) -> list[Trajectory]:
        """Raises ValueError when the payload is damaged."""
        try:
            if zstandard.frame_content_size(self.payload) not in range(_MAX_BYTES):
                raise ValueError(
                    f"The trajectories of group {self.id} are more than {_MAX_BYTES} B."
                )
            text = zstandard.ZstdDecompressor().decompress(self.payload)
        except zstandard.ZstdError as error:
            raise ValueError(f"The trajectories of group {self.id} are damaged: {error}") from error
        return [Trajectory.from_dict(item) for item in json.loads(text)]

    def facts(self) -> dict[str, Any]:
        """What the log keeps beside the payload, as plain JSON values."""
        return {
            "ticket": self.ticket,
            "id": self.id,
            "category": self.category,
            "version": self.version,
            "rewards": list(self.rewards),
            "tokens": self.tokens,
            "arrived_at": self.arrived_at,
            "solved": self.solved,
        }

    @staticmethod
    def from_facts(facts: dict[str, Any], payload: bytes) -> "Group":
        return Group(**{**facts, "rewards": tuple(facts["rewards"])}, payload=payload)


def pack(
    ticket: int,
    version_at_start: int,
    trajectories: Sequence[Trajectory],
    now: float,
    stored: frozenset[str] = frozenset(),
) -> Group:
    """The group of the trajectories of one prompt; `stored` as in Group.

    `version_at_start` stands in where nothing was sampled. Raises ValueError on an empty group
    and on trajectories of different groups.
    """
    if not trajectories:
        raise ValueError("A group holds at least one trajectory.")
    first = trajectories[0]
    if any(trajectory.group_id != first.group_id for trajectory in trajectories):
        raise ValueError("The trajectories belong to different groups.")
    versions = [
        version
        for trajectory in trajectories
        for segment in trajectory.segments
        for version in segment.versions
        if version >= 0
    ]
    text = json.dumps(
        trajectories, ensure_ascii=False, default=vars
    )  # `to_dict`, five times faster
    return Group(
        ticket=ticket,
        id=first.group_id,
        category=first.category,
        version=min(versions, default=version_at_start),
        rewards=tuple(trajectory.trainable_reward for trajectory in trajectories),
        tokens=sum(trajectory.sampled_tokens for trajectory in trajectories),
        arrived_at=now,
        payload=zstandard.ZstdCompressor(level=3).compress(text.encode()),
        solved=sum(one.success for one in trajectories if one.trainable_reward is not None),
        stored=stored,
    )
