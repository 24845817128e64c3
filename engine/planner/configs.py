"""From a model's configuration to its shape: transformers' config.json, a spec, shipped models."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.planner.architecture import (
    Architecture,
    Latent,
    Layer,
    Lightning,
    Mlp,
    Softmax,
    softmax_twin,
)
from engine.spec import ModelSpec

SHIPPED = Path(__file__).parent / "models"
TWIN = "-softmax"  # ends the name of a shipped hybrid's all-softmax twin
LIGHTNING_NAMES = {"linear_attention": True, "full_attention": False, 0: True, 1: False}


class ConfigError(ValueError):
    """A configuration that cannot be planned with; the message is one sentence for the user."""


@dataclass(frozen=True)
class _Fields:
    """A configuration's fields, read with a sentence about what is wrong."""

    name: str
    values: dict[str, Any]

    def number(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number; without a default the field must be there. null counts as absent."""
        value = self.values.get(key)
        if value is None:
            value = default
        if value is None:
            raise ConfigError(f"{self.name}: the field {key} is missing.")
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(
                f"{self.name}: {key} is {value!r}; a whole number of at least {least} is expected."
            )
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        return bool(self.values.get(key, default))

    def lightning_layers(self, key: str, layers: int) -> list[bool]:
        """Which layers are lightning, of a list of transformers' names or MiniMax's 0 and 1."""
        kinds = self.values.get(key)
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise ConfigError(f"{self.name}: {key} must be a list with one entry a layer.")
        for kind in kinds:
            if isinstance(kind, bool) or kind not in LIGHTNING_NAMES:
                known = ", ".join(repr(name) for name in LIGHTNING_NAMES)
                raise ConfigError(f"{self.name}: {key} holds {kind!r}; it may hold {known}.")
        return [LIGHTNING_NAMES[kind] for kind in kinds]


def read_config(values: dict[str, Any], name: str, source: str = "") -> Architecture:
    """The shape in a transformers configuration. Raises ConfigError, naming the field."""
    fields = _Fields(name, values)
    family = values.get("model_type")
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ConfigError(f"{name}: the model_type {family!r} is not known: there are {known}.")
    if values.get("sliding_window") and values.get("use_sliding_window", True):
        raise ConfigError(f"{name}: attention in a sliding window cannot be counted.")
    if values.get("mlp_bias"):
        raise ConfigError(f"{name}: MLPs with a bias cannot be counted.")
    return Architecture(
        name=name,
        width=fields.number("hidden_size"),
        vocab_size=fields.number("vocab_size"),
        layers=tuple(FAMILIES[family](fields)),
        tied_head=fields.flag("tie_word_embeddings", default=family == "caravan_hybrid"),
        source=source or f"configuration of type {family}",
    )


def read_config_file(path: Path) -> Architecture:
    """The shape in a config.json, or in a checkpoint folder that holds one. Raises ConfigError."""
    file = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror}).") from None
    except ValueError:
        raise ConfigError(f"{file} is not JSON.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{file} holds no JSON object.")
    return read_config(values, str(path), source=str(file))


def shipped_names() -> list[str]:
    """Names of the models whose shape comes with Caravan."""
    names = []
    for file in sorted(SHIPPED.glob("*.json")):
        names.append(file.stem)
        if "attn_type_list" in json.loads(file.read_text()):
            names.append(file.stem + TWIN)
    return names


def shipped(name: str) -> Architecture:
    """A shipped model, or the all-softmax twin of one. Raises ConfigError for another name."""
    if name not in shipped_names():
        raise ConfigError(f"No model {name!r} is shipped: there are {', '.join(shipped_names())}.")
    stem = name.removesuffix(TWIN)
    source = json.loads((SHIPPED / f"{stem}.json").read_text())["source"]
    model = read_config(shipped_config(stem), stem, source)
    return model if name == stem else softmax_twin(model)


def shipped_config(name: str) -> dict[str, Any]:
    """The fields of a shipped model's config.json that its shape is read from."""
    values: dict[str, Any] = json.loads((SHIPPED / f"{name}.json").read_text())
    del values["source"]
    return values


def from_spec(spec: ModelSpec, name: str) -> Architecture:
    """The policy of an experiment; its vocabulary at the most that the spec allows."""
    dim = spec.head_dim or spec.width // spec.heads
    dense, active = spec.experts == 1, spec.experts_per_token or 2
    layers = _hybrid_layers(
        Softmax(spec.heads, spec.kv_heads or spec.heads, dim),
        spec.conv_width,
        Mlp(spec.mlp_width) if dense else Mlp(spec.mlp_width, spec.experts, active),
        [kind == "lightning" for kind in spec.layers],
    )
    return Architecture(
        name,
        spec.width,
        spec.vocab_size,
        tuple(layers),
        tied_head=spec.tie_embeddings,
        source="specification",
    )


def _grouped(
    fields: _Fields, *, qk_norm: bool = False, qkv_bias: bool = False, out_bias: bool = False
) -> Softmax:
    """Grouped-query attention as Llama names it, with the additions of its kin."""
    heads = fields.number("num_attention_heads")
    kv_heads = fields.number("num_key_value_heads", heads)
    width = fields.number("hidden_size")
    dim = fields.number("head_dim", width // heads)
    extra = 2 * dim * qk_norm + (heads + 2 * kv_heads) * dim * qkv_bias + width * out_bias
    return Softmax(heads, kv_heads, dim, extra)


def _dense(mixer: Callable[[_Fields], Softmax]) -> Callable[[_Fields], list[Layer]]:
    def layers(fields: _Fields) -> list[Layer]:
        mlp = Mlp(fields.number("intermediate_size"))
        return [Layer(mixer(fields), mlp)] * fields.number("num_hidden_layers")

    return layers


def _biased(fields: _Fields) -> Softmax:
    bias = fields.flag("attention_bias")
    return _grouped(fields, qkv_bias=bias, out_bias=bias)


def _qwen3(fields: _Fields) -> Softmax:
    bias = fields.flag("attention_bias")
    return _grouped(fields, qk_norm=True, qkv_bias=bias, out_bias=bias)


def _qwen3_moe(fields: _Fields) -> list[Layer]:
    dense = Mlp(fields.number("intermediate_size"))
    key = "num_experts" if "num_experts" in fields.values else "num_local_experts"
    experts = fields.number(key)
    active = fields.number("num_experts_per_tok")
    sparse = Mlp(fields.number("moe_intermediate_size"), experts, active)
    step = fields.number("decoder_sparse_step", 1)
    only_dense = fields.values.get("mlp_only_layers") or []
    mixer = _qwen3(fields)
    return [
        Layer(mixer, dense if layer in only_dense or (layer + 1) % step else sparse)
        for layer in range(fields.number("num_hidden_layers"))
    ]


def _deepseek_v3(fields: _Fields) -> list[Layer]:
    if fields.flag("attention_bias") or fields.number("moe_layer_freq", 1) != 1:
        raise ConfigError(
            f"{fields.name}: attention_bias and moe_layer_freq other than 1 cannot be counted."
        )
    q_rank, kv_rank = fields.number("q_lora_rank", 0, least=0), fields.number("kv_lora_rank")
    mixer = Latent(
        heads=fields.number("num_attention_heads"),
        q_rank=q_rank,
        kv_rank=kv_rank,
        nope_dim=fields.number("qk_nope_head_dim"),
        rope_dim=fields.number("qk_rope_head_dim"),
        v_dim=fields.number("v_head_dim"),
        extra=q_rank + kv_rank,  # norms of the ranks
    )
    width = fields.number("moe_intermediate_size")
    sparse = Mlp(
        width,
        fields.number("n_routed_experts"),
        fields.number("num_experts_per_tok"),
        width * fields.number("n_shared_experts", 0, least=0),
    )
    dense = Mlp(fields.number("intermediate_size"))
    first = fields.number("first_k_dense_replace", least=0)
    return [
        Layer(mixer, dense if layer < first else sparse)
        for layer in range(fields.number("num_hidden_layers"))
    ]


def _minimax(key: str) -> Callable[[_Fields], list[Layer]]:
    def layers(fields: _Fields) -> list[Layer]:
        if fields.values.get("shared_intermediate_size"):
            raise ConfigError(f"{fields.name}: shared_intermediate_size cannot be counted.")
        softmax = _grouped(fields)
        heads, dim = softmax.heads, softmax.head_dim
        lightning = Lightning(heads, dim, fields.number("block_size", 256), extra=heads * dim)
        mlp = Mlp(
            fields.number("intermediate_size"),
            fields.number("num_local_experts"),
            fields.number("num_experts_per_tok"),
        )
        kinds = fields.lightning_layers(key, fields.number("num_hidden_layers"))
        return [Layer(lightning if kind else softmax, mlp) for kind in kinds]

    return layers


def _caravan_hybrid(fields: _Fields) -> list[Layer]:
    kinds = fields.values.get("layer_types")
    lightning = fields.lightning_layers("layer_types", len(kinds) if kinds else 0)
    width, experts = fields.number("intermediate_size"), fields.number("num_local_experts", 1)
    mlp = Mlp(width) if experts == 1 else Mlp(width, experts, fields.number("num_experts_per_tok"))
    return _hybrid_layers(_grouped(fields), fields.number("conv_width", least=0), mlp, lightning)


def _hybrid_layers(
    softmax: Softmax, conv_width: int, mlp: Mlp, lightning: list[bool]
) -> list[Layer]:
    """The layers of Caravan's hybrid: a convolution on q and k, chunks as long as the head dim."""
    heads, dim = softmax.heads, softmax.head_dim
    linear = Lightning(heads, dim, chunk=dim, extra=heads * dim, conv_taps=conv_width)
    mixers: dict[bool, Softmax | Lightning] = {
        is_linear: replace(mixer, extra=mixer.extra + conv_width * mixer.conv_channels)
        for is_linear, mixer in ((True, linear), (False, replace(softmax, conv_taps=conv_width)))
    }
    return [Layer(mixers[kind], mlp) for kind in lightning]


FAMILIES: dict[Any, Callable[[_Fields], list[Layer]]] = {
    "caravan_hybrid": _caravan_hybrid,
    "minimax": _minimax("layer_types"),
    "minimax_m1": _minimax("attn_type_list"),
    "minimax_text_01": _minimax("attn_type_list"),
    "deepseek_v3": _deepseek_v3,
    "qwen3_moe": _qwen3_moe,
    "qwen3": _dense(_qwen3),
    "qwen2": _dense(lambda fields: _grouped(fields, qkv_bias=True)),
    "llama": _dense(_biased),
    "mistral": _dense(_grouped),
}
