"""Which trajectories of a step count, as rows of tokens, and how they are dealt to updates."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.algorithms.aggregation import token_weights
from engine.algorithms.batch import TokenBatch, collate
from engine.records.trajectory import Trajectory
from engine.spec.algorithms import Aggregation


@dataclass(frozen=True)
class Member:
    """A trajectory that counts. `group` and `place`: where it stands among those of the step.

    trained: False where it only takes part in the baseline of its group; loss_tokens: 0 then.
    """

    trajectory: Trajectory
    group: int
    place: int
    trained: bool
    loss_tokens: int


@dataclass(frozen=True, eq=False)
class RlBatch:
    """Rows are the segments of members, one trajectory after the other.

    trajectories [rows]: number of the row's member.
    """

    batch: TokenBatch
    members: list[Member]
    trajectories: Tensor

    @property
    def groups(self) -> list[int]:
        """The group of each row."""
        return [self.members[number].group for number in self.trajectories.tolist()]

    def trained(self) -> Tensor:
        """Whether each row's member is trained on, [rows]."""
        return torch.tensor([member.trained for member in self.members])[self.trajectories]

    def named_rows(self) -> list[tuple[str, int]]:
        """Of each row, the trajectory's id and the number of its segment.

        Rows are kept or left out with all the others of their member.
        """
        counts: Counter[int] = Counter()
        named = []
        for number in self.trajectories.tolist():
            named.append((self.members[number].trajectory.id, counts[number]))
            counts[number] += 1
        return named

    def by_token(self, of_row: Tensor) -> Tensor:
        """What each token in the loss has from its row, [tokens], row after row."""
        mask = self.batch.loss_mask
        return of_row[:, None].expand(mask.shape)[mask]

    def weights(self, kind: Aggregation, longest: int, groups: frozenset[int]) -> Tensor:
        """What each of a row's tokens weighs in a loss over the members of these groups, [rows].

        longest: tokens that a trajectory may have. The weight is 0 outside those groups.
        """
        inside = [one.trained and one.group in groups for one in self.members]
        lengths = [
            one.loss_tokens for one, within in zip(self.members, inside, strict=True) if within
        ]
        found = iter(token_weights(kind, lengths, longest))
        of_member = [next(found) if within else 0.0 for within in inside]
        return torch.tensor(of_member, dtype=torch.float64)[self.trajectories]


def gather(
    groups: Sequence[Sequence[Trajectory]], *, mask_truncated: bool = False
) -> RlBatch | None:
    """Rows of every trajectory that has a reward of the policy's own and a token in the loss.

    mask_truncated: those that hit a limit count in the baseline alone. None where nothing is left
    to train on.

    Raises ValueError for a sampled token whose log-probability is not finite.
    """
    members, segments, rows = [], [], []
    for number, group in enumerate(groups):
        for place, one in enumerate(group):
            length = sum(sum(segment.loss_mask) for segment in one.segments)
            if one.trainable_reward is None or not length:
                continue
            trained = not (mask_truncated and one.stop_reason.is_truncated)
            members.append(Member(one, number, place, trained, length if trained else 0))
            segments += one.segments
            rows += [len(members) - 1] * len(one.segments)
    if not any(member.trained for member in members):
        return None
    found = RlBatch(collate(segments), members, torch.tensor(rows))
    _check_behaviour(found)
    return found


def _check_behaviour(found: RlBatch) -> None:
    bad = found.batch.loss_mask & ~torch.isfinite(found.batch.behaviour)
    if bad.any():
        row, token = bad.nonzero()[0].tolist()
        one = found.members[int(found.trajectories[row])].trajectory
        value = float(found.batch.behaviour[row, token])
        raise ValueError(
            f"Trajectory {one.id} has the log-probability {value} at token {token}, which the "
            "policy sampled: ratios need a finite one."
        )


def deal(
    found: RlBatch, epochs: int, minibatches: int, seed: str
) -> Iterator[tuple[frozenset[int], Tensor]]:
    """Groups and rows of each update, epoch by epoch; whole groups, in an order of chance.

    The order that groups came in does not matter. An update whose rows were all left out is
    skipped.
    """
    names = {member.group: member.trajectory.group_id for member in found.members}
    order = sorted(names, key=lambda group: (names[group], group))
    of_rows = torch.tensor(found.groups)
    for epoch in range(epochs):
        random.Random(f"{seed} {epoch}").shuffle(order)
        for part in range(minibatches):
            chosen = frozenset(order[part::minibatches])
            inside = torch.isin(of_rows, torch.tensor(sorted(chosen), dtype=torch.long))
            if inside.any():
                yield chosen, inside.nonzero()[:, 0]


def keep_rows(found: RlBatch, index: Tensor) -> RlBatch:
    """The same members with some of their rows: the others have nothing to teach."""
    return replace(found, batch=found.batch.rows(index), trajectories=found.trajectories[index])


def reward_figures(groups: Sequence[Sequence[Trajectory]]) -> dict[str, float]:
    """Mean reward and completion rate of the valid ones, and the share of invalid rewards."""
    trajectories = [one for group in groups for one in group]
    valid = [one for one in trajectories if one.trainable_reward is not None]
    figures = {"invalid_reward_share": 1 - len(valid) / len(trajectories)}
    if valid:
        figures["reward_mean"] = sum(one.trainable_reward or 0.0 for one in valid) / len(valid)
        figures["completion_rate"] = sum(one.success for one in valid) / len(valid)
    return figures
