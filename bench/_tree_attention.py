"""The tree attention operation beside torch's: a dense tree mask, and every sequence alone."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from bench._timing import interleaved_min_cpu_seconds
from bench.figures import Figure
from engine.kernels.tree import TreeLayout, tree_attention

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
HEADS, DIM = 4, 64
ROUNDS = 4
LENGTHS = 60, 75, 85, 70, 68  # of a packed batch without sharing


@dataclass(frozen=True)
class Tree:
    """A prompt, then for each rollout a chain of turns; every turn ends a sample, in which the
    history is encoded again. `branch`: tokens of a side branch before each turn but the first."""

    prompt: int
    turns: int
    turn: int
    rollouts: int
    branch: int = 0

    def layout(self) -> TreeLayout:
        lengths, parents = [self.prompt], [-1]
        for _ in range(self.rollouts):
            last = 0
            for turn in range(self.turns):
                if self.branch and turn:
                    parents.append(last)
                    lengths.append(self.branch)
                parents.append(last)
                last = len(lengths)
                lengths.append(self.turn)
        return TreeLayout.build(lengths, parents)

    def samples(self) -> list[int]:
        """Lengths of the samples; with branches these end samples too."""
        ends = [self.prompt + (turn + 1) * self.turn for turn in range(self.turns)]
        sides = [end + self.branch for end in ends[:-1]] if self.branch else []
        return (ends + sides) * self.rollouts


LONG = {  # nodes of 64 tokens and more
    "star_128": Tree(1024, 1, 128, 8),
    "turns_64": Tree(256, 16, 64, 2),
    "branches_64": Tree(512, 16, 64, 2, branch=64),
}
SHORT = {  # nodes of 24 to 32 tokens
    "turns_32": Tree(1024, 32, 32, 2),
    "turns_24": Tree(1536, 48, 24, 2),
    "branches_24": Tree(256, 48, 24, 1, branch=24),
    "star_24": Tree(512, 1, 24, 48),
}
CEILING = {
    "star_128": LONG["star_128"],
    "star_64": Tree(2048, 1, 64, 16),
    "turns_64": LONG["turns_64"],
    "turns_32": SHORT["turns_32"],
}


def figures() -> list[Figure]:
    """All figures of the operation; about a minute and a half on one core."""
    return [
        *(_against_mask(name, tree, "at least 1.5") for name, tree in LONG.items()),
        *(_against_mask(name, tree, "at least 1") for name, tree in SHORT.items()),
        *(_against_ceiling(name, tree) for name, tree in CEILING.items()),
        *_without_sharing("short", list(LENGTHS) * 40, torch.bfloat16, 32),
        *_without_sharing("long", [2048, 2048], torch.float32, DIM),
        *(_exactness(dtype) for dtype in (torch.float32, torch.float64)),
    ]


def _against_mask(name: str, tree: Tree, bar: str) -> Figure:
    layout = tree.layout()
    mask = _mask(layout)
    inputs = _inputs(layout.tokens)
    least = interleaved_min_cpu_seconds(
        {
            "tree": partial(_train, inputs, partial(_tree, layout)),
            "mask": partial(_train, inputs, partial(_masked, mask)),
        },
        ROUNDS,
    )
    density = float(mask.double().mean())
    return Figure(
        "tree", f"tree_attention_{name}", least["mask"] / least["tree"], "times", bar,
        f"SDPA with a dense mask: {1000 * least['mask']:.0f} ms", None,
        f"forward and backward, {tree}, density {density:.2f}, H={HEADS}, d={DIM}, fp32, one "
        f"thread; tree {1000 * least['tree']:.0f} ms",
    )  # fmt: skip


def _against_ceiling(name: str, tree: Tree) -> Figure:
    """The share of A = pairs of the samples / pairs of the tree by which it is faster."""
    layout = tree.layout()
    inputs, samples = _inputs(layout.tokens), tree.samples()
    least = interleaved_min_cpu_seconds(
        {
            "tree": partial(_train, inputs, partial(_tree, layout)),
            "samples": partial(_each_alone, [_inputs(n) for n in samples]),
        },
        ROUNDS - 1,
    )
    pairs = sum(n * (n + 1) // 2 for n in samples)
    ceiling = pairs / int((layout.positions + 1).sum())
    speedup = least["samples"] / least["tree"]
    return Figure(
        "tree", f"tree_attention_ceiling_{name}", speedup / ceiling, "of A", "at least 0.85",
        f"SDPA is_causal, each sample alone: {least['samples']:.2f} s", None,
        f"forward and backward, {tree}, A = {ceiling:.1f}, faster {speedup:.1f} times; one thread",
    )  # fmt: skip


def _without_sharing(name: str, lengths: list[int], dtype: torch.dtype, dim: int) -> list[Figure]:
    """A packed batch that shares nothing, beside torch's attention and beside padding."""
    layout = TreeLayout.build(lengths, [-1] * len(lengths))
    inputs = _inputs(layout.tokens, dtype, dim)
    padded = [x.reshape(-1, HEADS, max(lengths), dim) for x in _inputs(_area(lengths), dtype, dim)]
    least = interleaved_min_cpu_seconds(
        {
            "tree": partial(_train, inputs, partial(_tree, layout)),
            "samples": partial(_each_alone, [_inputs(n, dtype, dim) for n in lengths]),
            "padded": partial(_train, padded, _products),
        },
        ROUNDS,
    )
    setup = (
        f"forward and backward, {len(lengths)} sequences of {min(lengths)} to {max(lengths)} "
        f"tokens without sharing, H={HEADS}, d={dim}, {str(dtype).removeprefix('torch.')}, one "
        f"thread; tree {1000 * least['tree']:.0f} ms"
    )
    return [
        Figure(
            "tree", f"tree_attention_packed_{name}", least["samples"] / least["tree"], "times", "",
            f"SDPA is_causal, each sequence alone: {1000 * least['samples']:.0f} ms", None, setup,
        ),
        Figure(
            "tree", f"tree_attention_padded_{name}", least["padded"] / least["tree"], "times", "",
            f"plain products of the padded batch: {1000 * least['padded']:.0f} ms", None, setup,
        ),
    ]  # fmt: skip


