"""The elementwise parts of the hybrid model, with backward passes that are cheap on a CPU."""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        width = x.shape[-1]
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=_at_least_fp32(x.dtype))
        scale = (norm.square() / width + eps).rsqrt().to(x.dtype)
        ctx.save_for_backward(x, weight, scale)
        normed: Tensor = x * scale
        return normed.mul_(weight)

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
    return _RmsNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call,no-any-return]


def _column_sums(x: Tensor, dims: int = 1) -> Tensor:
    """Sums over all but the last `dims` dimensions; as a product, which accumulates in fp32."""
    shape = x.shape[-dims:]
    flat = x.reshape(-1, shape.numel())
    return (flat.new_ones(1, flat.shape[0]) @ flat).view(shape)


def _at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype == torch.bfloat16 else dtype


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


@lru_cache(maxsize=32)
def rotary_table(dim: int, base: float, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, dim] of rotary positions, computed in fp64."""
    rates = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on x [batch, heads, tokens, dim]; cos, sin broadcast against it."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin


SHORT = 512  # tokens up to which plain products beat the fused kernel on a CPU in bf16


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal softmax attention of whole sequences; q, k, v: [batch, heads, tokens, dim]."""
    tokens = q.shape[2]
    if tokens > SHORT or q.device.type != "cpu" or q.dtype != torch.bfloat16:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = torch.matmul(q * (1 / math.sqrt(q.shape[-1])), k.transpose(-1, -2))
    scores = scores + torch.full((tokens, tokens), -torch.inf, dtype=q.dtype).triu_(1)
    return torch.softmax(scores, dim=-1) @ v


def cached_attention(q: Tensor, keys: Tensor, values: Tensor, start: Tensor) -> Tensor:
    """Softmax attention of new tokens against the cache that holds them already.

    q: [batch, heads, tokens, dim]; keys, values: [batch, heads, context, dim];
    start [batch]: position of the first new token of each row.
    """
    context = keys.shape[2]
    position = start[:, None] + torch.arange(q.shape[2], device=q.device)
    hidden = torch.arange(context, device=q.device) > position[..., None]
    scores = torch.matmul(q.to(keys.dtype) * (1 / math.sqrt(q.shape[-1])), keys.transpose(-1, -2))
    scores = scores.float().masked_fill_(hidden[:, None], -torch.inf)
    return (torch.softmax(scores, dim=-1).to(values.dtype) @ values).to(q.dtype)
