"""Low-rank adapters for the hybrid model, through peft (LoRA, 2106.09685)."""

import copy
import json
from collections.abc import Mapping

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor

from engine.models.hybrid import HybridForCausalLM

LINEAR = ["qkv_proj", "out_proj", "output_gate", "gate_up_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


def add_lora(model: HybridForCausalLM, rank: int, alpha: float, seed: int = 0) -> PeftModel:
    """The model with adapters of all its matrices but tables and routers; only they are trained.

    The product of an adapter is scaled by alpha / rank and begins at 0; its other factor is drawn
    by the seed. The model's own weights are frozen in place.
    """
    experts = model.config.num_local_experts > 1
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]  # a float scales as well
        target_modules=LINEAR,
        target_parameters=EXPERTS if experts else None,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return get_peft_model(model, config)


def merged_model(adapted: PeftModel) -> HybridForCausalLM:
    """A copy with the adapters taken in.

    Merging in place and back would move the frozen weights by rounding.
    """
    merged = copy.deepcopy(adapted).merge_and_unload()
    assert isinstance(merged, HybridForCausalLM)
    return merged


def merged_weights(adapted: PeftModel) -> dict[str, Tensor]:
    """Weights under the model's own names with the adapters taken in, as samplers load them."""
    return {name: p.detach() for name, p in merged_model(adapted).named_parameters()}


def take_in(adapted: PeftModel) -> None:
    """Takes the adapters into the model that they were added to, whose weights train again."""
    adapted.merge_and_unload().requires_grad_(True)


def adapter_tensors(adapted: PeftModel) -> dict[str, Tensor]:
    """The adapters under peft's names."""
    return dict(get_peft_model_state_dict(adapted))


def load_adapters(adapted: PeftModel, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `adapter_tensors`, for adapters of the same rank."""
    set_peft_model_state_dict(adapted, dict(tensors))


def adapter_config(adapted: PeftModel) -> bytes:
    """peft's adapter_config.json, with which PeftModel.from_pretrained loads the adapters."""
    values = adapted.peft_config["default"].to_dict() | {"inference_mode": True}
    plain = {key: sorted(one) if isinstance(one, set) else one for key, one in values.items()}
    return json.dumps(plain, indent=1, sort_keys=True, default=str).encode()
