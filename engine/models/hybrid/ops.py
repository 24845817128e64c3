"""The elementwise parts of the hybrid model, with backward passes that are cheap on a CPU."""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = _rms_scale(x, eps)
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (grad,) = grads
        x, weight, scale = ctx.saved_tensors
        normed = x * scale
        by_weight = grad * normed
        d_weight = _column_sums(by_weight)
        projection = (by_weight @ weight)[..., None] / x.shape[-1]
        d_x = (grad * weight).sub_(normed.mul_(projection)).mul_(scale)
        return d_x, d_weight, None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension."""
    if not torch.is_grad_enabled():  # a decode step has so little to do that the class would tell
        return (x * _rms_scale(x, eps)).mul_(weight)
    return _RmsNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call,no-any-return]


class RmsNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


def _rms_scale(x: Tensor, eps: float) -> Tensor:
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=at_least_fp32(x.dtype))
    scale: Tensor = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_().to(x.dtype)
    return scale


def _column_sums(x: Tensor, dims: int = 1) -> Tensor:
    """Sums over all but the last `dims` dimensions; as a product, which accumulates in fp32."""
    shape = x.shape[-dims:]
    flat = x.reshape(-1, shape.numel())
    return (flat.new_ones(1, flat.shape[0]) @ flat).view(shape)


def at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


class _CausalConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        taps = weight.shape[0]
        tokens = x.shape[1] - taps + 1
        ctx.save_for_backward(x, weight)
        out = x[:, taps - 1 :] * weight[0]
        for lag in range(1, taps):
            start = taps - 1 - lag
            out.addcmul_(x[:, start : start + tokens], weight[lag])
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        grad = grads[0].contiguous()
        x, weight = ctx.saved_tensors
        taps, tokens = weight.shape[0], grad.shape[1]
        d_x = torch.zeros_like(x)
        d_weight = torch.empty_like(weight)
        for lag in range(taps):
            start = taps - 1 - lag
            d_x[:, start : start + tokens].addcmul_(grad, weight[lag])
            d_weight[lag] = _column_sums(grad * x[:, start : start + tokens], weight.dim() - 1)
        return d_x, d_weight


def causal_conv(x: Tensor, weight: Tensor, tail: Tensor | None = None) -> Tensor:
    """Depthwise over tokens: y_t = sum over lag of weight[lag] * x_{t - lag}.

    x: [batch, tokens, heads, dim]; weight: [taps, heads, dim]; tail: [batch, taps - 1, heads, dim],
    the inputs before x, zeros if absent.
    """
    taps = weight.shape[0]
    if tail is None:
        extended = functional.pad(x, (0, 0, 0, 0, taps - 1, 0))
    else:
        extended = torch.cat([tail.to(x.dtype), x], dim=1)
    return _CausalConv.apply(extended, weight)  # type: ignore[no-untyped-call,no-any-return]


class _BranchedConv(torch.autograd.Function):
    """A plain convolution over neighbours, but at the seams where nodes begin."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, seams: Tensor, *sources: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, seams, *sources)
        out = x * weight[0]
        for lag in range(1, len(weight)):
            out[:, lag:].addcmul_(x[:, :-lag], weight[lag])
        begun = x[0].index_select(0, seams) * weight[0]
        for tap, source in zip(weight[1:], sources, strict=True):
            begun.addcmul_(_read(x, source), tap)
        out[0].index_copy_(0, seams, begun)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight, seams, *sources = ctx.saved_tensors
        dims = weight.dim() - 1
        d_x = grad * weight[0]
        d_weight = torch.empty_like(weight)
        d_weight[0] = _column_sums(grad * x, dims)
        at_seams = grad[0].index_select(0, seams)
        inside = grad[0].index_fill(0, seams, 0)[None]
        for lag, source in enumerate(sources, start=1):
            d_x[:, :-lag].addcmul_(inside[:, lag:], weight[lag])
            d_weight[lag] = _column_sums(inside[:, lag:] * x[:, :-lag], dims)
            d_weight[lag] += _column_sums(at_seams * _read(x, source), dims)
            there = source >= 0  # siblings read the same token: its gradient is their sum
            d_x[0].index_add_(0, source[there], (at_seams * weight[lag])[there])
        return d_x, d_weight, None, *[None] * len(sources)


