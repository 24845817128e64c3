"""The two kinds of attention of a block: lightning, and softmax with rotary positions."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.kernels.lightning import (
    SlopeSchedule,
    head_slopes,
    lightning_attention,
)
from engine.kernels.tree import tree_attention
from engine.models.hybrid.cache import LayerCache
from engine.models.hybrid.config import HybridConfig
from engine.models.hybrid.ops import (
    RmsNorm,
    branched_conv,
    cached_attention,
    causal_attention,
    causal_conv,
    rotary_table,
    rotate,
)
from engine.models.hybrid.places import Branches, Span

Place = Span | Branches | None  # None: rows stand alone, from their first token


class Mixer(nn.Module):
    """What both kinds share: fused q, k, v (interleaved per group of heads) and the convolution.

    The rows of qkv_proj are, for each key-value head: its queries, its key, its value.
    """

    def __init__(self, config: HybridConfig, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = (
            config.num_attention_heads,
            kv_heads,
            config.head_dim or 0,
        )
        self.shared = self.heads // kv_heads
        width, inner = config.hidden_size, self.heads * self.dim
        self.qkv_proj = nn.Linear(width, inner + 2 * kv_heads * self.dim, bias=False)
        self.out_proj = nn.Linear(inner, width, bias=False)
        if config.conv_width > 0:
            channels = (self.shared + 1) * self.dim
            self.conv = nn.Parameter(torch.zeros(config.conv_width, kv_heads, channels))
        else:
            self.register_parameter("conv", None)

    def project(self, x: Tensor, cache: LayerCache | None, place: Place) -> tuple[Tensor, Tensor]:
        """Convolved q and k [batch, kv heads, tokens, (shared + 1) dim], and v [..., dim]."""
        qkv = self.qkv_proj(x).unflatten(-1, (self.kv_heads, -1))
        q_and_k, v = qkv.split((qkv.shape[-1] - self.dim, self.dim), dim=-1)
        if self.conv is not None:
            if isinstance(place, Branches):
                q_and_k = branched_conv(q_and_k, self.conv, *place.seams)
            elif cache is None or place is None or cache.tail is None:
                q_and_k = causal_conv(q_and_k, self.conv)
            else:
                tail, before = cache.tail[place.slots], q_and_k
                q_and_k = causal_conv(before, self.conv, tail)
                cache.tail[place.slots] = _next_tail(tail, before, place)
        return q_and_k.transpose(1, 2), v.transpose(1, 2)

    def parts(self, q_and_k: Tensor) -> tuple[Tensor, Tensor]:
        """q [batch, heads, tokens, dim] and k [batch, kv heads, tokens, dim]."""
        if self.shared == 1:
            q, k = q_and_k.chunk(2, dim=-1)
            return q, k
        batch, _, tokens, _ = q_and_k.shape
        q, k = torch.split(q_and_k, [self.shared * self.dim, self.dim], dim=-1)
        q = q.reshape(batch, self.kv_heads, tokens, self.shared, self.dim)
        return q.transpose(2, 3).flatten(1, 2), k

    def join(self, output: Tensor) -> Tensor:
        """[batch, heads, tokens, dim] to [batch, tokens, heads dim]."""
        return output.transpose(1, 2).flatten(2)


def _next_tail(tail: Tensor, x: Tensor, span: Span) -> Tensor:
    """The conv inputs before each row's next token; x: [batch, tokens, kv heads, channels]."""
    taps = tail.shape[1]
    extended = torch.cat([tail, x.to(tail.dtype)], dim=1)
    index = span.lengths[:, None] + torch.arange(taps, device=x.device)
    return extended.gather(1, index[..., None, None].expand(-1, -1, *x.shape[2:]))