def _area(lengths: list[int]) -> int:
    return len(lengths) * max(lengths)


def _exactness(dtype: torch.dtype) -> Figure:
    """Output, dq, dk and dv against the dense mask in fp64; the worst head."""
    worst = 0.0
    for tree in (Tree(130, 9, 24, 2, branch=17), Tree(300, 1, 64, 9), Tree(40, 1, 1, 90)):
        layout = tree.layout()
        inputs = _inputs(layout.tokens, dtype)
        found = _train(inputs, partial(_tree, layout))
        expected = _train([x.double() for x in inputs], partial(_masked, _mask(layout)))
        for a, e in zip(found, expected, strict=True):
            difference = (a.double() - e)[0].flatten(1).norm(dim=1)
            worst = max(worst, float((difference / e[0].flatten(1).norm(dim=1)).max()))
    bits = str(dtype).removeprefix("torch.float")
    return Figure(
        "tree", f"tree_attention_error_fp{bits}", worst, "relative",
        "at most 0.00001" if bits == "32" else "at most 0.000000000001",
        "SDPA with a dense mask in fp64", None, "output, dq, dk, dv of three trees; worst head",
    )  # fmt: skip


def _inputs(tokens: int, dtype: torch.dtype = torch.float32, dim: int = DIM) -> list[Tensor]:
    """q, k, v and the gradient of the output."""
    generator = torch.Generator().manual_seed(tokens)
    draw = partial(torch.randn, 1, HEADS, tokens, dim, generator=generator)
    return [draw().to(dtype) for _ in range(4)]


def _mask(layout: TreeLayout) -> Tensor:
    index = torch.arange(layout.tokens)
    return (index <= index[:, None]) & (index[:, None] < layout.ends)


def _tree(layout: TreeLayout, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return tree_attention(q, k, v, layout)


def _masked(mask: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _products(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention in plain products, which for short rows in bf16 beat SDPA on a CPU."""
    tokens = q.shape[2]
    hidden = torch.full((tokens, tokens), -torch.inf, dtype=q.dtype).triu_(1)
    scores = torch.matmul(q * DIM**-0.5, k.transpose(-1, -2)) + hidden
    return torch.softmax(scores, dim=-1) @ v


def _train(inputs: list[Tensor], attention: Attention) -> list[Tensor]:
    """Output and gradients."""
    *leaves, d_output = inputs
    leaves = [x.detach().requires_grad_() for x in leaves]
    output = attention(*leaves)
    return [output.detach(), *torch.autograd.grad(output, leaves, d_output)]


def _each_alone(parts: list[list[Tensor]]) -> None:
    for part in parts:
        _train(part, _causal)