def _read(x: Tensor, source: Tensor) -> Tensor:
    """x[0, source], and zeros where source is -1; x: [1, tokens, heads, dim]."""
    found = x[0].index_select(0, source.clamp(min=0))
    return found.masked_fill_((source < 0)[:, None, None], 0)


def branched_conv(x: Tensor, weight: Tensor, seams: Tensor, sources: list[Tensor]) -> Tensor:
    """`causal_conv` along the branches of prefix trees.

    x: [1, tokens, heads, dim]; weight: [taps, heads, dim]; seams: tokens that any of the taps reads
    other neighbours for than the ones beside them; sources[lag - 1] [seams]: the token `lag` places
    before each of those in its own sequence, -1 where there is none.
    """
    return _BranchedConv.apply(x, weight, seams, *sources)  # type: ignore[no-untyped-call,no-any-return]


@lru_cache(maxsize=32)
def rotary_table(dim: int, base: float, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, dim] of rotary positions, computed in fp64."""
    with torch.inference_mode(False):  # they are kept, and may be trained with later
        rates = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on x [batch, heads, tokens, dim].

    cos, sin: [..., tokens, rotary dim], which may be less than dim: the rest stays as it is.
    """
    turning = cos.shape[-1]
    if turning < x.shape[-1]:
        return torch.cat([rotate(x[..., :turning], cos, sin), x[..., turning:]], dim=-1)
    half = turning // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin


SHORT = 512  # tokens up to which plain products beat the fused kernel on a CPU in bf16


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal softmax attention of whole sequences.

    q: [batch, heads, tokens, dim]; k, v: [batch, kv heads, tokens, dim], kv heads dividing heads:
    neighbouring queries share keys.
    """
    tokens, shared = q.shape[2], q.shape[1] // k.shape[1]
    if tokens > SHORT or q.device.type != "cpu" or q.dtype != torch.bfloat16:
        return functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=shared > 1
        )
    if shared > 1:
        k, v = (x.repeat_interleave(shared, dim=1) for x in (k, v))
    scores = torch.matmul(q * (1 / math.sqrt(q.shape[-1])), k.transpose(-1, -2))
    scores = scores + torch.full((tokens, tokens), -torch.inf, dtype=q.dtype).triu_(1)
    return torch.softmax(scores, dim=-1) @ v


def cached_attention(q: Tensor, keys: Tensor, values: Tensor, start: Tensor) -> Tensor:
    """Softmax attention of new tokens against the cache that holds them already.

    q: [batch, heads, tokens, dim]; keys, values: [batch, kv heads, context, dim];
    start [batch]: position of the first new token of each row.
    """
    (batch, _, tokens, dim), (_, kv_heads, context, _) = q.shape, keys.shape
    position = start[:, None] + torch.arange(tokens, device=q.device)
    hidden = torch.arange(context, device=q.device) > position[..., None]
    # Queries that share keys are rows of one product.
    rows = (q.to(keys.dtype) * (1 / math.sqrt(dim))).reshape(batch, kv_heads, -1, dim)
    scores = torch.matmul(rows, keys.transpose(-1, -2))
    scores = scores.to(at_least_fp32(scores.dtype)).view(batch, kv_heads, -1, tokens, context)
    scores = scores.masked_fill_(hidden[:, None, None], -torch.inf)
    mixed = torch.softmax(scores, dim=-1).to(values.dtype).flatten(2, 3) @ values
    return mixed.view(q.shape).to(q.dtype)
