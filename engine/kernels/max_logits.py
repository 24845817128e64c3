"""The largest attention logit of each head, in tiles: what QK-Clip and its curve are made from."""

import math

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 128  # queries, and keys, of a tile
SCORES = 1 << 22  # scores that exist at once, unless those of one row are more


@torch.no_grad()
def largest_logits(q: Tensor, k: Tensor, ends: Tensor, *, scale: float | None = None) -> Tensor:
    """The largest scale * q_i . k_j of each head over the pairs that causal attention sees.

    q: [batch, heads, tokens, dim]; k: [batch, kv heads, tokens, dim], kv heads dividing heads;
    ends: [batch, tokens], key j is visible to query i exactly if j <= i < ends[j], as in a
    TreeLayout; a token whose end is not beyond itself is padding. scale: 1 / sqrt(dim) by default.
    Returns [heads], in fp32 (fp64 of fp64), -inf where there is no pair, NaN where a logit is.
    Exact: tiles are left out only where |q| |k| says that nothing larger is in them.
    """
    rows, heads, tokens, _ = q.shape
    if ends.shape != (rows, tokens) or k.shape[::2] != q.shape[::2] or heads % k.shape[1]:
        raise ValueError(
            f"Largest logits got q {tuple(q.shape)}, k {tuple(k.shape)}, ends {tuple(ends.shape)}; "
            "expected [batch, heads, tokens, dim], kv heads that divide heads, [batch, tokens]."
        )
    ends, block = ends.to(q.device), min(BLOCK, tokens)
    at_once = max(1, SCORES // (heads * block * block))
    largest = torch.full((heads,), -torch.inf, dtype=_exact(q.dtype), device=q.device)
    for start in range(0, rows, at_once):
        part = slice(start, start + at_once)
        found = _Tiles(q[part], k[part], ends[part], scale, block).largest()
        largest = torch.maximum(largest, found)
    return largest


class _Tiles:
    """Some rows of a batch, whose scores in one tile may exist at once."""

    def __init__(self, q: Tensor, k: Tensor, ends: Tensor, scale: float | None, block: int) -> None:
        kv_heads, tokens, dim = k.shape[1:]
        self.q = q.to(_exact(q.dtype)).view(len(q), kv_heads, -1, tokens, dim)
        self.k, self.ends, self.block = k.to(self.q.dtype), ends, block
        self.scale = 1 / math.sqrt(dim) if scale is None else scale
        self.token = torch.arange(tokens, device=q.device)
        padding = ends <= self.token
        self.q_norms = self._largest_norms(self.q, padding[:, None, None])  # [kv, shared, blocks]
        self.k_norms = self._largest_norms(self.k, padding[:, None])  # [kv, blocks]
        reach = functional.pad(ends.amax(0), (0, -tokens % block))
        self.reach = reach.view(-1, block).amax(1)  # no later query sees any key of the block

    def _largest_norms(self, x: Tensor, padding: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(x, dim=-1).masked_fill(padding, 0).amax(0)
        norms = functional.pad(norms, (0, -norms.shape[-1] % self.block))
        largest: Tensor = norms.view(*norms.shape[:-1], -1, self.block).amax(-1)
        return largest

    def largest(self) -> Tensor:
        largest = self.q.new_full(self.q.shape[1:3], -torch.inf)
        for block in range(len(self.reach)):
            queries = self.q_norms[..., block, None]
            bounds = abs(self.scale) * queries * self.k_norms[:, None, : block + 1]
            bounds[..., self.reach[: block + 1] <= block * self.block] = -torch.inf
            for other in bounds.amax((0, 1)).argsort(descending=True).tolist():
                # written so that NaN counts as larger
                wanted = ~(bounds[..., other] <= largest).all(1)
                if wanted.any():
                    found = self._tile(block, other, wanted)
                    largest[wanted] = torch.maximum(largest[wanted], found)
        return torch.flatten(largest)

    def _tile(self, block: int, other: int, wanted: Tensor) -> Tensor:
        """[wanted kv heads, shared]"""
        rows, columns = (slice(at * self.block, (at + 1) * self.block) for at in (block, other))
        q, k = self.q[:, wanted, :, rows], self.k[:, wanted, columns]
        scores = (q.flatten(2, 3) @ k.transpose(-1, -2)).view(*q.shape[:-1], -1)
        query, key = self.token[rows, None], self.token[columns]
        hidden = (key > query) | (query >= self.ends[:, None, columns])
        scores.mul_(self.scale).masked_fill_(hidden[:, None, None], -torch.inf)
        found: Tensor = scores.amax((0, 3, 4))
        return found


def _exact(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
