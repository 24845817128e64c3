"""FLOPs of prefill, generation and training, from a model's shape alone.

A multiply-add is 2 FLOPs. Matrix products are counted, elementwise work (norms, activations,
softmax, rotary positions, short convolutions) is not; the decay of a lightning state is, since
decoding does little else. The dense part is 2 FLOPs for each parameter in a product and token.

One (query, key) pair costs, over all heads H of one layer:
- softmax: 2H(d + d), for query-key and attention-value;
- MLA in multi-head form: 2H((nope + rope) + v), with keys and values expanded when a token enters
  the cache; absorbed, against the latent: 2H((kv_rank + rope) + kv_rank). The projections cost the
  same in both.
Lightning, for each token and head of dim d in chunks of C: 4Cd + 4d^2 (scores, their product with
v, the state's update and read-out); one decoded token: 5d^2 (decay, rank-one update, read-out).
Its backward pass costs 10Cd + 8d^2 where the scores are computed again, else twice the forward;
that of softmax likewise 2.5 or 2 times the forward; that of the dense part twice.
"""

from dataclasses import dataclass
from enum import StrEnum

from engine.planner.architecture import Architecture, Latent, Lightning, Mixer, Softmax
from engine.planner.parameters import parameters


class Convention(StrEnum):
    """How attention is counted. Models without MLA differ only under PAPER and UNMASKED."""

    MULTI_HEAD = "multi-head"  # causal pairs, n(n+1)/2; MLA with expanded keys and values
    ABSORBED = "absorbed"  # causal pairs; MLA against its latent, as R1 decodes
    PAPER = "paper"  # MiniMax-M1 (2506.13585), figure 1: query-key halved, attention-value not
    UNMASKED = "unmasked"  # all n^2 pairs, as dense masks compute and torch's counter sees


@dataclass(frozen=True)
class Flops:
    """FLOPs by part: projections, MLPs and head; softmax (and MLA) pairs; lightning."""

    dense: float
    softmax: float
    lightning: float

    @property
    def attention(self) -> float:
        return self.softmax + self.lightning

    @property
    def total(self) -> float:
        return self.dense + self.attention

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(
            self.dense + other.dense,
            self.softmax + other.softmax,
            self.lightning + other.lightning,
        )

    def __sub__(self, other: "Flops") -> "Flops":
        return Flops(
            self.dense - other.dense,
            self.softmax - other.softmax,
            self.lightning - other.lightning,
        )


def prefill(
    model: Architecture, tokens: int, convention: Convention = Convention.MULTI_HEAD
) -> Flops:
    """A whole sequence of `tokens` in one pass; the head runs on every token."""
    lightning = sum(
        number * _lightning_forward(layer.mixer, tokens)
        for layer, number in model.counted
        if isinstance(layer.mixer, Lightning)
    )
    return Flops(_dense(model, tokens), _softmax(model, tokens, convention), lightning)


def generation(
    model: Architecture, tokens: int, convention: Convention = Convention.MULTI_HEAD
) -> Flops:
    """Decoding `tokens` one by one from nothing; each attends to those before it and itself."""
    lightning = sum(
        5.0 * number * layer.mixer.heads * layer.mixer.head_dim**2 * tokens
        for layer, number in model.counted
        if isinstance(layer.mixer, Lightning)
    )
    return Flops(_dense(model, tokens), _softmax(model, tokens, convention), lightning)


def next_token(
    model: Architecture, context: int, convention: Convention = Convention.MULTI_HEAD
) -> Flops:
    """Decoding one token that attends to `context` tokens, itself among them."""
    return generation(model, context, convention) - generation(model, context - 1, convention)


def training(
    model: Architecture,
    tokens: int,
    convention: Convention = Convention.MULTI_HEAD,
    *,
    recompute_scores: bool = True,
) -> Flops:
    """Forward and backward of one sequence of `tokens`.

    recompute_scores: attention's scores are computed again in the backward pass, as fused kernels
    and Caravan's lightning attention do; False: kept, as plain autograd does.
    """
    forward = prefill(model, tokens, convention)
    lightning = 3 * forward.lightning
    if recompute_scores:
        lightning += sum(
            number * _chunk_pairs(layer.mixer, tokens) * 2 * layer.mixer.head_dim
            for layer, number in model.counted
            if isinstance(layer.mixer, Lightning)
        )
    softmax = forward.softmax * (3.5 if recompute_scores else 3.0)
    return Flops(3 * forward.dense, softmax, lightning)


def pair_flops(mixer: Mixer, convention: Convention) -> tuple[int, int]:
    """FLOPs of one (query, key) pair in one layer: query-key, attention-value; lightning has none.

    The figure of 2506.13585 draws MLA in multi-head form: its fitted quadratic coefficient of R1
    is layers * heads * (192 + 2 * 128).
    """
    match mixer:
        case Lightning():
            return 0, 0
        case Softmax():
            return 2 * mixer.heads * mixer.head_dim, 2 * mixer.heads * mixer.head_dim
        case Latent():
            if convention is Convention.ABSORBED:
                key, value = mixer.kv_rank + mixer.rope_dim, mixer.kv_rank
            else:
                key, value = mixer.nope_dim + mixer.rope_dim, mixer.v_dim
            return 2 * mixer.heads * key, 2 * mixer.heads * value


def _dense(model: Architecture, tokens: int) -> float:
    return 2.0 * parameters(model).in_products * tokens


def _softmax(model: Architecture, tokens: int, convention: Convention) -> float:
    """Attention of n tokens over themselves, pair by pair."""
    squares = float(tokens) ** 2
    key_pairs, value_pairs = {
        Convention.PAPER: (squares / 2, squares),
        Convention.UNMASKED: (squares, squares),
    }.get(convention, (tokens * (tokens + 1) / 2,) * 2)
    found = 0.0
    for layer, number in model.counted:
        key, value = pair_flops(layer.mixer, convention)
        found += number * (key * key_pairs + value * value_pairs)
    return found


def _lightning_forward(mixer: Lightning, tokens: int) -> float:
    states = 4.0 * mixer.heads * mixer.head_dim**2 * tokens
    return 4.0 * mixer.head_dim * _chunk_pairs(mixer, tokens) + states


def _chunk_pairs(mixer: Lightning, tokens: int) -> int:
    """(query, key) pairs inside whole chunks and the shorter one at the end, over all heads."""
    chunks, rest = divmod(tokens, mixer.chunk)
    return mixer.heads * (chunks * mixer.chunk**2 + rest**2)
