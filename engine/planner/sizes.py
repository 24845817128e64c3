"""How large a model is for its trainer: parameters, of them matrices, and those of adapters."""

from dataclasses import dataclass, replace
from functools import cache

from engine.planner.architecture import (
    Architecture,
    Latent,
    Layer,
    Lightning,
    Mixer,
    Mlp,
    Softmax,
)
from engine.planner.configs import ConfigError, shipped
from engine.planner.parameters import mixer_products, parameters

KIN = (
    "qwen2.5-0.5b",
    "qwen2.5-1.5b",
    "qwen2.5-7b",
    "llama-2-13b",
    "qwen2.5-32b",
    "yi-34b",
    "llama-3.1-70b",
)
LEAST, MOST = 1e8, 2e12


@dataclass(frozen=True)
class Size:
    """Counts of parameters: all; those of the layers' matrices, which Muon updates; adapters'."""

    total: float
    matrices: float
    adapters: float


def size_of(model: Architecture, rank: int) -> Size:
    """The model's counts, with adapters of this rank on every matrix of its layers (LoRA)."""
    return Size(
        total=parameters(model).total,
        matrices=sum(n * matrices(layer, model.width) for layer, n in model.counted),
        adapters=sum(n * rank * _sides(layer, model.width) for layer, n in model.counted),
    )


def matrices(layer: Layer, width: int) -> int:
    """Parameters of a layer that Muon updates: its matrices, all experts', but for the router."""
    mlp = 3 * width * layer.mlp.width * max(1, layer.mlp.experts)
    return mixer_products(layer.mixer, width) + mlp + 3 * width * layer.mlp.shared_width


@cache
def sized(wanted: float) -> Architecture:
    """A dense model of about so many parameters: the nearest of a few known ones, with as many
    layers as come closest. Raises ConfigError beyond 0.1 billion to 2 trillion.
    """
    if not LEAST <= wanted <= MOST:
        raise ConfigError(
            f"{wanted:.3g} parameters cannot be planned with: 0.1 billion to 2 trillion can."
        )
    kin = min(
        (shipped(name) for name in KIN),
        key=lambda one: max(parameters(one).total / wanted, wanted / parameters(one).total),
    )
    whole, layers = parameters(kin).total, len(kin.layers)
    cut = parameters(replace(kin, layers=kin.layers[:-1])).total
    per_layer = whole - cut
    outside = whole - layers * per_layer
    count = max(1, round((wanted - outside) / per_layer))
    found = replace(kin, layers=kin.layers[:1] * count)
    total = parameters(found).total / 1e9
    return replace(
        found,
        name=f"{wanted / 1e9:.3g}b",
        source=f"{kin.name} with {count} layers, {total:.3g} billion parameters",
    )


def _sides(layer: Layer, width: int) -> int:
    """Rows and columns of every matrix of a layer, added up."""
    return _mixer_sides(layer.mixer, width) + _mlp_sides(layer.mlp, width)


def _mixer_sides(mixer: Mixer, width: int) -> int:
    match mixer:
        case Softmax():  # q and out, k and v
            return 2 * (2 * width + (mixer.heads + mixer.kv_heads) * mixer.head_dim)
        case Lightning():  # q, k, v, gate, out
            return 5 * (width + mixer.heads * mixer.head_dim)
        case Latent():
            queries = mixer.heads * (mixer.nope_dim + mixer.rope_dim)
            query = width + 2 * mixer.q_rank + queries if mixer.q_rank else width + queries
            down = width + mixer.kv_rank + mixer.rope_dim
            up = mixer.kv_rank + mixer.heads * (mixer.nope_dim + mixer.v_dim)
            return query + down + up + mixer.heads * mixer.v_dim + width


def _mlp_sides(mlp: Mlp, width: int) -> int:
    shared = 3 * (width + mlp.shared_width) if mlp.shared_width else 0
    return 3 * (width + mlp.width) * max(1, mlp.experts) + shared
