"""The token-level record that all losses are computed from, and how it is cut into pieces."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from engine.records.trajectory import Segment

PIECE_OVERHEAD = 512  # tokens of padding that cost about as much as one more piece


@dataclass
class TokenBatch:
    """Rows are segments, right-padded; all but `lengths` [rows] are [rows, tokens].

    loss_mask: True where the token was sampled by the policy and is trained on;
    behaviour: log-probability under the distribution that sampled it; versions: the policy
    version that did; advantages: one number a token. Where the mask is False they mean nothing.
    """

    ids: Tensor
    lengths: Tensor
    loss_mask: Tensor
    behaviour: Tensor
    versions: Tensor
    advantages: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def loss_tokens(self) -> int:
        """How many tokens enter the loss: the denominator of a token mean."""
        return int(self.loss_mask.sum())

    def rows(self, index: Tensor) -> "TokenBatch":
        """The given rows, without the padding that none of them needs."""
        width = int(self.lengths[index].max())
        picked = {f.name: getattr(self, f.name)[index] for f in fields(self)}
        lengths = picked.pop("lengths")
        return TokenBatch(lengths=lengths, **{k: v[:, :width] for k, v in picked.items()})

    def micro_batches(self, max_tokens: int, rank: int = 0, world: int = 1) -> Iterator[Tensor]:
        """Cuts the batch into row indices of like length, dealt out to the ranks in turn.

        A piece has at most `max_tokens` tokens with its padding, or a single row. All ranks
        together cover each row once.
        """
        mine = torch.argsort(self.lengths, descending=True, stable=True)[rank::world]
        piece: list[int] = []
        longest = padding = 0
        for row, length in zip(mine.tolist(), self.lengths[mine].tolist(), strict=True):
            full = (len(piece) + 1) * longest > max_tokens
            if piece and (full or padding + longest - length > PIECE_OVERHEAD):
                yield torch.tensor(piece)
                piece, padding = [], 0
            if not piece:
                longest = length
            piece.append(row)
            padding += longest - length
        if piece:
            yield torch.tensor(piece)


def collate(segments: Sequence[Segment], advantages: Sequence[float]) -> TokenBatch:
    """One row a segment, with one advantage for all its tokens.

    Raises ValueError where a segment's lists disagree or its first token would be trained on.
    """
    if not segments:
        raise ValueError("A batch needs at least one segment.")
    for segment in segments:
        sizes = {len(segment.ids), len(segment.loss_mask)}
        if sizes != {len(segment.logprobs)} or sizes != {len(segment.versions)}:
            raise ValueError("A segment must have one mask, log-prob and version for each token.")
        if segment.loss_mask and segment.loss_mask[0]:
            raise ValueError(
                "The first token of a segment has no context and cannot be trained on."
            )
    lengths = torch.tensor([len(segment.ids) for segment in segments])
    rows, width = len(segments), int(lengths.max())
    batch = TokenBatch(
        ids=torch.zeros(rows, width, dtype=torch.long),
        lengths=lengths,
        loss_mask=torch.zeros(rows, width, dtype=torch.bool),
        behaviour=torch.zeros(rows, width),
        versions=torch.full((rows, width), -1),
        advantages=torch.zeros(rows, width),
    )
    for row, (segment, advantage) in enumerate(zip(segments, advantages, strict=True)):
        size = len(segment.ids)
        batch.ids[row, :size] = torch.tensor(segment.ids)
        batch.loss_mask[row, :size] = torch.tensor(segment.loss_mask)
        batch.behaviour[row, :size] = torch.tensor(segment.logprobs)
        batch.versions[row, :size] = torch.tensor(segment.versions)
        batch.advantages[row, :size] = advantage
    return batch
