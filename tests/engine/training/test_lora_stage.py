"""Stages that train adapters: what moves, what samplers get, what a checkpoint holds."""

import threading
from pathlib import Path

import pytest
import torch
from peft import PeftModel

from engine.models.hybrid import HybridForCausalLM
from engine.spec import LoraSpec, OpdStage, RlStage, SftStage, problems_of
from engine.training import trainer as module
from engine.training.distillation import opd_step
from engine.training.reinforcement import rl_step
from engine.training.supervised import sft_step
from engine.training.trainer import Trainer
from tests.engine.training.samples import FLAT, make_groups, make_trainer, on_ranks
from tests.engine.training.test_distillation import SPECS, make_lessons, make_teachers

LORA = LoraSpec(rank=4, alpha=8.0)
STAGES = {
    "sft": SftStage(steps=20, optimizer=FLAT, lora=LORA),
    "rl": RlStage(steps=20, optimizer=FLAT, lora=LORA),
    "opd": OpdStage(teachers=SPECS, steps=20, optimizer=FLAT, lora=LORA),
}


def step(trainer: Trainer, kind: str, seed: int = 0) -> dict[str, float]:
    if kind == "sft":
        return sft_step(trainer, [one for group in make_groups(seed) for one in group])
    if kind == "rl":
        return rl_step(trainer, make_groups(seed))
    return opd_step(trainer, make_teachers(), make_lessons(seed)[0])


def adapters(trainer: Trainer) -> dict[str, torch.Tensor]:
    named = trainer.model.named_parameters()
    return {name: p.detach().clone() for name, p in named if p.requires_grad}


@pytest.mark.parametrize("kind", STAGES)
def test_only_adapters_move_and_samplers_get_them_taken_in(kind: str) -> None:
    trainer = make_trainer()
    before = trainer.weights()
    trainer.begin(STAGES[kind])
    assert all("lora_" in name for name in adapters(trainer))
    first = step(trainer, kind)
    found = [step(trainer, kind) for _ in range(4)][-1]
    assert found["loss"] < first["loss"] or kind == "rl"
    after = trainer.weights()
    assert after.keys() == before.keys()
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    assert moved and not moved & trainer.model.tables()
    frozen = {n: p for n, p in trainer.model.named_parameters() if not p.requires_grad}
    for name, weight in before.items():
        (kept,) = [p for n, p in frozen.items() if n.replace(".base_layer", "") == name]
        assert torch.equal(kept, weight), name
    sampler = HybridForCausalLM(make_trainer().model.config)
    sampler.load_state_dict(after)
    ids = torch.arange(20)[None]
    assert torch.allclose(sampler(ids).logits, trainer.model(ids).logits, atol=1e-5)


@pytest.mark.parametrize("kind", ["rl", "opd"])
def test_a_step_does_not_depend_on_cuts_ranks_or_merging(kind: str) -> None:
    found = []
    for merge, tokens in (("off", 16), ("on", 64), ("on", 8192)):
        trainer = make_trainer(merge=merge, tokens=tokens)
        trainer.begin(STAGES[kind])
        step(trainer, kind)
        found.append(trainer)
    if kind == "rl":
        drawing = threading.Lock()  # ranks are processes: only here do they share a generator

        def work(trainer: Trainer) -> None:
            with drawing:
                trainer.begin(STAGES[kind])
            step(trainer, kind)

        found += [trainer for trainer, _ in on_ranks(2, work)]
    expected = {n: p.grad for n, p in found[0].model.named_parameters() if p.requires_grad}
    for other in found[1:]:
        for name, parameter in other.model.named_parameters():
            if parameter.requires_grad:
                assert torch.allclose(parameter.grad, expected[name], atol=1e-6, rtol=1e-4), name


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_continues_from_a_checkpoint_that_peft_and_later_stages_can_read(
    tmp_path: Path, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module, "choose_precision", lambda wanted: (getattr(torch, wanted), "as asked")
    )
    trainer = make_trainer(precision)
    base = HybridForCausalLM(trainer.model.config)
    base.load_state_dict(trainer.weights())
    trainer.begin(STAGES["sft"])
    for seed in range(3):
        step(trainer, "sft", seed)
    files = trainer.save(tmp_path / "step-3", {}, {"tokenizer.json": b"{}"})
    assert {"adapter/adapter_model.safetensors", "adapter/adapter_config.json"} <= set(files)

    resumed = make_trainer(precision)
    resumed.begin(STAGES["sft"])
    resumed.load(tmp_path / "step-3")
    for seed in (3, 4):
        step(trainer, "sft", seed)
        step(resumed, "sft", seed)
    for name, weight in resumed.weights().items():
        assert torch.equal(weight, trainer.weights()[name])

    ids = torch.arange(20)[None]
    merged = HybridForCausalLM.from_pretrained(tmp_path / "step-3")
    adapted = PeftModel.from_pretrained(base, tmp_path / "step-3" / "adapter")
    assert torch.allclose(adapted(ids).logits, merged(ids).logits, atol=1e-5)

    resumed.load_weights(tmp_path / "step-3")
    assert torch.equal(resumed.weights()["norm.weight"], merged.norm.weight)
    resumed.begin(SftStage(steps=20, optimizer=FLAT))
    assert all(p.requires_grad for p in resumed.model.parameters())
    assert resumed.weights().keys() == dict(merged.named_parameters()).keys()
    step(resumed, "sft")
    assert not torch.equal(resumed.weights()["embedding.weight"], merged.embedding.weight)


def test_without_new_weights_the_next_stage_goes_on_from_what_adapters_learnt() -> None:
    trainer = make_trainer()
    trainer.begin(STAGES["sft"])
    step(trainer, "sft")
    learnt = trainer.weights()
    trainer.begin(SftStage(steps=20, optimizer=FLAT))
    for name, weight in trainer.weights().items():
        assert torch.allclose(weight, learnt[name], atol=1e-6), name


def test_muon_and_adapters_are_refused_together() -> None:
    stage = {"kind": "sft", "lora": {"rank": 4}}
    _, problems = problems_of({"name": "lora", "stages": [{"kind": "synthesise"}, stage]})
    assert {one.path for one in problems} == {"stages.1.lora", "stages.1.optimizer.kind"}
