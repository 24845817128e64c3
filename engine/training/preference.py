"""A step of preference learning: pairs of one prefix, against the policy at the stage's start.

A side's own tokens begin where the sides part. Each of the later ones was chosen behind a first one
that the other side does not have: most tokens of a faulty call are right where they stand, and
comparing them makes right tokens unlikely. With `own_tokens: first` the loss sees the two tokens at
which the sides part and nothing else. They are of one softmax, whose normaliser cancels, so that
the gradient of DPO moves their two logits apart and no other.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.algorithms.batch import TokenBatch, collate
from engine.algorithms.preference import Side, pair_figures, pair_loss
from engine.algorithms.tokens import Terms
from engine.records.trajectory import Segment
from engine.spec import DpoStage
from engine.spec.dpo import OwnTokens
from engine.synthesis.repair import Pair
from engine.training.trainer import Seen, Trainer

AT_ONCE = 64  # pairs, of which references are computed

Reference = tuple[float, float]  # log-probabilities of chosen and rejected


def pair_batch(pairs: Sequence[Pair], own_tokens: OwnTokens) -> TokenBatch:
    """Two rows a pair, chosen and rejected; their own tokens alone, or the first of them, are in
    the loss."""
    end = 1 if own_tokens == "first" else None
    return collate(
        [_segment(one.prefix, own[:end]) for one in pairs for own in (one.chosen, one.rejected)]
    )


def references(trainer: Trainer, pairs: Sequence[Pair], stage: DpoStage) -> list[Reference]:
    """Of every pair under the weights as they are, to be kept for the whole stage."""
    found: list[Reference] = []
    for start in range(0, len(pairs), AT_ONCE):
        batch = pair_batch(pairs[start : start + AT_ONCE], stage.own_tokens)
        logprobs = trainer.logprobs(batch, _groups(batch), stage.practice.temperature)
        sums = _sums(logprobs, batch)
        found += zip(sums[::2].tolist(), sums[1::2].tolist(), strict=True)
    return found


def preference_step(
    trainer: Trainer, pairs: Sequence[Pair], reference: Sequence[Reference], stage: DpoStage
) -> dict[str, float]:
    """One step on these pairs, all of which the loss couples.

    What each log-probability weighs is therefore found first, from all of them, and the gradient
    then taken pass by pass. Raises ValueError where a log-probability is not finite.
    """
    batch = pair_batch(pairs, stage.own_tokens)
    groups, temperature = _groups(batch), stage.practice.temperature
    sums = _sums(trainer.logprobs(batch, groups, temperature), batch).requires_grad_()
    chosen, rejected = _sides(sums, batch, reference)
    loss = pair_loss(
        stage.loss,
        chosen,
        rejected,
        beta=stage.strength,
        label_smoothing=stage.label_smoothing,
        rpo_weight=stage.rpo_weight,
    )
    (weights,) = torch.autograd.grad(loss, sums)

    def objective(seen: Seen) -> Terms:
        logprobs = seen.tokens.logprobs
        losses = weights[seen.place[0]].to(logprobs.dtype) * logprobs
        return Terms(losses, torch.zeros_like(logprobs, dtype=torch.int8))

    _, figures = trainer.update(batch, groups, objective, temperature)
    trainer.version += 1
    kept = {name: value for name, value in figures.items() if not name.startswith("clip_")}
    return {**kept, "loss": float(loss.detach()), **pair_figures(chosen, rejected, stage.strength)}


def _segment(prefix: list[int], own: list[int]) -> Segment:
    size = len(prefix) + len(own)
    mask = [False] * len(prefix) + [True] * len(own)
    return Segment([*prefix, *own], mask, [0.0] * size, [-1] * size)


def _groups(batch: TokenBatch) -> list[int]:
    return [row // 2 for row in range(len(batch))]


def _sums(logprobs: Tensor, batch: TokenBatch) -> Tensor:
    """[rows], in float64: log-probabilities of each row's own tokens."""
    return (logprobs.double() * batch.loss_mask).sum(1)


def _sides(sums: Tensor, batch: TokenBatch, reference: Sequence[Reference]) -> Iterator[Side]:
    tokens = batch.loss_mask.sum(1)
    at_start = torch.tensor(reference, dtype=sums.dtype)
    for side in range(2):
        yield Side(sums[side::2], at_start[:, side], tokens[side::2])
