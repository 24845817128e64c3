"""Training on prefix trees beside their samples, and tree attention beside torch's.

A step goes from lists of ids to gradients. The rival has the same kernels and no padding, at the
micro-batch that suits it best; beside it stand the same samples with the turns of each rollout
joined, which need no tree. In each round the tree, which takes a second, has a turn before and one
after its rivals, which take up to a minute.
"""

from functools import partial

import torch

from bench import _tree_attention
from bench._timing import interleaved_min_cpu_seconds
from bench._tree_memory import SHAPE as MEMORY_SHAPE
from bench._tree_memory import peak_bytes, samples
from bench._tree_training import (
    LIGHTNING,
    SOFTMAX,
    WHOLE,
    Shape,
    errors,
    joined_samples,
    make_model,
    step,
    turn_samples,
)
from bench.figures import Figure, Options

SHAPES = {
    "r11": Shape(prompt=2048, turns=1, turn=64, rollouts=16),
    "r32": Shape(prompt=1024, turns=32, turn=32, rollouts=2),
    "r53": Shape(prompt=1536, turns=48, turn=24, rollouts=2),
}
ROUNDS = 2
BOUNDS = (1, 4096, 8192)  # tokens of the rival's micro-batch; 1: each sample alone
SMALL = Shape(prompt=65, turns=3, turn=17, rollouts=3)


def run(options: Options) -> list[Figure]:
    return [
        *(figure for name in SHAPES for figure in speed(name)),
        memory(),
        *exactness(),
        *_tree_attention.figures(),
    ]


def speed(name: str) -> list[Figure]:
    """CPU seconds of the rivals over those of the tree."""
    shape, model = SHAPES[name], make_model()
    turns, joined = turn_samples(shape), joined_samples(shape)
    bar = 40 if name == "r53" else 0.75 * turns.ratio
    sample = turns.every(max(1, len(turns.segments) // 8))
    tried = interleaved_min_cpu_seconds(
        {str(bound): partial(step, model, sample, merge=False, bound=bound) for bound in BOUNDS},
        repeats=1,
        warm_up=0,
    )
    bound = int(min(tried, key=lambda key: tried[key]))
    tree = partial(step, model, turns, merge=True, bound=WHOLE)
    tree()
    least = interleaved_min_cpu_seconds(
        {
            "tree": tree,
            "packed": partial(step, model, turns, merge=False, bound=bound),
            "joined": partial(step, model, joined, merge=False, bound=bound),
            "tree again": tree,
        },
        repeats=ROUNDS,
        warm_up=0,
    )
    ours = min(least["tree"], least["tree again"])
    setup = (
        f"4 layers, 3 lightning : 1 softmax, width 256; {shape}; R = {turns.ratio:.1f}; one "
        f"thread, fp32; rival's micro-batch {'one sample' if bound == 1 else f'{bound} tokens'}"
    )
    ratio = least["packed"] / ours
    joined_ratio = least["joined"] / ours
    figures = [
        Figure(
            "tree", f"tree_speedup_{name}", ratio, "times", f"at least {bar:.4g}",
            f"its samples, packed: {least['packed']:.1f} s", ratio, setup,
        )
    ]  # fmt: skip
    if shape.turns > 1:
        figures.append(
            Figure(
                "tree", f"tree_speedup_{name}_joined", joined_ratio, "times", "",
                f"turns of a rollout joined, packed: {least['joined']:.1f} s", joined_ratio,
                f"R = {joined.ratio:.2f} across rollouts; otherwise the same",
            )
        )  # fmt: skip
    return figures


def memory() -> Figure:
    """Share of the joint batch's peak that the tree's step does not need."""
    tree, joint = peak_bytes("tree"), peak_bytes("joint")
    return Figure(
        "tree", "tree_memory_saved", 100 * (1 - tree / joint), "%", "at least 70",
        f"all samples in one unmerged pass: {joint / 2**20:.0f} MiB", None,
        f"{MEMORY_SHAPE}; R = {samples().ratio:.1f}; peak of the allocator in a step, each in a "
        f"process of its own; tree {tree / 2**20:.0f} MiB",
    )  # fmt: skip


def exactness() -> list[Figure]:
    """The largest errors over 3:1 and 7:1 hybrids, dense and with experts."""
    figures = []
    for dtype, bar in ((torch.float32, "0.00001"), (torch.float64, "0.000000000001")):
        found = [
            errors(make_model(layers, width=64, experts=experts, dtype=dtype), turn_samples(SMALL))
            for layers in ([*[LIGHTNING] * 3, SOFTMAX], [*[LIGHTNING] * 7, SOFTMAX])
            for experts in (1, 4)
        ]
        short = str(dtype).removeprefix("torch.float")
        for what, worst in zip(
            ("loss", "gradient"), map(max, zip(*found, strict=True)), strict=True
        ):
            figures.append(
                Figure(
                    "tree", f"tree_{what}_error_fp{short}", worst, "relative", f"at most {bar}",
                    "each sample in a plain pass of its own", None,
                    f"hybrids 3:1 and 7:1, dense and 4 experts, width 64; {SMALL}; the worst "
                    "parameter of the worst model",
                )
            )  # fmt: skip
    return figures
