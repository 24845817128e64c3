"""Conversion from and to transformers' MiniMax: the same block under other names.

Their lightning slopes differ from the published ones by 1e-5 in the layer factor, more where the
number of heads is no power of two, and they rotate whole heads; `departures` lists what applies.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import MiniMaxConfig, MiniMaxForCausalLM

from engine.kernels.lightning import SlopeSchedule
from engine.models.hybrid.config import LIGHTNING, SOFTMAX, HybridConfig
from engine.models.hybrid.model import HybridForCausalLM

logger = logging.getLogger(__name__)

LIGHTNING_NORM_EPS = 1e-6  # theirs, whatever rms_norm_eps says
SAME = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "layer_types",
    "num_local_experts",
    "num_experts_per_tok",
    "router_aux_loss_coef",
    "rms_norm_eps",
    "tie_word_embeddings",
    "initializer_range",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    *(
        f"{kind}_{factor}_factor"
        for kind in ("linear_attn", "full_attn", "mlp")
        for factor in ("alpha", "beta")
    ),
)
ONLY = {"hidden_act": "silu", "sliding_window": None, "attention_dropout": 0.0}
NAMES = (  # theirs, ours; in each layer
    ("input_layernorm.weight", "mixer_norm.weight"),
    ("post_attention_layernorm.weight", "mlp_norm.weight"),
)
LIGHTNING_NAMES = tuple(
    (f"self_attn.{name}.weight", f"mixer.{name}.weight")
    for name in ("qkv_proj", "output_gate", "out_proj", "norm")
)
TOP_NAMES = (
    ("model.embed_tokens.weight", "embedding.weight"),
    ("model.norm.weight", "norm.weight"),
    ("lm_head.weight", "lm_head.weight"),
)


def hybrid_config(theirs: MiniMaxConfig) -> HybridConfig:
    """Our configuration of their model. Raises ValueError for what ours does not compute."""
    for name, value in ONLY.items():
        if (given := getattr(theirs, name)) != value:
            raise ValueError(f"{name} is {given!r}; the hybrid model computes {value!r} only")
    rope: dict[str, Any] = dict(theirs.rope_parameters or {})
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"rope_type is {rope['rope_type']!r}; the hybrid model knows default only")
    fields = {name: getattr(theirs, name) for name in SAME}
    if theirs.num_local_experts == 1:  # their router of one expert always says 1
        fields |= {"num_experts_per_tok": 2, "router_aux_loss_coef": 0.0}
    head_dim = theirs.head_dim or theirs.hidden_size // theirs.num_attention_heads
    rotated = getattr(theirs, "rotary_dim", None)  # the name in MiniMax's own configurations
    return HybridConfig(
        **fields,
        conv_width=0,
        rope_theta=float(rope.get("rope_theta", theirs.default_theta)),
        rotary_dim=rotated or int(head_dim * rope.get("partial_rotary_factor", 1.0)),
        linear_attn_norm_eps=LIGHTNING_NORM_EPS,
        slope_schedule=SlopeSchedule.MINIMAX.value,
    )


def minimax_config(config: HybridConfig) -> MiniMaxConfig:
    """Their configuration of our model. Raises ValueError for what theirs has no words for."""
    if config.conv_width:
        raise ValueError(f"conv_width is {config.conv_width}; MiniMax has no convolution")
    if config.slope_schedule != SlopeSchedule.MINIMAX:
        raise ValueError(f"slope_schedule is {config.slope_schedule!r}; MiniMax knows minimax only")
    if LIGHTNING in (config.layer_types or ()) and (
        config.linear_attn_norm_eps != LIGHTNING_NORM_EPS
    ):
        raise ValueError(
            f"linear_attn_norm_eps is {config.linear_attn_norm_eps}; transformers' MiniMax has "
            f"{LIGHTNING_NORM_EPS} there"
        )
    fields = {name: getattr(config, name) for name in SAME}
    if config.num_local_experts == 1:
        fields["num_experts_per_tok"] = 1
    rope = {"rope_type": "default", "rope_theta": config.rope_theta}
    if config.rotary_dim != config.head_dim:
        rope["partial_rotary_factor"] = (config.rotary_dim or 0) / (config.head_dim or 1)
    return MiniMaxConfig(**fields, rope_parameters=rope)


def departures(config: HybridConfig) -> list[str]:
    """What transformers' MiniMax computes otherwise than MiniMax-01 and this model, if anything."""
    found = []
    if SOFTMAX in (config.layer_types or ()) and config.rotary_dim != config.head_dim:
        found.append(f"it rotates all {config.head_dim} dimensions, not {config.rotary_dim}")
    heads = config.num_attention_heads
    if LIGHTNING in (config.layer_types or ()) and heads & (heads - 1):
        found.append(f"its slopes of {heads} heads, no power of two, are others")
    return found


