"""A step of supervised learning."""

from collections.abc import Sequence

import torch

from engine.algorithms.batch import collate
from engine.algorithms.tokens import Terms
from engine.records.trajectory import Trajectory
from engine.training.trainer import Seen, Trainer


def sft_step(trainer: Trainer, demonstrations: Sequence[Trajectory]) -> dict[str, float]:
    """One step on the demonstrations' unmasked tokens: the mean of -log pi over all of them."""
    segments = [segment for one in demonstrations for segment in one.segments]
    batch = collate(segments)
    share = 1 / max(1, batch.loss_tokens)

    def likelihood(seen: Seen) -> Terms:
        logprobs = seen.tokens.logprobs
        return Terms(-share * logprobs, torch.zeros_like(logprobs, dtype=torch.int8))

    _, figures = trainer.update(batch, range(len(segments)), likelihood, 1.0)
    trainer.version += 1
    return {name: value for name, value in figures.items() if not name.startswith("clip_")}
