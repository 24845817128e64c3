"""What the loss of one's own trainer saw of a trajectory's tokens, as Caravan stores it."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from engine.records.trained import COLUMNS, TrainedTokens
from engine.records.trajectory import Trajectory


@dataclass
class Trained:
    """A trajectory as `Run.trajectory` returned it or `Run.group` took it, and numbers of its
    tokens: one for each sampled token that the loss mask lets through, turn after turn.

    logprobs: under the policy that is trained; entropies: of it at the token, nats; weights:
    importance weights as the loss took them, before any bound; clipped: 1 where an upper bound held
    the token, -1 for a lower one; corrections: what the policy term was multiplied by, 0 where
    masked; passes: how often the step trained on it. Leave out what the loss has none of.
    """

    trajectory: Trajectory
    advantages: Sequence[float] | None = None
    logprobs: Sequence[float] | None = None
    entropies: Sequence[float] | None = None
    weights: Sequence[float] | None = None
    clipped: Sequence[int] | None = None
    corrections: Sequence[float] | None = None
    passes: Sequence[int] | None = None

    def packed(self, step: int, version: int) -> TrainedTokens:
        """Raises ValueError where there are not as many numbers as tokens in the loss."""
        spans = _spans(self.trajectory)
        tokens = sum(stop - start for _, start, stop in spans)
        given = {
            "logprob": self.logprobs,
            "entropy": self.entropies,
            "advantage": self.advantages,
            "weight": self.weights,
            "clipped": self.clipped,
            "correction": self.corrections,
            "passes": self.passes,
        }
        columns = {}
        for name, values in given.items():
            if values is None:
                continue
            if len(values) != tokens:
                raise ValueError(
                    f"{name} has {len(values)} numbers, and trajectory {self.trajectory.id} has "
                    f"{tokens} tokens in the loss: one each is expected"
                )
            plain = map(float, values) if COLUMNS[name] == "f" else map(int, values)
            columns[name] = array(COLUMNS[name], plain).tobytes()
        return TrainedTokens(self.trajectory.id, int(step), int(version), spans, columns)


def _spans(trajectory: Trajectory) -> list[tuple[int, int, int]]:
    """(segment, start, stop) of each run of tokens in the loss."""
    found = []
    for number, segment in enumerate(trajectory.segments):
        at = 0
        for kept, run in groupby(segment.loss_mask):
            size = len(list(run))
            if kept:
                found.append((number, at, at + size))
            at += size
    return found
