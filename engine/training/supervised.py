"""Supervised learning: a step, and how likely demonstrations are to a policy."""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.algorithms.batch import collate
from engine.algorithms.tokens import Terms
from engine.models.logprobs import Rows
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


def judge(trainer: Trainer, demonstrations: Sequence[Trajectory]) -> dict[str, float]:
    """Over the demonstrations' unmasked tokens, without a gradient: `loss`, the mean of -log pi,
    and `token_accuracy`, the share of which the policy finds likelier than any other."""
    segments = [segment for one in demonstrations for segment in one.segments]
    batch = collate(segments)

    def of_pass(rows: Rows) -> Tensor:
        tokens = rows.logprobs(trainer.model.head_weight, 1.0)
        return torch.stack([tokens.logprobs, tokens.likeliest.to(tokens.logprobs.dtype)], -1)

    found = trainer.policy.read(batch, range(len(segments)), of_pass, shape=(2,))
    logprob, likeliest = (found.double().sum((0, 1)) / max(1, batch.loss_tokens)).tolist()
    return {"loss": -logprob, "token_accuracy": likeliest}
