"""FLOPs as torch's counter sees them: real models on the meta device, where nothing is computed.

The counter sees matrix products alone, and all pairs of a masked score matrix: compare it with the
planner's "unmasked" convention, and with scores that plain autograd keeps for the backward pass.
"""

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from engine.planner.configs import shipped_config


def transformers_config(name: str, layers: int | None = None) -> PretrainedConfig:
    """A shipped model's configuration as transformers' own class; `layers`: only the first ones."""
    values = shipped_config(name)
    family = values.pop("model_type")
    if family == "minimax_m1":  # transformers has the architecture under another name
        family = "minimax"
        kinds = values.pop("attn_type_list")[:layers]
        values["layer_types"] = ["full_attention" if kind else "linear_attention" for kind in kinds]
    values["num_hidden_layers"] = layers or values["num_hidden_layers"]
    config: PretrainedConfig = AutoConfig.for_model(family, **values)
    return config


def on_meta(config: PretrainedConfig) -> Any:
    """The model that transformers builds of it, without memory behind its parameters.

    Attention is eager, experts are batched products: what a token's experts cost does not depend
    on which ones they are.
    """
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, attn_implementation="eager", experts_implementation="batched_mm"
        )


def flop_counter() -> FlopCounterMode:
    """torch's counter, which knows `baddbmm` and is told about its in-place form."""
    return FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.baddbmm_: _batched_products}
    )


def _batched_products(_: Any, left: Any, right: Any, **__: Any) -> int:
    """FLOPs by the shapes [batch, rows, inner] and [batch, inner, columns]."""
    batch, rows, inner = left
    return int(2 * batch * rows * inner * right[-1])


def counted(model: Any, tokens: int, backward: bool = False) -> int:
    """FLOPs of one pass over a sequence; `backward`: of the gradient as well."""
    ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    with flop_counter() as counter:
        logits = model(input_ids=ids, attention_mask=_mask(model, tokens), use_cache=False).logits
        if backward:
            logits.sum().backward()
    return int(counter.get_total_flops())


def _mask(model: Any, tokens: int) -> Any:
    """transformers looks into position ids unless a mask is given; a meta tensor has no values."""
    if model.config.model_type == "caravan_hybrid":
        return None
    mask = torch.zeros(1, 1, tokens, tokens, device="meta")
    if model.config.model_type == "minimax":
        return {"full_attention": mask, "linear_attention": None}
    return mask
