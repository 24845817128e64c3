"""Watched logits of a whole model, and that scaling rows of its projections scales them."""

import math

import pytest
import torch
from torch import Tensor

from engine.kernels.tree import TreeLayout
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.hybrid.config import LIGHTNING, SOFTMAX
from engine.models.hybrid.ops import causal_conv, rotary_table, rotate
from engine.models.hybrid.watched_logits import watched_logits
from engine.optim.qk_clip import QkClip

LENGTHS, PARENTS = [9, 1, 3, 20, 5], [-1, 0, 0, -1, 3]  # sequences of 10, 12 and 25 tokens


def build(**fields) -> HybridForCausalLM:
    torch.manual_seed(0)
    config = HybridConfig(
        vocab_size=50,
        hidden_size=32,
        num_attention_heads=4,
        rotary_dim=4,
        intermediate_size=16,
        initializer_range=0.5,
        **fields,
    )
    return HybridForCausalLM(config).double()


def batch() -> tuple[Tensor, Tensor, Tensor, TreeLayout]:
    """Padded ids and their ends; the same sequences as the nodes of trees."""
    layout = TreeLayout.build(LENGTHS, PARENTS)
    tree_ids = torch.randint(0, 50, (1, layout.tokens), generator=torch.Generator().manual_seed(1))
    paths = [[*range(10)], [*range(9), *range(10, 13)], [*range(13, 38)]]
    ids = torch.full((3, 30), 7)
    for row, path in enumerate(paths):
        ids[row, : len(path)] = tree_ids[0, path]
    ends = torch.tensor([len(path) for path in paths])[:, None].expand(-1, 30)
    return ids, ends, tree_ids, layout


def largest(model: HybridForCausalLM, ids: Tensor, ends: Tensor, layout=None) -> Tensor:
    found = torch.full(
        (len(model.softmax_layers()), model.config.num_attention_heads),
        -torch.inf,
        dtype=torch.float64,
    )
    with watched_logits(model, found, ends):
        model.routed(ids, layout=layout)
    return found


def naive(model: HybridForCausalLM, ids: Tensor, ends: Tensor) -> Tensor:
    """From the inputs of each mixer, written out: project, convolve, rotate, multiply."""
    found, inputs = [], {}
    for number, mixer in model.softmax_layers().items():
        mixer.register_forward_pre_hook(lambda _, args, n=number: inputs.__setitem__(n, args[0]))
    model.routed(ids)
    for number, mixer in model.softmax_layers().items():
        best = torch.full((mixer.heads,), -math.inf, dtype=torch.float64)
        for row, x in enumerate(inputs[number]):
            length = int(ends[row, 0])
            fused = (x[:length] @ mixer.qkv_proj.weight.T).view(length, mixer.kv_heads, -1)
            fused = fused[..., : -mixer.dim]
            if mixer.conv is not None:
                fused = causal_conv(fused[None], mixer.conv)[0]
            heads = fused.view(length, mixer.kv_heads, mixer.shared + 1, mixer.dim)
            cos, sin = rotary_table(4, model.config.rope_theta, length, torch.float64)
            for head in range(mixer.heads):
                q = rotate(heads[:, head // mixer.shared, head % mixer.shared][None], cos, sin)[0]
                k = rotate(heads[:, head // mixer.shared, -1][None], cos, sin)[0]
                for i in range(length):
                    for j in range(i + 1):
                        best[head] = max(best[head], q[i] @ k[j] / math.sqrt(mixer.dim))
        found.append(best)
    return torch.stack(found)


@torch.no_grad()
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("conv_width", [0, 3])
def test_padded_and_merged_passes_show_the_largest_logits(kv_heads: int, conv_width: int) -> None:
    model = build(
        layer_types=[SOFTMAX, LIGHTNING, SOFTMAX],
        num_key_value_heads=kv_heads,
        conv_width=conv_width,
    )
    ids, ends, tree_ids, layout = batch()
    expected = naive(model, ids, ends)
    assert torch.allclose(largest(model, ids, ends), expected, rtol=1e-9)
    merged = largest(model, tree_ids, layout.ends[None], layout)
    assert torch.allclose(merged, expected, rtol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("shared_keys", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("conv_width", [0, 3])
def test_clipping_brings_exactly_the_heads_above_tau_down_to_it(
    conv_width: int, kv_heads: int, shared_keys: bool
) -> None:
    """The convolution and the rotation behind the projection are linear, so that rows scale
    logits; the one softmax layer stands behind a lightning layer, which no clip touches."""
    model = build(
        layer_types=[LIGHTNING, SOFTMAX], num_key_value_heads=kv_heads, conv_width=conv_width
    )
    ids, ends, _, _ = batch()
    before = largest(model, ids, ends)
    tau = float(before.median())
    weight = model.layers[1].mixer.qkv_proj.weight
    rows = weight.view(kv_heads, 4 // kv_heads + 2, 8, 32)
    old = rows.clone()
    clip = QkClip(dict(model.named_parameters()), model.softmax_projections(), tau, shared_keys)
    figures = clip.clip(before)
    assert figures["qk_clipped_heads"] == int((before > tau).sum()) > 0
    assert torch.allclose(largest(model, ids, ends), before.clamp(max=tau), rtol=1e-9)
    assert torch.equal(rows[:, -1], old[:, -1])  # values
    if kv_heads < 4 and not shared_keys:
        assert torch.equal(rows[:, -2], old[:, -2])


@torch.no_grad()
def test_nothing_is_watched_unless_asked_for() -> None:
    model = build(layer_types=[SOFTMAX])
    ids, ends, _, _ = batch()
    with watched_logits(model, None, ends):
        assert all(mixer.watch is None for mixer in model.softmax_layers().values())
    with pytest.raises(RuntimeError), watched_logits(model, torch.zeros(1, 4), ends):
        raise RuntimeError
    assert all(mixer.watch is None for mixer in model.softmax_layers().values())


def test_watching_changes_no_gradient() -> None:
    model = build(layer_types=[LIGHTNING, SOFTMAX])
    ids, ends, tree_ids, layout = batch()

    def gradient(found: Tensor | None, ends: Tensor, *, layout=None) -> Tensor:
        with watched_logits(model, found, ends):
            hidden = model.routed(ids if layout is None else tree_ids, layout=layout).hidden
        (grad,) = torch.autograd.grad(hidden.square().sum(), model.layers[1].mixer.qkv_proj.weight)
        return grad

    for where in ({"ends": ends}, {"ends": layout.ends[None], "layout": layout}):
        seen = torch.full((1, 4), -torch.inf)
        assert torch.equal(gradient(seen, **where), gradient(None, **where))
        assert torch.isfinite(seen).all()
