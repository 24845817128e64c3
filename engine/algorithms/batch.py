"""The token-level record that all losses are computed from, and how it is cut into pieces."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from engine.records.trajectory import Segment

WIDTH_STEP = 8


@dataclass
class TokenBatch:
    """Rows are segments, right-padded; all but `lengths` [rows] are [rows, tokens].

    loss_mask: True where the token was sampled by the policy and is trained on;
    behaviour: log-probability under the distribution that sampled it; versions: the policy
    version that did. Where the mask is False they mean nothing.
    """

    ids: Tensor
    lengths: Tensor
    loss_mask: Tensor
    behaviour: Tensor
    versions: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def loss_tokens(self) -> int:
        """How many tokens enter the loss: the denominator of a token mean."""
        return int(self.loss_mask.sum())

    def rows(self, index: Tensor) -> "TokenBatch":
        """The batch of these rows alone, no wider than before."""
        return TokenBatch(*(getattr(self, one.name)[index] for one in fields(TokenBatch)))

    def pieces(
        self, tokens: int, rank: int = 0, world: int = 1
    ) -> Iterator[tuple[Tensor, "TokenBatch"]]:
        """Micro-batches of rows of like length, with their row numbers, dealt out to the ranks.

        A piece has about `tokens` tokens, padding included; all ranks together cover each row once.
        Widths and row counts come from a short list, so that few shapes occur: kernels are
        compiled and kept for every new one. The rows that this adds stand last and are empty.
        """
        order = torch.argsort(self.lengths, descending=True, stable=True)[rank::world]
        while len(order):
            width = _round_up(int(self.lengths[order[0]]), WIDTH_STEP)
            full = max(1, tokens // width)
            index, order = order[:full], order[full:]
            rows = min(full, _round_up(len(index), max(1, full // 4)))
            yield index, self._padded_rows(index, rows, width)

    def _padded_rows(self, index: Tensor, rows: int, width: int) -> "TokenBatch":
        def pick(values: Tensor) -> Tensor:
            picked = values.new_zeros(rows, width)
            kept = min(width, values.shape[1])
            picked[: len(index), :kept] = values[index, :kept]
            return picked

        lengths = self.lengths.new_zeros(rows)
        lengths[: len(index)] = self.lengths[index]
        return TokenBatch(
            ids=pick(self.ids),
            lengths=lengths,
            loss_mask=pick(self.loss_mask),
            behaviour=pick(self.behaviour),
            versions=pick(self.versions),
        )


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def collate(segments: Sequence[Segment]) -> TokenBatch:
    """One row a segment.

    Raises ValueError where a segment's lists disagree, its mask is none, or its first token would
    be trained on.
    """
    if not segments:
        raise ValueError("A batch needs at least one segment.")
    for segment in segments:
        sizes = {len(segment.ids), len(segment.loss_mask)}
        if sizes != {len(segment.logprobs)} or sizes != {len(segment.versions)}:
            raise ValueError("A segment must have one mask, log-prob and version for each token.")
        if strange := set(segment.loss_mask) - {0, 1}:
            raise ValueError(f"A loss mask says yes or no of each token, not {min(strange):g}.")
        if segment.loss_mask and segment.loss_mask[0]:
            raise ValueError(
                "The first token of a segment has no context and cannot be trained on."
            )
    lengths = [len(segment.ids) for segment in segments]
    shape = len(segments), max(lengths)
    ids = np.zeros(shape, dtype=np.int64)
    loss_mask = np.zeros(shape, dtype=np.bool_)
    behaviour = np.zeros(shape, dtype=np.float32)
    versions = np.full(shape, -1, dtype=np.int64)
    for row, (segment, size) in enumerate(zip(segments, lengths, strict=True)):
        ids[row, :size] = segment.ids  # numpy reads lists several times faster than torch
        loss_mask[row, :size] = segment.loss_mask
        behaviour[row, :size] = segment.logprobs
        versions[row, :size] = segment.versions
    return TokenBatch(
        ids=torch.from_numpy(ids),
        lengths=torch.tensor(lengths),
        loss_mask=torch.from_numpy(loss_mask),
        behaviour=torch.from_numpy(behaviour),
        versions=torch.from_numpy(versions),
    )
