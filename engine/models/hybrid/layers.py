"""One block of the hybrid model: a mixer over tokens, then a SwiGLU MLP."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.kernels.lightning import (
    SlopeSchedule,
    head_slopes,
    lightning_attention,
    lightning_step,
)
from engine.models.hybrid.cache import LayerCache
from engine.models.hybrid.config import LIGHTNING, HybridConfig
from engine.models.hybrid.ops import (
    cached_attention,
    causal_attention,
    causal_conv,
    rms_norm,
    rotary_table,
    rotate,
)


class RmsNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class Span:
    """Which tokens of which slots a forward pass covers.

    slots: rows of the cache, a slice where they are neighbours (then nothing is copied);
    start [batch]: tokens that a slot holds already; lengths [batch]: true new tokens of each row;
    live [batch]: given where each row has one token; rows that are False stay as they are;
    context: longest start + length.
    """

    def __init__(
        self, slots: slice | Tensor, start: Tensor, lengths: Tensor, live: Tensor | None = None
    ) -> None:
        self.slots = slots
        self.start = start
        self.lengths = lengths
        self.live = live
        self.context = int((start + lengths).max())


class Mixer(nn.Module):
    """What both kinds of attention share: fused q, k, v (interleaved per head) and the conv."""

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        width, self.heads, self.dim = (
            config.hidden_size,
            config.num_attention_heads,
            config.head_dim,
        )
        self.qkv_proj = nn.Linear(width, 3 * width, bias=False)
        self.out_proj = nn.Linear(width, width, bias=False)
        if config.conv_width > 0:
            self.conv = nn.Parameter(torch.zeros(config.conv_width, self.heads, 2 * self.dim))
        else:
            self.register_parameter("conv", None)

    def project(
        self, x: Tensor, cache: LayerCache | None, span: Span | None
    ) -> tuple[Tensor, Tensor]:
        """q and k [batch, heads, tokens, 2 dim] after the convolution, v [..., dim]."""
        qkv = self.qkv_proj(x).unflatten(-1, (self.heads, 3 * self.dim))
        q_and_k, v = qkv.split((2 * self.dim, self.dim), dim=-1)
        if self.conv is not None:
            if cache is None or span is None or cache.tail is None:
                q_and_k = causal_conv(q_and_k, self.conv)
            else:
                tail, before = cache.tail[span.slots], q_and_k
                q_and_k = causal_conv(before, self.conv, tail)
                cache.tail[span.slots] = _next_tail(tail, before, span)
        return q_and_k.transpose(1, 2), v.transpose(1, 2)

    def join(self, output: Tensor) -> Tensor:
        return output.transpose(1, 2).flatten(2)


def _next_tail(tail: Tensor, x: Tensor, span: Span) -> Tensor:
    """The conv inputs before each row's next token; x: [batch, tokens, heads, 2 dim]."""
    taps = tail.shape[1]
    extended = torch.cat([tail, x.to(tail.dtype)], dim=1)
    if span.live is not None:
        return torch.where(span.live[:, None, None, None], extended[:, 1:], tail)
    index = span.lengths[:, None] + torch.arange(taps, device=x.device)
    return extended.gather(1, index[..., None, None].expand(-1, -1, *x.shape[2:]))


