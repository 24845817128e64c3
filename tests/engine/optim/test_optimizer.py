"""The stage optimizer against plain torch optimizers, and its state through a file."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
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


def moonlight(
    gradients: list[torch.Tensor], weight: torch.Tensor, rate: float, decay: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and last update of 2502.16982, algorithm 1, in fp64 and element by element naive.

    M <- mu M + G, O = Newton-Schulz(G + mu M) 0.2 sqrt(max(rows, columns)), W <- W - lr (O + d W).
    """
    weight, momentum = weight.double(), torch.zeros_like(weight, dtype=torch.float64)
    update = torch.zeros_like(momentum)
    for gradient in gradients:
        momentum = 0.95 * momentum + gradient.double()
        x = gradient.double() + 0.95 * momentum
        x = x / x.norm()
        for _ in range(5):  # of singular values: a s + b s^3 + c s^5
            u, s, vh = torch.linalg.svd(x, full_matrices=False)
            x = u @ torch.diag(3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5) @ vh
        update = x * 0.2 * math.sqrt(max(weight.shape))
        weight = weight - rate * (update + decay * weight)
    return weight, update


@given(
    rows=st.integers(6, 40),
    columns=st.integers(6, 40),
    seed=st.integers(0, 99),
    warmed=st.booleans(),
)
@settings(max_examples=25)
def test_match_rms_adamw_is_moonlights_rule(
    rows: int, columns: int, seed: int, warmed: bool
) -> None:
    """By direction and size: bf16 products let single elements differ by percents."""
    generator = torch.Generator().manual_seed(seed)
    weight = nn.Parameter(torch.randn(rows, columns, generator=generator))
    spec = OptimizerSpec(
        kind="muon", lr=1e-2, muon_scale="match_rms_adamw", weight_decay=0.1, warmup_steps=0,
        decay_share=0.0, clip_norm=1e9,
    )  # fmt: skip
    gradients = [torch.randn(rows, columns, generator=generator) for _ in range(1 + 2 * warmed)]
    expected, update = moonlight(gradients, weight.detach(), 1e-2, 0.1)
    start = weight.detach().clone()
    optimizer = StageOptimizer({"w": weight}, spec, 10, {}, frozenset())
    for gradient in gradients:
        before = weight.detach().clone()
        weight.grad = gradient.clone()
        optimizer.step()
    moved, wanted = weight.detach().double() - start, expected - start
    assert float(torch.cosine_similarity(moved.flatten(), wanted.flatten(), dim=0)) > 0.999
    assert float(moved.norm() / wanted.norm()) == pytest.approx(1, abs=0.03)
    step = (before - weight.detach()) / 1e-2 - 0.1 * before
    assert float(step.square().mean().sqrt()) == pytest.approx(
        float(update.square().mean().sqrt()), rel=0.03
    )


@pytest.mark.parametrize("shape", [(256, 256), (256, 64), (64, 256), (384, 128)])
def test_match_rms_adamw_moves_matrices_as_far_as_adamw(shape: tuple[int, int]) -> None:
    """0.2 nominally; Newton-Schulz leaves singular values between 0.68 and 1.13."""
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.zeros(shape))
    spec = OptimizerSpec(
        kind="muon", lr=1e-2, muon_scale="match_rms_adamw", warmup_steps=0, decay_share=0.0
    )
    weight.grad = torch.randn(shape, generator=generator)
    StageOptimizer({"w": weight}, spec, 10, {}, frozenset()).step()
    assert 0.15 <= float((weight.detach() / 1e-2).square().mean().sqrt()) <= 0.25


def test_the_rate_of_matrices_goes_with_their_scale() -> None:
    assert OptimizerSpec(kind="muon", lr=1e-3).matrix_lr == 0.02
    assert OptimizerSpec(kind="muon", lr=1e-3, muon_scale="match_rms_adamw").matrix_lr == 1e-3
    assert OptimizerSpec(kind="muon", muon_lr=0.1, muon_scale="match_rms_adamw").matrix_lr == 0.1


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


def test_adamw_alone_moves_everything_as_torchs_does() -> None:
    named, twin = parameters(), parameters()
    spec = MUON.model_copy(update={"kind": "adamw"})
    optimizer = build(named, spec)
    gain = twin.pop("gain")
    oracle = torch.optim.AdamW(
        [{"params": [*twin.values()]}, {"params": [gain], "weight_decay": 0.0}],
        lr=spec.lr,
        betas=spec.betas,
        weight_decay=spec.weight_decay,
    )
    for seed in range(3):
        fill_gradients(named, seed)
        for name, one in [*twin.items(), ("gain", gain)]:
            gradient = named[name].grad
            assert gradient is not None
            one.grad = gradient.clone()
        optimizer.step()
        oracle.step()
    assert torch.allclose(named["gain"], gain)
    assert all(torch.allclose(named[name], one) for name, one in twin.items())


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
