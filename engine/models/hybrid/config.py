"""The configuration of the hybrid model, in the format of transformers."""

from typing import Any

from transformers import PretrainedConfig

from engine.kernels.lightning import SlopeSchedule
from engine.spec import ModelSpec

LIGHTNING, SOFTMAX = "linear_attention", "full_attention"


class HybridConfig(PretrainedConfig):  # type: ignore[no-untyped-call]
    """Names follow transformers' MiniMax where it has the same field.

    layer_types: "linear_attention" or "full_attention" per layer.
    residual_alpha: weight of the normalised input beside each branch; None: (2 layers)^(1/4).
    conv_width: causal depthwise convolution on q and k of every layer (not in MiniMax); 0: none.
    """

    model_type = "caravan_hybrid"

    vocab_size: int = 1000
    hidden_size: int = 128
    num_attention_heads: int = 4
    intermediate_size: int = 256
    layer_types: list[str] | None = None
    conv_width: int = 3
    rope_theta: float = 1000.0
    residual_alpha: float | None = None
    slope_schedule: str = SlopeSchedule.MINIMAX.value
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.05
    embedding_std: float = 0.09
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    use_cache: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        if self.layer_types is None:
            self.layer_types = [LIGHTNING, SOFTMAX] * 2
        if unknown := set(self.layer_types) - {LIGHTNING, SOFTMAX}:
            raise ValueError(
                f"layer_types holds {sorted(unknown)}; expected {LIGHTNING}, {SOFTMAX}"
            )
        if self.hidden_size % (2 * self.num_attention_heads):
            raise ValueError(
                f"hidden_size {self.hidden_size} must be an even multiple of num_attention_heads "
                f"{self.num_attention_heads}"
            )
        if self.residual_alpha is None:
            self.residual_alpha = (2 * len(self.layer_types)) ** 0.25
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]

    @property
    def num_hidden_layers(self) -> int:
        return len(self.layer_types or ())

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @classmethod
    def from_spec(
        cls, spec: ModelSpec, vocab_size: int, pad_id: int, end_id: int
    ) -> "HybridConfig":
        """`vocab_size` is the tokenizer's, which may stay below what the spec allows."""
        kinds = {"lightning": LIGHTNING, "softmax": SOFTMAX}
        return cls(
            vocab_size=vocab_size,
            hidden_size=spec.width,
            num_attention_heads=spec.heads,
            intermediate_size=spec.mlp_width,
            layer_types=[kinds[layer] for layer in spec.layers],
            conv_width=spec.conv_width,
            rope_theta=spec.rope_base,
            initializer_range=spec.init_std,
            embedding_std=spec.embedding_std,
            pad_token_id=pad_id,
            eos_token_id=end_id,
        )
