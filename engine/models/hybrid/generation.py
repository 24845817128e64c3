"""What transformers' `generate` needs of the model: its cache, and rows padded on either side."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from engine.kernels.tree import TreeLayout
from engine.models.hybrid.cache import HybridCache
from engine.models.hybrid.config import HybridConfig


class GenerationCache(Cache):
    """A `HybridCache` behind transformers' names; it takes its batch from the first pass.

    `columns` counts what `generate` has fed, padding included; true lengths are the slots'.
    """

    is_croppable = False

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.memory: HybridCache | None = None
        self.columns = 0

    def room(self, config: HybridConfig, ids: Tensor, dtype: torch.dtype) -> HybridCache:
        """The slots, with room for the ids [batch, tokens]."""
        if self.memory is None:
            self.memory = HybridCache.empty(config, len(ids), 0, dtype, ids.device)
        if self.memory.slots != len(ids):
            raise ValueError(
                f"past_key_values holds {self.memory.slots} sequences, input_ids {len(ids)}"
            )
        needed = self.columns + ids.shape[1]
        if needed > self.memory.capacity:
            self.memory.grow(max(64, 1 << (needed - 1).bit_length()))
        return self.memory

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.columns

    @property
    def batch_size(self) -> int:
        return -1 if self.memory is None else self.memory.slots

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.memory is not None:
            self.memory = self.memory.select(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.memory is not None:
            rows = torch.arange(self.memory.slots, device=self.memory.lengths.device)
            self.memory = self.memory.select(rows.repeat_interleave(repeats))

    def reset(self) -> None:
        self.memory, self.columns = None, 0

    def crop(self, tokens_to_remove: int) -> None:
        """Always refused, see `HybridCache.crop`."""
        raise NotImplementedError(
            f"A lightning state cannot forget its last {tokens_to_remove} tokens: take a snapshot "
            "of a slot before them and restore it, or read the tokens again."
        )


@dataclass(frozen=True)
class Padding:
    """Where the true tokens of each row stand: after `pads` [batch] others, `lengths` [batch]."""

    pads: Tensor
    lengths: Tensor

    @staticmethod
    def of(mask: Tensor, tokens: int) -> "Padding | None":
        """mask: [batch, at least tokens], of which the last columns belong to the tokens.

        None where nothing is padded.

        Raises ValueError for a mask of another form and for one with gaps inside a row.
        """
        if mask.ndim != 2 or mask.shape[1] < tokens:
            raise ValueError(
                f"attention_mask has shape {list(mask.shape)}; expected [batch, columns], with a "
                f"column for each of the {tokens} tokens"
            )
        mask = mask[:, mask.shape[1] - tokens :].bool()
        lengths = mask.sum(dim=1)
        pads = torch.where(lengths > 0, mask.long().argmax(dim=1), 0)
        column = torch.arange(tokens, device=mask.device)
        run = (column >= pads[:, None]) & (column < (pads + lengths)[:, None])
        if not torch.equal(mask, run):
            row = int((mask != run).any(dim=1).nonzero()[0])
            raise ValueError(
                f"attention_mask hides tokens inside row {row}; only padding before and after a "
                "row's tokens can be honoured"
            )
        return None if bool(mask.all()) else Padding(pads, lengths)

    def to_front(self, x: Tensor) -> Tensor:
        """x [batch, tokens, ...] turned row by row so that the true tokens come first."""
        return self._turn(x, self.pads)

    def back(self, x: Tensor) -> Tensor:
        return self._turn(x, -self.pads)

    def _turn(self, x: Tensor, shift: Tensor) -> Tensor:
        if not self.pads.any():
            return x
        column = torch.arange(x.shape[1], device=x.device)
        source = (column + shift[:, None]) % x.shape[1]
        return x[torch.arange(len(x), device=x.device)[:, None], source]


def packed_layout(positions: Tensor) -> TreeLayout | None:
    """The layout of rows that hold several sequences each; None where each row is one.

    positions: [batch, tokens], which start again at 0 with each sequence.
    Raises ValueError where they do not count up from 0.
    """
    flat = positions.flatten()
    starts = (flat == 0).nonzero().flatten()
    counted = torch.arange(len(flat), device=flat.device)
    heads = torch.zeros_like(flat)
    heads[starts] = 1
    whole = len(starts) > 0 and bool((positions[:, 0] == 0).all())
    if not whole or not torch.equal(flat, counted - starts[heads.cumsum(0) - 1]):
        raise ValueError(
            "position_ids must count up by one from 0, for each row or for each of the sequences "
            "packed into it: lightning layers know no other positions"
        )
    if len(starts) == len(positions):
        return None
    ends = [*starts.tolist()[1:], len(flat)]
    lengths = [end - start for start, end in zip(starts.tolist(), ends, strict=True)]
    return TreeLayout.build(lengths, [-1] * len(lengths)).to(flat.device)


def check_positions(positions: Tensor, start: Tensor, padding: Padding | None) -> None:
    """Raises ValueError unless positions [batch, tokens] go on from `start` [batch]."""
    tokens = positions.shape[1]
    column = torch.arange(tokens, device=positions.device).expand(len(start), -1)
    expected, counts = start[:, None] + column, torch.ones_like(column, dtype=torch.bool)
    if padding is not None:
        expected = expected - padding.pads[:, None]
        counts = (column >= padding.pads[:, None]) & (
            column < (padding.pads + padding.lengths)[:, None]
        )
    if not torch.equal(positions.expand_as(expected)[counts], expected[counts]):
        raise ValueError(
            f"position_ids begin with {positions[:, 0].tolist()}, but the cache holds "
            f"{start.tolist()} tokens: positions go on where the cache ends"
        )


def refuse_unknown(arguments: dict[str, Any]) -> None:
    """Raises ValueError for arguments that would change the result and are not honoured."""
    given = sorted(
        name for name, value in arguments.items() if value is not None and value is not False
    )
    if given:
        raise ValueError(f"The hybrid model does not know the arguments {', '.join(given)}.")
