"""Low-rank adapters for the hybrid model, through peft (LoRA, 2106.09685)."""

import copy

from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor

from engine.models.hybrid import HybridForCausalLM

LINEAR = ["qkv_proj", "out_proj", "output_gate", "gate_up_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


def add_lora(model: HybridForCausalLM, rank: int, alpha: int) -> PeftModel:
    """The model with adapters of all its matrices but tables and routers; only they are trained.

    The product of an adapter is scaled by alpha / rank and begins at 0. The model's own weights
    are frozen in place. Adapters are saved and loaded by peft (`save_pretrained`).
    """
    experts = model.config.num_local_experts > 1
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=LINEAR,
        target_parameters=EXPERTS if experts else None,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config)


def merged_weights(adapted: PeftModel) -> dict[str, Tensor]:
    """Weights under the model's own names with the adapters taken in, as samplers load them.

    Merged in a copy: merging in place and back would move the frozen weights by rounding.
    """
    merged = copy.deepcopy(adapted).merge_and_unload()
    return {name: p.detach() for name, p in merged.named_parameters()}