class LightningMixer(Mixer):
    """Linear attention with a constant decay per head; the decay is the position signal."""

    def __init__(self, config: HybridConfig, layer: int) -> None:
        super().__init__(config, config.num_attention_heads)
        inner = self.heads * self.dim
        self.output_gate = nn.Linear(config.hidden_size, inner, bias=False)
        self.norm = RmsNorm(inner, config.linear_attn_norm_eps or config.rms_norm_eps)
        self._schedule = SlopeSchedule(config.slope_schedule), self.heads
        self._place = layer, len(config.layer_types or ())
        self._slopes: Tensor | None = None

    def slopes(self, device: torch.device) -> Tensor:
        """Constants in fp32, kept out of parameters and buffers so that no cast reaches them."""
        if self._slopes is None or self._slopes.device != device:
            self._slopes = head_slopes(*self._schedule, *self._place).to(device)
        return self._slopes

    def forward(self, x: Tensor, cache: LayerCache | None, place: Place) -> Tensor:
        q_and_k, v = (functional.silu(part) for part in self.project(x, cache, place))
        output = self._attend(*self.parts(q_and_k), v, cache, place)
        gate = torch.sigmoid(self.output_gate(x))
        return self.out_proj(gate * self.norm(self.join(output)))  # type: ignore[no-any-return]

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, cache: LayerCache | None, place: Place
    ) -> Tensor:
        slopes = self.slopes(q.device)
        if isinstance(place, Branches):
            return lightning_attention(q, k, v, slopes, packing=place.packing)[0]
        if cache is None or place is None or cache.state is None:
            return lightning_attention(q, k, v, slopes)[0]
        output, state = lightning_attention(
            q, k, v, slopes, initial_state=cache.state[place.slots], lengths=place.lengths
        )
        cache.state[place.slots] = state
        return output


class SoftmaxMixer(Mixer):
    """Softmax attention with rotary positions on the first dimensions of each head.

    watch: told the queries and keys of passes over whole sequences or trees, see `watched_logits`.
    """

    def __init__(self, config: HybridConfig) -> None:
        super().__init__(config, config.num_key_value_heads or config.num_attention_heads)
        self._rotary = config.rotary_dim or self.dim, config.rope_theta
        self.watch: Callable[[Tensor, Tensor], None] | None = None

    def forward(self, x: Tensor, cache: LayerCache | None, place: Place) -> Tensor:
        q_and_k, v = self.project(x, cache, place)
        q, k = self.parts(q_and_k)
        if isinstance(place, Branches):
            cos, sin = self._table(place.depth, x)
            positions = place.layout.positions
            q, k = (rotate(part, cos[positions], sin[positions]) for part in (q, k))
            self._show(q, k)
            output = tree_attention(q, k, v, place.layout)
        elif cache is None or place is None or cache.keys is None:
            cos, sin = (table[: x.shape[1]] for table in self._table(x.shape[1], x))
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            self._show(q, k)
            output = causal_attention(q, k, v)
        else:
            output = self._attend_cached(q, k, v, cache, place)
        return self.out_proj(self.join(output))  # type: ignore[no-any-return]

    def _show(self, q: Tensor, k: Tensor) -> None:
        if self.watch is not None:
            self.watch(q, k)

    def _attend_cached(
        self, q: Tensor, k: Tensor, v: Tensor, cache: LayerCache, span: Span
    ) -> Tensor:
        assert cache.keys is not None and cache.values is not None
        steps = torch.arange(q.shape[2], device=q.device)
        position = span.start[:, None] + steps
        cos, sin = (table[position][:, None] for table in self._table(span.context + len(steps), q))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        rows = torch.arange(cache.keys.shape[0], device=q.device)[span.slots]
        row, token = (steps < span.lengths[:, None]).nonzero(as_tuple=True)
        place = rows[row], slice(None), position[row, token]
        cache.keys[place] = k[row, :, token].to(cache.keys.dtype)
        cache.values[place] = v[row, :, token].to(cache.values.dtype)
        if span.fresh:
            return causal_attention(q, k, v)
        return cached_attention(
            q,
            cache.keys[:, :, : span.context][span.slots],
            cache.values[:, :, : span.context][span.slots],
            span.start,
        )

    def _table(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of at least `length` positions."""
        rounded = max(256, 1 << (length - 1).bit_length())  # few tables, each kept
        cos, sin = rotary_table(*self._rotary, rounded, like.dtype)
        return cos.to(like.device), sin.to(like.device)
