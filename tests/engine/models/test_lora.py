"""LoRA on the hybrid model: what is trained, what is merged, what is kept."""

import pytest
import torch
from peft import PeftModel
from torch import Tensor

from engine.kernels.tree import TreeLayout
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.lora import add_lora, merged_weights


def build(experts: int = 1) -> HybridForCausalLM:
    torch.manual_seed(0)
    config = HybridConfig(
        vocab_size=50,
        hidden_size=32,
        num_key_value_heads=2,
        intermediate_size=24,
        num_local_experts=experts,
        initializer_range=0.2,
    )
    return HybridForCausalLM(config)


def train(adapted: PeftModel, ids: Tensor, steps: int = 5) -> None:
    trained = [p for p in adapted.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        adapted(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()


IDS = torch.randint(0, 50, (2, 14), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("experts", [1, 3])
def test_only_adapters_are_trained_and_samplers_get_them_merged(experts: int) -> None:
    before = build(experts)
    adapted = add_lora(build(experts), rank=4, alpha=8)
    assert torch.equal(adapted(IDS).logits, before(IDS).logits)
    loss = float(adapted(IDS, labels=IDS).loss.detach())
    train(adapted, IDS)
    assert float(adapted(IDS, labels=IDS).loss) < loss - 0.3
    weights = merged_weights(adapted)
    assert weights.keys() == dict(before.named_parameters()).keys()
    unchanged = {name for name, p in before.named_parameters() if torch.equal(weights[name], p)}
    matrices = {
        name
        for name, p in before.named_parameters()
        if p.ndim > 1 and not name.endswith("conv") and name not in before.tables()
    }
    assert unchanged == weights.keys() - matrices
    sampler = build(experts)
    sampler.load_state_dict(weights)
    assert torch.allclose(sampler(IDS).logits, adapted(IDS).logits, atol=1e-5)
    with adapted.disable_adapter():
        assert torch.equal(adapted(IDS).logits, before(IDS).logits)


def test_adapters_are_kept_alone(tmp_path) -> None:
    adapted = add_lora(build(), rank=4, alpha=8)
    train(adapted, IDS)
    adapted.save_pretrained(tmp_path)
    assert (tmp_path / "adapter_model.safetensors").exists()
    again = PeftModel.from_pretrained(build(), tmp_path)
    assert torch.allclose(again(IDS).logits, adapted(IDS).logits, atol=1e-6)


def test_trees_and_generation_see_the_adapters() -> None:
    adapted = add_lora(build(), rank=4, alpha=8)
    train(adapted, IDS)
    layout = TreeLayout.build([5, 9], [-1, 0])
    hidden = adapted.base_model.model.hidden(IDS[:1], layout=layout)
    logits = adapted.base_model.model.logits(hidden)
    assert torch.allclose(logits, adapted(IDS[:1]).logits, atol=1e-5)
    adapted.eval()
    generated = adapted.generate(input_ids=IDS, max_new_tokens=4, do_sample=False)
    assert generated[:, 14].tolist() == adapted(IDS).logits[:, -1].argmax(-1).tolist()