class LightningMixer(Mixer):
    """Linear attention with a constant decay per head; the decay is the position signal."""

    def __init__(self, config: HybridConfig, layer: int) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.output_gate = nn.Linear(width, width, bias=False)
        self.norm = RmsNorm(width, config.rms_norm_eps)
        self._schedule = SlopeSchedule(config.slope_schedule), config.num_attention_heads
        self._place = layer, config.num_hidden_layers
        self._slopes: Tensor | None = None

    def slopes(self, device: torch.device) -> Tensor:
        """Constants in fp32, kept out of parameters and buffers so that no cast reaches them."""
        if self._slopes is None or self._slopes.device != device:
            self._slopes = head_slopes(*self._schedule, *self._place).to(device)
        return self._slopes

    def forward(self, x: Tensor, cache: LayerCache | None, span: Span | None) -> Tensor:
        q_and_k, v = (functional.silu(part) for part in self.project(x, cache, span))
        q, k = q_and_k.chunk(2, dim=-1)
        slopes = self.slopes(x.device)
        if cache is None or span is None or cache.state is None:
            output, _ = lightning_attention(q, k, v, slopes)
        elif span.live is not None:
            state = cache.state[span.slots]
            output = lightning_step(q[:, :, 0], k[:, :, 0], v[:, :, 0], slopes, state, span.live)
            output = output[:, :, None].to(x.dtype)
            if isinstance(span.slots, Tensor):
                cache.state[span.slots] = state
        else:
            output, state = lightning_attention(
                q, k, v, slopes, initial_state=cache.state[span.slots], lengths=span.lengths
            )
            cache.state[span.slots] = state
        gate = torch.sigmoid(self.output_gate(x))
        return self.out_proj(gate * self.norm(self.join(output)))  # type: ignore[no-any-return]


class SoftmaxMixer(Mixer):
    """Softmax attention with rotary positions."""

    def __init__(self, config: HybridConfig) -> None:
        super().__init__(config)
        self._rotary = config.head_dim, config.rope_theta

    def forward(self, x: Tensor, cache: LayerCache | None, span: Span | None) -> Tensor:
        q_and_k, v = self.project(x, cache, span)
        tokens = x.shape[1]
        if cache is None or span is None or cache.keys is None or cache.values is None:
            cos, sin = (t[:tokens].to(x.device) for t in self._table(tokens, x.dtype))
            q, k = (rotate(part, cos, sin) for part in q_and_k.chunk(2, dim=-1))
            output = causal_attention(q, k, v)
            return self.out_proj(self.join(output))  # type: ignore[no-any-return]
        steps = torch.arange(tokens, device=x.device)
        position = span.start[:, None] + steps
        cos, sin = (
            t.to(x.device)[position][:, None] for t in self._table(span.context + tokens, x.dtype)
        )
        q, k = (rotate(part, cos, sin) for part in q_and_k.chunk(2, dim=-1))
        rows = torch.arange(cache.keys.shape[0], device=x.device)[span.slots]
        if span.live is None:
            row, token = (steps < span.lengths[:, None]).nonzero(as_tuple=True)
        else:  # a row that is not live writes where its next token will write again
            row, token = torch.arange(len(rows), device=x.device), torch.zeros_like(rows)
        place = rows[row], slice(None), position[row, token]
        cache.keys[place] = k[row, :, token].to(cache.keys.dtype)
        cache.values[place] = v[row, :, token].to(cache.values.dtype)
        output = cached_attention(
            q,
            cache.keys[:, :, : span.context][span.slots],
            cache.values[:, :, : span.context][span.slots],
            span.start,
        )
        return self.out_proj(self.join(output))  # type: ignore[no-any-return]

    def _table(self, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        rounded = max(256, 1 << (length - 1).bit_length())  # few tables, each kept
        return rotary_table(*self._rotary, rounded, dtype)


class SwiGlu(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(width, 2 * inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(functional.silu(gate) * up)  # type: ignore[no-any-return]


class Block(nn.Module):
    """h = alpha * x + f(x) with x = norm(h): the residual is the normalised input (MiniMax)."""

    def __init__(self, config: HybridConfig, layer: int) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        kind = (config.layer_types or [])[layer]
        self.mixer_norm = RmsNorm(width, eps)
        self.mixer: Mixer = (
            LightningMixer(config, layer) if kind == LIGHTNING else SoftmaxMixer(config)
        )
        self.mlp_norm = RmsNorm(width, eps)
        self.mlp = SwiGlu(width, config.intermediate_size)
        self.alpha = float(config.residual_alpha or 1.0)

    def forward(self, h: Tensor, cache: LayerCache | None, span: Span | None) -> Tensor:
        x = self.mixer_norm(h)
        h = torch.add(self.mixer(x, cache, span), x, alpha=self.alpha)
        x = self.mlp_norm(h)
        return torch.add(self.mlp(x), x, alpha=self.alpha)
