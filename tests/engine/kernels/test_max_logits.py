"""The largest logit of each head against all of them at once, padded and on prefix trees."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.kernels import max_logits
from engine.kernels.max_logits import largest_logits
from engine.kernels.tree import TreeLayout
from tests.engine.kernels.tree_cases import dense_mask, forests


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short sequences have many tiles, computed a few rows at a time."""
    monkeypatch.setattr(max_logits, "BLOCK", 8)
    monkeypatch.setattr(max_logits, "SCORES", 1000)


def draw(
    rows: int, tokens: int, heads: int, kv_heads: int, seed: int, dim: int = 4
) -> tuple[Tensor, Tensor]:
    """Queries and keys whose lengths differ much from token to token, in fp64."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for count in (heads, kv_heads):
        x = torch.randn(rows, count, tokens, dim, generator=generator, dtype=torch.float64)
        found.append(x * torch.rand(rows, count, tokens, 1, generator=generator) ** 3)
    return found[0], found[1]


def naive(q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
    """All logits at once; visible: [batch, tokens, tokens]."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return logits.masked_fill(~visible[:, None], -torch.inf).amax((0, 2, 3))


heads = st.sampled_from([(1, 1), (3, 3), (4, 2), (6, 1)])


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=5), heads=heads, seed=st.integers()
)
@settings(max_examples=40)
def test_it_is_the_largest_of_all_pairs_in_padded_rows(
    lengths: list[int], heads: tuple[int, int], seed: int
) -> None:
    tokens = max(lengths) + 3
    q, k = draw(len(lengths), tokens, *heads, seed % 2**32)
    ends = torch.tensor(lengths)[:, None].expand(-1, tokens)
    real = torch.arange(tokens) < ends
    visible = torch.ones(tokens, tokens).tril().bool() & real[:, :, None] & real[:, None]
    expected = naive(q, k, visible)
    for x in (q, k):  # what stands in padding is nothing
        x.masked_fill_(~real[:, None, :, None], torch.nan)
    assert torch.allclose(largest_logits(q, k, ends), expected, rtol=1e-12, atol=0)


@given(forest=forests(longest=16), heads=heads, seed=st.integers())
@settings(max_examples=40)
def test_it_is_the_largest_of_all_pairs_on_prefix_trees(
    forest: tuple[list[int], list[int]], heads: tuple[int, int], seed: int
) -> None:
    layout = TreeLayout.build(*forest)
    q, k = draw(1, layout.tokens, *heads, seed % 2**32)
    expected = naive(q, k, dense_mask(layout)[None])
    assert torch.allclose(largest_logits(q, k, layout.ends[None]), expected, rtol=1e-12, atol=0)


def test_it_leaves_out_tiles_that_cannot_hold_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pair far above the rest: Cauchy and Schwarz settle most of the 55 tiles."""
    q, k = draw(1, 80, 2, 2, 0)
    q[:, :, 77], k[:, :, 10] = 50.0, 50.0
    computed = []
    tile = max_logits._Tiles._tile
    monkeypatch.setattr(
        max_logits._Tiles, "_tile", lambda *args: (computed.append(args[1:3]), tile(*args))[1]
    )
    ends = torch.full((1, 80), 80)
    found = largest_logits(q, k, ends)
    assert torch.equal(found, torch.full((2,), 50 * 50 * 4 / 2, dtype=torch.float64))
    assert len(computed) < 30


def test_a_logit_that_is_not_a_number_is_never_overlooked() -> None:
    q, k = draw(1, 40, 2, 2, 0)
    q[0, 0, 0] = 1e3  # a large maximum first, so that later tiles are left out
    k[0, 0, 0] = 1e3
    q[0, 0, 35, 0] = torch.nan
    found = largest_logits(q, k, torch.full((1, 40), 40))
    assert found.isnan().tolist() == [True, False]


def test_bf16_logits_are_summed_in_fp32() -> None:
    q, k = (x.bfloat16() for x in draw(2, 40, 4, 2, 0))
    ends = torch.full((2, 40), 40)
    found = largest_logits(q, k, ends)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), largest_logits(q.double(), k.double(), ends), rtol=1e-6)


def test_heads_that_see_nothing_have_no_maximum() -> None:
    q, k = draw(2, 5, 2, 2, 0)
    assert largest_logits(q, k, torch.zeros(2, 5)).tolist() == [-math.inf] * 2


def test_shapes_that_do_not_fit_are_refused() -> None:
    q, k = draw(2, 5, 4, 2, 0)
    with pytest.raises(ValueError, match=r"ends \(1, 5\)"):
        largest_logits(q, k, torch.zeros(1, 5))
    with pytest.raises(ValueError, match="kv heads that divide heads"):
        largest_logits(q, q[:, :3], torch.zeros(2, 5))
