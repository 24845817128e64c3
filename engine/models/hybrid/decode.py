"""One more token for many sequences at once: the model's forward pass, arranged for decoding.

A decode step is bound by the number of its operations and by the keys and values that it reads, not
by arithmetic. So what all layers need is made once, states change in place, weights are at hand
without a module between, and a prefix that rows share is read once for all of them (Hydragen,
2402.05099). `HybridForCausalLM.hidden` is the model; tests hold this to it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.kernels.lightning import lightning_step
from engine.models.hybrid.cache import HybridCache, LayerCache, SlotSnapshot
from engine.models.hybrid.layers import Block
from engine.models.hybrid.mixers import LightningMixer
from engine.models.hybrid.model import HybridForCausalLM
from engine.models.hybrid.moe import MixtureOfExperts
from engine.models.hybrid.ops import RmsNorm, rms_norm, rotary_table, rotate


@dataclass(frozen=True)
class SharedPrefix:
    """Keys and values before those that `rows` [rows] hold in the cache themselves."""

    rows: Tensor
    snapshot: SlotSnapshot


@dataclass(frozen=True)
class _Step:
    """What the layers of one step have in common; its rows are the first slots of the cache."""

    live: Tensor | None  # [rows]; None: all
    context: int  # keys of the longest row, the new one included
    places: Tensor  # [rows * kv heads]: where new keys go among all (slot, head, position)
    past_end: Tensor  # [rows, 1, 1, context]: -inf where a row has no key, else 0
    cos: Tensor  # [rows, 1, 1, rotary dim]
    sin: Tensor
    prefixes: Sequence[SharedPrefix]


class Decoder:
    """Decodes with the weights that the model has at each step; its precision must not change."""

    def __init__(self, model: HybridForCausalLM) -> None:
        self._config = model.config
        self._embedding = model.embedding.weight
        self._blocks = [
            _Block(block, index)  # type: ignore[arg-type]
            for index, block in enumerate(model.layers)
        ]
        self._norm = _Norm(model.norm)

    @torch.no_grad()
    def step(
        self,
        ids: Tensor,
        cache: HybridCache,
        live: Tensor | None = None,
        prefixes: Sequence[SharedPrefix] = (),
    ) -> Tensor:
        """Hidden states [rows, width] after one more token of each of the cache's first slots.

        ids [rows]. Rows that are not `live` [rows] stay as they are, and give rubbish: what they
        write goes to the last slot of the cache, which must be none of the rows. `lengths` of the
        cache count what a slot holds itself, without its prefix.
        Raises ValueError where a row has no room for another token.
        """
        step = self._prepare(cache, len(ids), live, prefixes)
        h = functional.embedding(ids, self._embedding).to(self._norm.weight.dtype)
        for block, layer in zip(self._blocks, cache.layers, strict=True):
            h = block.step(h, layer, step)
        cache.lengths[: len(ids)] += 1 if live is None else live
        return self._norm(h)

    def _prepare(
        self,
        cache: HybridCache,
        rows: int,
        live: Tensor | None,
        prefixes: Sequence[SharedPrefix],
    ) -> _Step:
        config, device = self._config, cache.lengths.device
        held = cache.lengths[:rows]
        slots = torch.arange(rows, device=device)
        if live is not None:
            held = torch.where(live, held, 0)
            slots = torch.where(live, slots, cache.slots - 1)
        context = int(held.max()) + 1
        if context > cache.capacity:
            raise ValueError(
                f"A slot would hold {context} tokens; the cache has room for {cache.capacity}."
            )
        kv_heads = config.num_key_value_heads or config.num_attention_heads
        places = slots[:, None] * kv_heads + torch.arange(kv_heads, device=device)
        places = places * cache.capacity + held[:, None]
        past_end = torch.arange(context, device=device) > held[:, None]
        mask = torch.zeros(past_end.shape, device=device).masked_fill_(past_end, -torch.inf)
        position = held
        for prefix in prefixes:
            shift = torch.full_like(prefix.rows, prefix.snapshot.length)
            position = position.index_add(0, prefix.rows, shift)
        size = max(256, 1 << int(position.max()).bit_length())  # few tables, each kept
        dtype = self._norm.weight.dtype
        tables = rotary_table(config.rotary_dim or 0, config.rope_theta, size, dtype)
        cos, sin = (table.to(device)[position][:, None, None] for table in tables)
        return _Step(live, context, places.flatten(), mask[:, None, None], cos, sin, prefixes)


class _Norm:
    def __init__(self, norm: RmsNorm) -> None:
        self.weight, self._eps = norm.weight, norm.eps

    def __call__(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self._eps)


class _Block:
    def __init__(self, block: Block, index: int) -> None:
        mixer, mlp = block.mixer, block.mlp
        self._index = index
        self._heads, self._shared, self._dim = mixer.kv_heads, mixer.shared, mixer.dim
        self._qkv, self._out, self._conv = mixer.qkv_proj.weight, mixer.out_proj.weight, mixer.conv
        self._mixer_norm, self._mlp_norm = _Norm(block.mixer_norm), _Norm(block.mlp_norm)
        self._mixer_alpha, self._mixer_beta = block.mixer_alpha, block.mixer_beta
        self._mlp_alpha, self._mlp_beta = block.mlp_alpha, block.mlp_beta
        self._lightning: LightningMixer | None = None
        if isinstance(mixer, LightningMixer):
            self._lightning = mixer
            self._gate, self._norm = mixer.output_gate.weight, _Norm(mixer.norm)
        self._experts: MixtureOfExperts | None = None
        if isinstance(mlp, MixtureOfExperts):
            self._experts = mlp
        else:
            self._gate_up, self._down = mlp.gate_up_proj.weight, mlp.down_proj.weight

    def step(self, h: Tensor, layer: LayerCache, step: _Step) -> Tensor:
        x = self._mixer_norm(h)
        if self._lightning is None:
            branch = self._softmax(x, layer, step)
        else:
            branch = self._linear(x, layer, step, self._lightning.slopes(x.device))
        h = _residual(branch, x, self._mixer_alpha, self._mixer_beta)
        x = self._mlp_norm(h)
        return _residual(self._mlp(x), x, self._mlp_alpha, self._mlp_beta)

    def _mlp(self, x: Tensor) -> Tensor:
        if self._experts is not None:
            return self._experts(x)[0]  # type: ignore[no-any-return]
        gate, up = functional.linear(x, self._gate_up).chunk(2, dim=-1)
        return functional.linear(functional.silu(gate).mul_(up), self._down)

    def _project(self, x: Tensor, layer: LayerCache, step: _Step) -> tuple[Tensor, Tensor]:
        """q and k [rows, kv heads, (shared + 1) dim] after the convolution, v [..., dim]."""
        qkv = functional.linear(x, self._qkv).view(len(x), self._heads, -1)
        q_and_k, v = qkv[..., : -self._dim], qkv[..., -self._dim :]
        if self._conv is None or layer.tail is None:
            return q_and_k, v
        tail, before = layer.tail[: len(x)], q_and_k
        q_and_k = before * self._conv[0]
        for lag in range(1, len(self._conv)):
            q_and_k.addcmul_(tail[:, -lag].to(x.dtype), self._conv[lag])
        moved = torch.cat([tail[:, 1:], before[:, None].to(tail.dtype)], dim=1)
        if step.live is not None:
            moved = torch.where(step.live[:, None, None, None], moved, tail)
        tail.copy_(moved)
        return q_and_k, v

    def _linear(self, x: Tensor, layer: LayerCache, step: _Step, slopes: Tensor) -> Tensor:
        assert layer.state is not None
        q_and_k, v = self._project(x, layer, step)
        q, k = functional.silu(q_and_k).chunk(2, dim=-1)
        state = layer.state[: len(x)]
        output = lightning_step(q, k, functional.silu(v), slopes, state, step.live)
        normed = self._norm(output.flatten(1).to(x.dtype))
        gated = normed.mul_(functional.linear(x, self._gate).sigmoid_())
        return functional.linear(gated, self._out)

    def _softmax(self, x: Tensor, layer: LayerCache, step: _Step) -> Tensor:
        assert layer.keys is not None and layer.values is not None
        rows, heads, shared, dim = len(x), self._heads, self._shared, self._dim
        q_and_k, v = self._project(x, layer, step)
        turned = rotate(q_and_k.view(rows, heads, shared + 1, dim), step.cos, step.sin)
        turned = turned.to(layer.keys.dtype)
        layer.keys.view(-1, dim).index_copy_(0, step.places, turned[:, :, -1].reshape(-1, dim))
        v = v.to(layer.values.dtype).reshape(-1, dim)
        layer.values.view(-1, dim).index_copy_(0, step.places, v)
        q = turned[:, :, :-1].reshape(rows * heads, shared, dim) * (1 / math.sqrt(dim))
        keys, values = (
            part[:rows].flatten(0, 1)[:, : step.context] for part in (layer.keys, layer.values)
        )
        scores = torch.bmm(q, keys.transpose(1, 2)).view(rows, heads, shared, -1)
        scores += step.past_end
        output = torch.bmm(torch.softmax(scores, dim=-1).flatten(0, 1), values)
        if step.prefixes:
            output, q = (part.view(rows, heads, shared, dim) for part in (output, q))
            weight = scores.logsumexp(dim=-1, keepdim=True)
            for prefix in step.prefixes:
                _merge(output, weight, q, prefix.rows, prefix.snapshot.layers[self._index])
        return functional.linear(output.view(rows, -1).to(x.dtype), self._out)


def _residual(branch: Tensor, x: Tensor, alpha: float, beta: float) -> Tensor:
    return (branch if beta == 1.0 else branch.mul_(beta)).add_(x, alpha=alpha)


def _merge(output: Tensor, weight: Tensor, q: Tensor, rows: Tensor, prefix: LayerCache) -> None:
    """Lets `rows` of the output attend to a prefix as well: one tall product for each head.

    output, q: [all rows, kv heads, shared, dim]; weight: [all rows, kv heads, shared, 1], the
    logarithm of the sum of exponentials of the scores that the output comes from.
    """
    assert prefix.keys is not None and prefix.values is not None
    tall = q[rows].transpose(0, 1)  # [kv heads, rows, shared, dim]
    scores = torch.bmm(tall.flatten(1, 2), prefix.keys.transpose(1, 2))
    highest = scores.amax(dim=-1, keepdim=True)
    scores.sub_(highest).exp_()  # once, for the sum and the product alike
    total = scores.sum(dim=-1, keepdim=True)
    mixed = torch.bmm(scores, prefix.values).div_(total)
    theirs = highest.add_(total.log_())
    mixed, theirs = (part.view(*tall.shape[:-1], -1).transpose(0, 1) for part in (mixed, theirs))
    output[rows] = torch.lerp(output[rows], mixed, torch.sigmoid(theirs - weight[rows]))
