"""What `bench gpu` measures on an NVIDIA GPU; every function here needs one."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from engine.kernels.lightning import SlopeSchedule, head_slopes, lightning_attention
from engine.kernels.tree import TreeLayout, tree_attention

HEADS, DIM = 64, 128
RESULTS = ("output", "final_state", "dq", "dk", "dv", "d_initial_state")


def exactness(
    tokens: int, heads: int, dim: int, dtype: torch.dtype, form: dict[str, Any]
) -> dict[str, float]:
    """Relative error of the worst head for each result, against the chunked form in fp64."""
    rows = len(form["cu_seqlens"]) - 1 if form else 1
    q, k, v, d_output = (_draw(1, heads, tokens, dim).to(dtype) for _ in range(4))
    state, d_final = (_draw(rows, heads, dim, dim) for _ in range(2))
    inputs, gradients = (q, k, v, state), (d_output, d_final)
    actual = _results(inputs, gradients, "triton", form)
    wide = tuple(x.double() for x in inputs)
    expected = _results(wide, tuple(x.double() for x in gradients), "chunked", form)
    return _errors(RESULTS, actual, expected)


def tree_exactness(layout: TreeLayout, dtype: torch.dtype) -> dict[str, float]:
    """Relative error of the worst head, against fp64 attention with the whole mask."""
    *drawn, d_output = (_draw(1, 8, layout.tokens, DIM).to(dtype) for _ in range(4))
    query = torch.arange(layout.tokens, device="cuda")[:, None]
    mask = (query >= query.T) & (query < layout.ends)

    def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    sides = []
    for attention, kind in (
        (lambda q, k, v: tree_attention(q, k, v, layout), dtype),
        (masked, torch.float64),
    ):
        leaves = [x.to(kind, copy=True).requires_grad_() for x in drawn]
        output = attention(*leaves)
        gradients = torch.autograd.grad(output, leaves, d_output.to(kind))
        sides.append([output.detach(), *gradients])
    return _errors(("output", "dq", "dk", "dv"), *sides)


def lightning(tokens: int) -> Callable[[], object]:
    rate = slopes(HEADS)
    return _training(tokens, lambda q, k, v: lightning_attention(q, k, v, rate)[0])


def softmax(tokens: int) -> Callable[[], object]:
    return _training(
        tokens, lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    )


def fla(tokens: int) -> Callable[[], object]:
    """flash-linear-attention's simple GLA with our decay and scale 1; [batch, tokens, heads, dim].

    Raises ImportError where it is not installed.
    """
    chunk_simple_gla = importlib.import_module("fla.ops.simple_gla").chunk_simple_gla
    log_decay = -slopes(HEADS)

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        made = chunk_simple_gla(q, k, v, g_gamma=log_decay, scale=1.0)[0]
        assert isinstance(made, Tensor)
        return made

    return _training(tokens, attention, tokens_first=True)


def turns(prompt: int, turn: int, count: int, rollouts: int) -> TreeLayout:
    """A prompt, then a chain of turns for each rollout."""
    parents = [-1] + [0 if node % count == 0 else node for node in range(count * rollouts)]
    return TreeLayout.build([prompt] + [turn] * (count * rollouts), parents).to("cuda")


def tree(layout: TreeLayout) -> Callable[[], object]:
    return _training(layout.tokens, lambda q, k, v: tree_attention(q, k, v, layout), heads=8)


def flex(layout: TreeLayout) -> Callable[[], object]:
    """Compiled FlexAttention with the same mask, in blocks of 128."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    ends = layout.ends

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (query < ends[key])

    mask = create_block_mask(visible, None, None, layout.tokens, layout.tokens, device="cuda")
    compiled = torch.compile(flex_attention)
    return _training(layout.tokens, lambda q, k, v: compiled(q, k, v, block_mask=mask), heads=8)


def milliseconds(calls: dict[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Least time on the GPU of each call, over rounds in which all take turns."""
    least = dict.fromkeys(calls, float("inf"))
    for turn in range(rounds + 2):  # two to warm up
        for name, call in calls.items():
            begin, end = _event(), _event()
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            if turn >= 2:
                least[name] = min(least[name], begin.elapsed_time(end))
    return least


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def slopes(heads: int) -> Tensor:
    return head_slopes(SlopeSchedule.MINIMAX, heads, 0, 4).cuda()


def _errors(
    names: tuple[str, ...], actual: list[Tensor], expected: list[Tensor]
) -> dict[str, float]:
    errors = {}
    for name, a, e in zip(names, actual, expected, strict=True):
        a, e = (x.double().transpose(0, 1).flatten(1) for x in (a, e))
        errors[name] = float(((a - e).norm(dim=1) / e.norm(dim=1)).max())
    return errors


def _results(
    inputs: tuple[Tensor, ...], gradients: tuple[Tensor, ...], name: str, form: dict[str, Any]
) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    q, k, v, state = leaves
    both = lightning_attention(
        q,
        k,
        v,
        slopes(q.shape[1]),
        initial_state=state,
        implementation="triton" if name == "triton" else "chunked",
        **form,
    )
    return [*(x.detach() for x in both), *torch.autograd.grad(both, leaves, gradients)]


def _training(
    tokens: int,
    attention: Callable[[Tensor, Tensor, Tensor], Tensor],
    *,
    heads: int = HEADS,
    tokens_first: bool = False,
) -> Callable[[], object]:
    shape = (1, tokens, heads, DIM) if tokens_first else (1, heads, tokens, DIM)
    *leaves, d_output = (_draw(*shape).bfloat16() for _ in range(4))
    leaves = [x.requires_grad_() for x in leaves]
    return lambda: torch.autograd.grad(attention(*leaves), leaves, d_output)


def _draw(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda")
