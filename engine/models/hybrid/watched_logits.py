"""Watching the largest attention logits of a hybrid model while it passes over a batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from engine.kernels.max_logits import largest_logits
from engine.models.hybrid.body import HybridModel


@contextmanager
def watched_logits(model: HybridModel, largest: Tensor | None, ends: Tensor) -> Iterator[None]:
    """Raises `largest` [softmax layers, heads] in place to the largest logits of passes inside.

    Of pairs of real tokens only: `ends` [batch, tokens] says which, as `largest_logits` reads it.
    None watches nothing and costs nothing. Passes over a cache, which sample, are not watched.
    """
    mixers = [] if largest is None else list(model.softmax_layers().values())
    try:
        for row, mixer in enumerate(mixers):
            assert largest is not None
            mixer.watch = partial(_raise, largest[row], ends)
        yield
    finally:
        for mixer in mixers:
            mixer.watch = None


def _raise(largest: Tensor, ends: Tensor, q: Tensor, k: Tensor) -> None:
    found = largest_logits(q.detach(), k.detach(), ends)
    torch.maximum(largest, found.to(largest), out=largest)