def hybrid_weights(config: HybridConfig, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict from theirs, in the names of memory or of files (experts one by one)."""
    theirs = _fused_experts({_in_memory(name): tensor for name, tensor in theirs.items()})
    ours = {
        new: theirs[old]
        for old, new in TOP_NAMES
        if new != "lm_head.weight" or not config.tie_word_embeddings
    }
    for layer, kind in enumerate(config.layer_types or ()):
        old, new = f"model.layers.{layer}.", f"layers.{layer}."
        for name, our_name in NAMES + (LIGHTNING_NAMES if kind == LIGHTNING else ()):
            ours[new + our_name] = theirs[old + name]
        if kind == SOFTMAX:
            parts = (theirs[f"{old}self_attn.{part}_proj.weight"] for part in "qkv")
            ours[f"{new}mixer.qkv_proj.weight"] = _interleave(config, *parts)
            ours[f"{new}mixer.out_proj.weight"] = theirs[f"{old}self_attn.o_proj.weight"]
        gate_up, down = (theirs[f"{old}mlp.experts.{part}_proj"] for part in ("gate_up", "down"))
        if config.num_local_experts == 1:
            ours[f"{new}mlp.gate_up_proj.weight"] = gate_up[0]
            ours[f"{new}mlp.down_proj.weight"] = down[0]
        else:
            ours[f"{new}mlp.router.weight"] = theirs[f"{old}mlp.gate.weight"]
            ours[f"{new}mlp.experts.gate_up_proj"] = gate_up
            ours[f"{new}mlp.experts.down_proj"] = down
    return {name: tensor.clone() for name, tensor in ours.items()}


def minimax_weights(config: HybridConfig, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their state dict from ours, in the names of memory, without their decay buffers."""
    theirs = {
        old: ours["embedding.weight" if config.tie_word_embeddings and new[0] == "l" else new]
        for old, new in TOP_NAMES
    }
    for layer, kind in enumerate(config.layer_types or ()):
        old, new = f"model.layers.{layer}.", f"layers.{layer}."
        for name, our_name in NAMES + (LIGHTNING_NAMES if kind == LIGHTNING else ()):
            theirs[old + name] = ours[new + our_name]
        if kind == SOFTMAX:
            parts = _separate(config, ours[f"{new}mixer.qkv_proj.weight"])
            for part, tensor in zip("qkv", parts, strict=True):
                theirs[f"{old}self_attn.{part}_proj.weight"] = tensor
            theirs[f"{old}self_attn.o_proj.weight"] = ours[f"{new}mixer.out_proj.weight"]
        if config.num_local_experts == 1:
            gate_up, down = (ours[f"{new}mlp.{part}_proj.weight"] for part in ("gate_up", "down"))
            router = gate_up.new_zeros(1, config.hidden_size)
            gate_up, down = gate_up[None], down[None]
        else:
            gate_up, down = (ours[f"{new}mlp.experts.{part}_proj"] for part in ("gate_up", "down"))
            router = ours[f"{new}mlp.router.weight"]
        theirs[f"{old}mlp.gate.weight"] = router
        theirs[f"{old}mlp.experts.gate_up_proj"] = gate_up
        theirs[f"{old}mlp.experts.down_proj"] = down
    return {name: tensor.clone() for name, tensor in theirs.items()}


def from_minimax(theirs: MiniMaxForCausalLM) -> HybridForCausalLM:
    """Our model with the weights of theirs."""
    config = hybrid_config(theirs.config)
    model = HybridForCausalLM(config)
    model.load_state_dict(hybrid_weights(config, theirs.state_dict()))
    model.train(False)
    return model


def to_minimax(model: HybridForCausalLM) -> MiniMaxForCausalLM:
    """Their model with the weights of ours; says in the log where it will compute otherwise."""
    if found := departures(model.config):
        logger.warning("transformers' MiniMax departs from this model: %s.", "; ".join(found))
    theirs = MiniMaxForCausalLM(minimax_config(model.config))  # type: ignore[no-untyped-call]
    missing, unexpected = theirs.load_state_dict(
        minimax_weights(model.config, model.state_dict()), strict=False
    )
    buffers = {name for name, _ in theirs.named_buffers()}
    if unexpected or set(missing) - buffers:
        raise RuntimeError(f"transformers' MiniMax has other weights: {unexpected}, {missing}")
    theirs.train(False)
    return theirs


def _interleave(config: HybridConfig, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Rows for each key-value head: its queries, its key, its value."""
    kv_heads, width = config.num_key_value_heads or 0, config.hidden_size
    parts = [part.view(kv_heads, -1, width) for part in (q, k, v)]
    return torch.cat(parts, dim=1).flatten(0, 1)


def _separate(config: HybridConfig, qkv: Tensor) -> list[Tensor]:
    kv_heads, dim = config.num_key_value_heads or 0, config.head_dim or 0
    rows = qkv.view(kv_heads, -1, config.hidden_size)
    parts = torch.split(rows, [rows.shape[1] - 2 * dim, dim, dim], dim=1)
    return [part.flatten(0, 1) for part in parts]


def _in_memory(name: str) -> str:
    return name.replace(".block_sparse_moe.", ".mlp.")


def _fused_experts(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Files hold w1 (gate), w3 (up) and w2 (down) of each expert; memory holds them stacked."""
    experts: dict[str, dict[str, dict[int, Tensor]]] = {}
    fused = {}
    for name, tensor in state.items():
        if found := re.fullmatch(r"(.*\.mlp\.experts)\.(\d+)\.(w[123])\.weight", name):
            prefix, expert, matrix = found.groups()
            experts.setdefault(prefix, {}).setdefault(matrix, {})[int(expert)] = tensor
        else:
            fused[name] = tensor
    for prefix, matrices in experts.items():
        w1, w2, w3 = (
            torch.stack([matrices[name][expert] for expert in range(len(matrices[name]))])
            for name in ("w1", "w2", "w3")
        )
        fused[f"{prefix}.gate_up_proj"] = torch.cat([w1, w3], dim=1)
        fused[f"{prefix}.down_proj"] = w2
    return fused
