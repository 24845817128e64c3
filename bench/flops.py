"""FLOPs of MiniMax-M1 beside DeepSeek-R1 and its all-softmax twin, and the formulas beside torch.

Nothing is timed. Ratios come from the planner; what the planner says of whole models is compared
with what torch's FLOP counter sees when transformers runs them on the meta device.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bench.figures import Figure, Options
from engine.planner import (
    Architecture,
    Convention,
    next_token,
    prefill,
    ratio,
    read_config,
    shipped,
    training,
)

LENGTH = 100_000
COUNTED = ("minimax-m1", "deepseek-r1", "qwen3-235b-a22b")
COUNTED_TOKENS = 512


@dataclass(frozen=True)
class Curve:
    """FLOPs of generating n tokens as figure 1 of 2506.13585 draws them: linear n + square n^2.

    `linear` was read off the curve, `square` is layers * heads * (key + 2 value dims). The curve
    of M1 has 8 softmax layers; here it has the 10 that were released.
    """

    linear: float
    square: float

    def at(self, tokens: int) -> float:
        return self.linear * tokens + self.square * tokens**2


CURVE_OF_M1 = Curve(linear=104.5e9, square=10 * 64 * (128 + 2 * 128))
CURVE_OF_R1 = Curve(linear=75.4e9, square=61 * 128 * (192 + 2 * 128))


def run(options: Options) -> list[Figure]:
    return [*ratios(), agreement()]


def ratios() -> list[Figure]:
    """What the planner says, as shares in percent."""
    m1, r1, twin = (shipped(name) for name in ("minimax-m1", "deepseek-r1", "minimax-m1-softmax"))
    far, near = 2**20, 2**18
    forms = {
        Convention.MULTI_HEAD: ("", "DeepSeek-R1 in multi-head form", 35),
        Convention.ABSORBED: ("_absorbed", "DeepSeek-R1 in absorbed form", 13),
        Convention.PAPER: ("_paper", "DeepSeek-R1, the paper's convention", 31),
    }
    figures = []
    for form, (ending, peer, bar) in forms.items():
        found = ratio(m1, r1, LENGTH, form)
        if found.next_token is not None:
            metric = f"next_token_100k{ending}"
            figures.append(_share(metric, found.next_token, 25, f"token {LENGTH:,}", peer))
        metric = f"generation_100k{ending}"
        figures.append(_share(metric, found.generation, bar, f"{LENGTH:,} tokens", peer))
    curves = CURVE_OF_M1.at(LENGTH) / CURVE_OF_R1.at(LENGTH)
    peer = "DeepSeek-R1, the paper's convention and the linear terms of its figure"
    figures.append(_share("generation_100k_paper_curve", curves, 31, f"{LENGTH:,} tokens", peer))
    twins = next_token(m1, far).total / next_token(twin, near).total
    peer = f"its all-softmax twin at token {near:,}"
    return [*figures, _share("next_token_1m_twin_256k", twins, 60, f"token {far:,}", peer)]


def agreement() -> Figure:
    """The largest relative difference between the planner and torch's counter, in percent."""
    found = {
        what: abs(expected / seen - 1) for name in COUNTED for what, expected, seen in _both(name)
    }
    worst = max(found, key=lambda what: found[what])
    return Figure(
        bench="flops",
        metric="counted_difference",
        value=100 * found[worst],
        unit="%",
        bar="at most 1",
        peer="torch's FLOP counter on the meta device",
        setup=f"{len(found)} passes over {COUNTED_TOKENS} tokens, whole models; largest: {worst}",
    )


def _both(name: str) -> Iterator[tuple[str, float, int]]:
    """(what, the planner's FLOPs, the counter's) of a model's forward pass and of its training."""
    from bench._counted_flops import counted, on_meta, transformers_config

    config = transformers_config(name)
    model = on_meta(config)
    shape: Architecture = read_config(config.to_dict(), name)
    forward = prefill(shape, COUNTED_TOKENS, Convention.UNMASKED).total
    yield f"{name} forward", forward, counted(model, COUNTED_TOKENS)
    both = training(shape, COUNTED_TOKENS, Convention.UNMASKED, recompute_scores=False).total
    yield f"{name} training", both, counted(model, COUNTED_TOKENS, backward=True)


def _share(metric: str, share: float, bar: int, at: str, peer: str) -> Figure:
    return Figure(
        bench="flops",
        metric=metric,
        value=100 * share,
        unit="%",
        bar=f"at most {bar}",
        peer=peer,
        ratio=share,
        setup=f"MiniMax-M1 at {at}, by formula",
    )
