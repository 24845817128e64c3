"""The shape of a language model: what FLOPs, parameters and memory are computed from."""

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property


class LayerKind(StrEnum):
    """Kinds of attention."""

    SOFTMAX = "softmax"
    LATENT = "latent"
    LIGHTNING = "lightning"


@dataclass(frozen=True)
class Softmax:
    """Softmax attention; keys and values are shared by groups of heads where kv_heads < heads.

    extra: parameters of the layer's attention that enter no matrix product (norms, biases,
    convolutions); conv_taps: depthwise convolution over tokens on q and k, 0: none.
    """

    heads: int
    kv_heads: int
    head_dim: int
    extra: int = 0
    conv_taps: int = 0
    kind = LayerKind.SOFTMAX

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution: those of q and k."""
        return (self.heads + self.kv_heads) * self.head_dim


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (MLA; DeepSeek-V2, 2405.04434, section 2.1).

    Keys and values are projections of one latent of `kv_rank` numbers a token, beside a rotary key
    of `rope_dim` numbers that all heads share. q_rank: rank of the query projection, 0: full.
    """

    heads: int
    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    extra: int = 0
    kind = LayerKind.LATENT


@dataclass(frozen=True)
class Lightning:
    """Linear attention with a constant decay per head (MiniMax-01, 2501.08313) and an output gate.

    chunk: tokens that a whole-sequence pass multiplies at once.
    """

    heads: int
    head_dim: int
    chunk: int
    extra: int = 0
    conv_taps: int = 0
    kind = LayerKind.LIGHTNING

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution: those of q and k."""
        return 2 * self.heads * self.head_dim


Mixer = Softmax | Latent | Lightning


@dataclass(frozen=True)
class Mlp:
    """A SwiGLU MLP (three matrices), or a mixture of them: each token takes `active` of `experts`.

    experts 0: dense. shared_width: width of the experts that every token passes, together.
    """

    width: int
    experts: int = 0
    active: int = 0
    shared_width: int = 0


@dataclass(frozen=True)
class Layer:
    """Attention, then an MLP; each behind an RMSNorm."""

    mixer: Mixer
    mlp: Mlp


@dataclass(frozen=True)
class Architecture:
    """A decoder-only language model. source: where its numbers come from, for people."""

    name: str
    width: int
    vocab_size: int
    layers: tuple[Layer, ...]
    tied_head: bool
    source: str = ""

    @cached_property
    def counted(self) -> tuple[tuple[Layer, int], ...]:
        """Each different layer, and how many there are: models have hundreds of two or three."""
        return tuple(Counter(self.layers).items())

    def count(self, kind: LayerKind) -> int:
        """How many layers have this kind of attention."""
        return sum(number for layer, number in self.counted if layer.mixer.kind is kind)


def softmax_twin(model: Architecture) -> Architecture:
    """The same model with each lightning layer replaced by its own softmax layer.

    Raises ValueError where the model has no softmax layer to take.
    """
    softmax = next(
        (layer.mixer for layer in model.layers if isinstance(layer.mixer, Softmax)), None
    )
    if softmax is None:
        raise ValueError(f"{model.name} has no softmax layer that its twin could be made of.")
    layers = tuple(
        replace(layer, mixer=softmax) if isinstance(layer.mixer, Lightning) else layer
        for layer in model.layers
    )
    return replace(
        model,
        name=f"{model.name}-softmax",
        layers=layers,
        source=f"{model.name}, every layer softmax: {model.source}",
    )
