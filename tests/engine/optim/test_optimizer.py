"""The stage optimizer against plain torch optimizers, and its state through a file."""

import math

import pytest
import torch
from torch import nn

from engine.optim.optimizer import StageOptimizer
from engine.optim.schedule import learning_rate_factor
from engine.spec import OptimizerSpec

MUON = OptimizerSpec(
    kind="muon", lr=1e-3, muon_lr=0.02, warmup_steps=0, decay_share=0.0, clip_norm=1e9
)


def parameters(seed: int = 0) -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"embedding": (10, 8), "qkv": (24, 8), "out": (8, 8), "gain": (8,), "conv": (3, 2, 8)}
    return {
        name: nn.Parameter(torch.randn(shape, generator=generator))
        for name, shape in shapes.items()
    }


def fill_gradients(named: dict[str, nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in named.values():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def build(named: dict[str, nn.Parameter], spec: OptimizerSpec, steps: int = 10) -> StageOptimizer:
    return StageOptimizer(named, spec, steps, {"qkv": (2, (1, 1, 1))}, frozenset(["embedding"]))


def test_muon_sees_each_part_of_a_fused_matrix_alone() -> None:
    """Interleaved as [head, (q, k, v), 4 rows]: torch's Muon on the six-row parts is the oracle."""
    named = parameters()
    fused = named["qkv"].detach().clone().view(2, 3, 4, 8)
    alone = [nn.Parameter(fused[:, part].flatten(0, 1).clone()) for part in range(3)]
    oracle = torch.optim.Muon(alone, lr=0.02, weight_decay=MUON.weight_decay)
    optimizer = build(named, MUON)
    for seed in range(3):
        fill_gradients(named, seed)
        gradient = named["qkv"].grad
        assert gradient is not None
        for part, piece in enumerate(alone):
            piece.grad = gradient.view(2, 3, 4, 8)[:, part].flatten(0, 1)
        optimizer.step()
        oracle.step()
    result = named["qkv"].detach().view(2, 3, 4, 8)
    for part, piece in enumerate(alone):
        assert torch.allclose(result[:, part].flatten(0, 1), piece, atol=1e-6)


def test_muon_sees_experts_and_shared_keys_alone() -> None:
    """Against torch's Muon: 2 groups of 2 queries, a key, a value; 3 experts with gate and up."""
    shapes = {"gqa": (2 * 4 * 3, 8), "experts": (3, 2 * 5, 8)}
    generator = torch.Generator().manual_seed(0)
    named = {
        name: nn.Parameter(torch.randn(shape, generator=generator))
        for name, shape in shapes.items()
    }

    def parts(gqa: torch.Tensor, experts: torch.Tensor) -> list[torch.Tensor]:
        heads = gqa.view(2, 4, 3, 8)
        shared = [heads[:, :2], heads[:, 2], heads[:, 3]]
        gates = [half for expert in experts for half in (expert[:5], expert[5:])]
        return [part.reshape(-1, 8).clone() for part in (*shared, *gates)]

    alone = [nn.Parameter(part) for part in parts(named["gqa"].detach(), named["experts"].detach())]
    oracle = torch.optim.Muon(alone, lr=0.02, weight_decay=MUON.weight_decay)
    fused = {"gqa": (2, (2, 1, 1)), "experts": (1, (1, 1) * 3)}
    optimizer = StageOptimizer(named, MUON, 10, fused, frozenset())
    for seed in range(2):
        fill_gradients(named, seed)
        for piece, gradient in zip(
            alone, parts(named["gqa"].grad, named["experts"].grad), strict=True
        ):
            piece.grad = gradient
        optimizer.step()
        oracle.step()
    result = parts(named["gqa"].detach(), named["experts"].detach())
    for part, piece in zip(result, alone, strict=True):
        assert torch.allclose(part, piece, atol=1e-6)


def test_embeddings_gains_and_convolutions_stay_with_adamw() -> None:
    named, twin = parameters(), parameters()
    optimizer = build(named, MUON)
    rest = [twin[name] for name in ("embedding", "conv")]
    oracle = torch.optim.AdamW(
        [{"params": rest}, {"params": [twin["gain"]], "weight_decay": 0.0}],
        lr=MUON.lr,
        betas=MUON.betas,
        weight_decay=MUON.weight_decay,
    )
    for seed in range(3):
        fill_gradients(named, seed)
        fill_gradients(twin, seed)
        optimizer.step()
        oracle.step()
    for name in ("embedding", "conv", "gain"):
        assert torch.allclose(named[name], twin[name])
    assert not torch.allclose(named["out"], twin["out"])


def test_gradients_are_clipped_to_the_norm_that_is_reported() -> None:
    named = parameters()
    spec = OptimizerSpec(kind="adamw", clip_norm=0.5)
    fill_gradients(named, 0)
    norm = math.sqrt(
        sum(float(p.grad.square().sum()) for p in named.values() if p.grad is not None)
    )
    assert build(named, spec).step()["grad_norm"] == pytest.approx(norm, rel=1e-5)
    after = sum(float(p.grad.square().sum()) for p in named.values() if p.grad is not None)
    assert math.sqrt(after) == pytest.approx(0.5, rel=1e-4)


def test_a_gradient_that_is_not_finite_changes_nothing_and_says_so() -> None:
    named = parameters()
    before = {name: p.detach().clone() for name, p in named.items()}
    optimizer = build(named, MUON)
    fill_gradients(named, 0)
    named["out"].grad[0, 0] = torch.nan
    assert optimizer.step()["skipped_update"] == 1.0
    assert all(torch.equal(named[name], before[name]) for name in named)
    assert optimizer.finished_steps == 1


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_it_continues_from_its_tensors_as_if_never_stopped(kind: str) -> None:
    spec = OptimizerSpec(kind=kind, warmup_steps=3, decay_share=0.5)
    named = parameters()
    optimizer = build(named, spec)
    for seed in range(4):
        fill_gradients(named, seed)
        optimizer.step()
    copies = {name: nn.Parameter(p.detach().clone()) for name, p in named.items()}
    resumed = build(copies, spec)
    resumed.load_tensors({k: v.clone() for k, v in optimizer.tensors().items()})
    for seed in range(4, 8):
        for one, group in ((optimizer, named), (resumed, copies)):
            fill_gradients(group, seed)
            one.step()
    assert resumed.finished_steps == 8
    assert all(torch.equal(named[name], copies[name]) for name in named)


def test_the_rate_warms_up_holds_and_decays_to_zero() -> None:
    factors = [learning_rate_factor(step, 10, 4, 0.5) for step in range(10)]
    assert factors == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])
    assert learning_rate_factor(0, 1, 0, 0.0) == 1.0
    with pytest.raises(ValueError, match="step 10"):
        learning_rate_factor(10, 10, 0, 0.5)
