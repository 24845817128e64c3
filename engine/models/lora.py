"""Low-rank adapters for the hybrid model, through peft (LoRA, 2106.09685)."""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor, nn

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


def weights_digest(model: nn.Module) -> str:
    """SHA-256 of names, types, shapes and bytes of a model's weights: adapters belong to one."""
    found = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        found.update(f"{name} {weight.dtype} {list(weight.shape)} ".encode())
        found.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return found.hexdigest()


def adapter_scale(config: bytes) -> tuple[int, float]:
    """Rank and alpha that an `adapter_config` tells of."""
    told = json.loads(config)
    return told["r"], told["lora_alpha"]


def adapter_factors(
    tensors: Mapping[str, Tensor], config: bytes, model: HybridForCausalLM
) -> dict[str, nn.Parameter]:
    """A checkpoint's adapters as a model takes them that has adapters of whatever rank.

    tensors, config: as `adapter_tensors` and `adapter_config` gave them. They come under the
    model's names, in its types, and scaled so that its own alpha / rank makes them right.
    Raises ValueError where they are not of the same matrices as the model's.
    """
    rank, alpha = adapter_scale(config)
    own = dict(_factors(model))
    named = {_place(name): tensor for name, tensor in tensors.items()}
    if strange := named.keys() ^ own.keys():
        raise ValueError(
            f"Adapters of {len(named)} factors for a model that takes {len(own)}; {min(strange)} "
            "is on one side only: they are of another model."
        )
    scale = alpha / rank / _scaling(model)
    return {
        name: nn.Parameter(
            (scale * tensor if "lora_B" in name else tensor).to(own[name]), requires_grad=False
        )
        for name, tensor in named.items()
    }


@contextmanager
def switched_in(
    model: HybridForCausalLM, factors: Mapping[str, nn.Parameter]
) -> Iterator[HybridForCausalLM]:
    """Meanwhile the model's adapters are these; its own stand aside, gradients and all."""
    own = dict(_factors(model))
    try:
        put_in(model, factors)
        yield model
    finally:
        put_in(model, own)


def put_in(model: HybridForCausalLM, factors: Mapping[str, nn.Parameter]) -> None:
    """Gives a model with adapters these instead; they come from `adapter_factors`."""
    for name, factor in factors.items():
        place, _, own = name.rpartition(".")
        setattr(model.get_submodule(place), own, factor)


def _factors(model: HybridForCausalLM) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, p) for name, p in model.named_parameters() if ".lora_" in name)


def _place(name: str) -> str:
    """peft's name of a stored factor as the model's own parameter is called."""
    stem = name.removeprefix("base_model.model.").removesuffix(".weight")
    return f"{stem}.default.weight"


def _scaling(model: HybridForCausalLM) -> float:
    """alpha / rank of the model's own adapters, which all of its matrices share."""
    (found,) = {m.scaling["default"] for m in model.modules() if isinstance(m, LoraLayer)}
    return float(found)
