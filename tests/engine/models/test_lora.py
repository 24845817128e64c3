"""LoRA on the hybrid model: what is trained, what is merged, what is kept."""

import copy
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import PeftModel
from torch import Tensor

from engine.kernels.tree import TreeLayout
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.hybrid.config import LIGHTNING, SOFTMAX
from engine.models.logprobs import token_logprobs
from engine.models.lora import (
    adapter_config,
    adapter_factors,
    adapter_tensors,
    add_lora,
    merged_model,
    merged_weights,
    switched_in,
    weights_digest,
)


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


@pytest.fixture
def exact() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def moved(adapted: PeftModel, seed: int) -> PeftModel:
    """With adapters that do something."""
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3, generator=drawn)
    return adapted


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    experts=st.sampled_from([1, 2, 5]),
    kv_heads=st.sampled_from([1, 2, 4]),
    layers=st.lists(st.sampled_from([LIGHTNING, SOFTMAX]), min_size=1, max_size=3),
    tied=st.booleans(),
    ranks=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    alpha=st.floats(0.5, 20.0),
    shape=st.tuples(st.integers(1, 3), st.integers(2, 17)),
)
@pytest.mark.usefixtures("exact")
def test_adapters_switched_into_another_ones_base_are_the_merged_model(
    experts, kv_heads, layers, tied, ranks, alpha, shape
) -> None:
    torch.manual_seed(0)
    config = HybridConfig(
        vocab_size=40,
        hidden_size=32,
        num_key_value_heads=kv_heads,
        intermediate_size=24,
        layer_types=layers,
        num_local_experts=experts,
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    base = HybridForCausalLM(config)
    teacher = moved(add_lora(copy.deepcopy(base), ranks[0], alpha, 1), 1)
    student = copy.deepcopy(base)
    moved(add_lora(student, ranks[1], 8.0, 2), 2)
    ids = torch.randint(0, 40, shape)

    def logprobs(model: HybridForCausalLM) -> Tensor:
        hidden = model.hidden(ids)[:, :-1].flatten(0, 1)
        return token_logprobs(hidden, model.head_weight, ids[:, 1:].flatten()).logprobs

    own = logprobs(student)
    expected = logprobs(merged_model(teacher))
    factors = adapter_factors(adapter_tensors(teacher), adapter_config(teacher), student)
    names = [name for name, _ in student.named_parameters()]
    with torch.no_grad(), switched_in(student, factors) as model:
        assert float((logprobs(model) - expected).abs().max()) < 1e-10
    assert float((expected - logprobs(base)).abs().max()) > 1e-3
    assert torch.equal(logprobs(student), own)
    assert [name for name, _ in student.named_parameters()] == names


def test_the_students_adapters_come_back_with_their_gradients_though_a_pass_fails() -> None:
    teacher, student = moved(add_lora(build(), 6, 8.0, 1), 1), build()
    adapted = add_lora(student, 4, 8.0, 2)
    student(IDS, labels=IDS).loss.backward()
    before = {name: (p, p.grad) for name, p in student.named_parameters()}
    factors = adapter_factors(adapter_tensors(teacher), adapter_config(teacher), student)
    with pytest.raises(RuntimeError, match="broke"), switched_in(student, factors):
        raise RuntimeError("it broke")
    for name, parameter in student.named_parameters():
        kept, gradient = before[name]
        assert parameter is kept and parameter.grad is gradient
    assert adapter_tensors(adapted).keys() == adapter_tensors(teacher).keys()


def test_adapters_of_other_matrices_are_refused() -> None:
    teacher, student = add_lora(build(experts=3), 4, 8.0), build()
    add_lora(student, 4, 8.0)
    with pytest.raises(ValueError, match="they are of another model"):
        adapter_factors(adapter_tensors(teacher), adapter_config(teacher), student)


def test_a_digest_tells_weights_apart() -> None:
    model = build()
    digest = weights_digest(model)
    assert digest == weights_digest(build())
    with torch.no_grad():
        model.norm.weight[3] += 1e-6
    assert weights_digest(model) != digest
    assert weights_digest(build(experts=3)) != digest
    assert weights_digest(build().to(torch.bfloat16)) != digest
