"""Memory of a model that generates: weights, keys and values by length, constant states."""

from dataclasses import dataclass

from engine.planner.architecture import Architecture, Latent, Lightning, Mixer, Softmax
from engine.planner.parameters import parameters

STATE_BYTES = 4  # a lightning state is kept in fp32: slow heads are lost in less


@dataclass(frozen=True)
class Memory:
    """Bytes. `weights` once; `kv` and `state` for each sequence."""

    weights: int
    kv: int
    state: int

    @property
    def sequence(self) -> int:
        """Bytes that one sequence adds."""
        return self.kv + self.state


def kv_bytes_per_token(model: Architecture, number_bytes: int = 2) -> int:
    """Bytes that a token adds to a sequence's cache; MLA keeps its latent and rotary key."""
    return number_bytes * sum(n * _kept(layer.mixer) for layer, n in model.counted)


def state_bytes(model: Architecture, number_bytes: int = 2) -> int:
    """Bytes of a sequence that its length does not change: states, and inputs of convolutions."""
    total = 0
    for layer, number in model.counted:
        mixer = layer.mixer
        if isinstance(mixer, Lightning):
            total += number * STATE_BYTES * mixer.heads * mixer.head_dim**2
        if isinstance(mixer, Softmax | Lightning):
            taps = max(0, mixer.conv_taps - 1)
            total += number * number_bytes * taps * mixer.conv_channels
    return total


def memory(
    model: Architecture, tokens: int, *, weight_bytes: int = 2, cache_bytes: int = 2
) -> Memory:
    """What weights and one sequence of `tokens` take; bytes of each number, bf16 by default."""
    return Memory(
        weights=weight_bytes * parameters(model).total,
        kv=tokens * kv_bytes_per_token(model, cache_bytes),
        state=state_bytes(model, cache_bytes),
    )


def _kept(mixer: Mixer) -> int:
    """Numbers that a token leaves in one layer's cache."""
    match mixer:
        case Softmax():
            return 2 * mixer.kv_heads * mixer.head_dim
        case Latent():
            return mixer.kv_rank + mixer.rope_dim
        case Lightning():
            return 0
