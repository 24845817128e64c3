"""The configuration of the hybrid model, in the format of transformers."""

from typing import Any

from transformers import PretrainedConfig

from engine.kernels.lightning import SlopeSchedule
from engine.spec import ModelSpec

LIGHTNING, SOFTMAX = "linear_attention", "full_attention"


class HybridConfig(PretrainedConfig):  # type: ignore[no-untyped-call]
    """Names follow transformers' MiniMax where it has the same field.

    layer_types: "linear_attention" or "full_attention" per layer; without it num_hidden_layers
    gives as many, seven lightning layers before each softmax layer (MiniMax-01).
    head_dim: None: hidden_size / num_attention_heads.
    num_key_value_heads: of softmax layers, shared by neighbouring queries; None: as many as heads.
    rotary_dim: first dimensions of a softmax layer's heads that are rotated; None: head_dim.
    num_local_experts: 1: a dense MLP in each layer. intermediate_size is the width of one expert.
    num_experts_per_tok: experts that a token is sent to, best first.
    router_aux_loss_coef: weight of the loss that keeps experts evenly used.
    residual_alpha: weight of the normalised input beside each branch, of all kinds of branches
    whose own alpha factor is None; None: (2 layers)^(1/4). The beta factors weigh the branch.
    linear_attn_norm_eps: of the norm over a lightning layer's heads; None: rms_norm_eps.
    conv_width: causal depthwise convolution on q and k of every layer (not in MiniMax); 0: none.
    tie_word_embeddings: the head is the embedding again.
    """

    model_type = "caravan_hybrid"

    vocab_size: int = 1000
    hidden_size: int = 128
    num_attention_heads: int = 4
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int = 256
    num_hidden_layers: int | None = None
    layer_types: list[str] | None = None
    num_local_experts: int = 1
    num_experts_per_tok: int = 2
    router_aux_loss_coef: float = 0.0
    conv_width: int = 3
    rope_theta: float = 1000.0
    rotary_dim: int | None = None
    residual_alpha: float | None = None
    linear_attn_alpha_factor: float | None = None
    linear_attn_beta_factor: float = 1.0
    full_attn_alpha_factor: float | None = None
    full_attn_beta_factor: float = 1.0
    mlp_alpha_factor: float | None = None
    mlp_beta_factor: float = 1.0
    slope_schedule: str = SlopeSchedule.MINIMAX.value
    rms_norm_eps: float = 1e-6
    linear_attn_norm_eps: float | None = None
    tie_word_embeddings: bool = True
    initializer_range: float = 0.05
    embedding_std: float = 0.09
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    use_cache: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        self._set_layers()
        self._set_heads()
        experts, each = self.num_local_experts, self.num_experts_per_tok
        if experts < 1 or (experts > 1 and not 2 <= each <= experts):
            raise ValueError(
                f"{each} experts a token of {experts}: expected "
                "one expert in all, or at least two a token and no more than there are (the "
                "renormalised weight of a single one is always 1, so that nothing is learnt)"
            )
        if self.router_aux_loss_coef and experts == 1:
            raise ValueError(
                f"router_aux_loss_coef is {self.router_aux_loss_coef}, but with one expert there "
                "is no router"
            )
        if self.residual_alpha is None:
            self.residual_alpha = (2 * len(self.layer_types or ())) ** 0.25
        for name in ("linear_attn", "full_attn", "mlp"):
            if getattr(self, f"{name}_alpha_factor") is None:
                setattr(self, f"{name}_alpha_factor", self.residual_alpha)
        if self.linear_attn_norm_eps is None:
            self.linear_attn_norm_eps = self.rms_norm_eps
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]

    def _set_layers(self) -> None:
        if self.layer_types is None:
            if self.num_hidden_layers is None:
                self.layer_types = [LIGHTNING, SOFTMAX] * 2
            else:
                kinds = [LIGHTNING] * 7 + [SOFTMAX]
                self.layer_types = [kinds[layer % 8] for layer in range(self.num_hidden_layers)]
        if self.num_hidden_layers not in (None, len(self.layer_types)):
            raise ValueError(
                f"num_hidden_layers is {self.num_hidden_layers}, layer_types names "
                f"{len(self.layer_types)} layers"
            )
        if not self.layer_types:
            raise ValueError("layer_types is empty; a model needs at least one layer")
        if unknown := set(self.layer_types) - {LIGHTNING, SOFTMAX}:
            raise ValueError(
                f"layer_types holds {sorted(unknown)}; expected {LIGHTNING}, {SOFTMAX}"
            )
        self.num_hidden_layers = len(self.layer_types)

    def _set_heads(self) -> None:
        heads = self.num_attention_heads
        if self.head_dim is None:
            if self.hidden_size % (2 * heads):
                raise ValueError(
                    f"hidden_size {self.hidden_size} must be an even multiple of "
                    f"num_attention_heads {heads}, or head_dim must be given"
                )
            self.head_dim = self.hidden_size // heads
        if self.num_key_value_heads is None:
            self.num_key_value_heads = heads
        if self.num_key_value_heads < 1 or heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads {heads} cannot share {self.num_key_value_heads} key-value "
                "heads evenly: it must be a multiple"
            )
        if self.rotary_dim is None:
            self.rotary_dim = self.head_dim
        if self.rotary_dim % 2 or not 2 <= self.rotary_dim <= self.head_dim:
            raise ValueError(
                f"rotary_dim {self.rotary_dim} must be even and at most head_dim {self.head_dim}"
            )

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
            num_key_value_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            intermediate_size=spec.mlp_width,
            layer_types=[kinds[layer] for layer in spec.layers],
            conv_width=spec.conv_width,
            rope_theta=spec.rope_base,
            rotary_dim=spec.rotary_dim,
            num_local_experts=spec.experts,
            num_experts_per_tok=spec.experts_per_token or 2,
            router_aux_loss_coef=spec.router_aux_weight,
            tie_word_embeddings=spec.tie_embeddings,
            initializer_range=spec.init_std,
            embedding_std=spec.embedding_std,
            pad_token_id=pad_id,
            eos_token_id=end_id,
        )
