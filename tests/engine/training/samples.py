"""Small trainers and the groups of trajectories that they are tested on."""

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.models.hybrid import HybridConfig
from engine.records.trajectory import Reward, Segment, StopReason, Trajectory
from engine.spec import (
    ExperimentSpec,
    ModelSpec,
    OptimizerSpec,
    RlStage,
    SftStage,
    SynthesiseStage,
    TrainerSpec,
)
from engine.training.trainer import Trainer

VOCABULARY = 40
FLAT = OptimizerSpec(kind="adamw", lr=1e-3, warmup_steps=0, decay_share=0.0, clip_norm=1e9)
SFT = SftStage(steps=20, batch_size=8, optimizer=FLAT)
RL = RlStage(steps=20, optimizer=FLAT)
MUON = SftStage(steps=20, batch_size=8)


def make_trainer(
    precision: str = "float32", merge: str = "auto", tokens: int = 2048, experts: int = 1, **ranks
) -> Trainer:
    """With several experts there is a balancing loss, too."""
    mixed = {"experts": experts, "router_aux_weight": 0.5} if experts > 1 else {}
    spec = ExperimentSpec(
        name="small",
        model=ModelSpec(width=32, heads=4, mlp_width=48, **mixed),
        stages=[SynthesiseStage()],
        trainer=TrainerSpec(precision=precision, tree_merge=merge, pack_tokens=tokens),
    )
    return Trainer(spec, HybridConfig.from_spec(spec.model, VOCABULARY, 0, 1), **ranks)


def make_trajectory(
    rng: random.Random, group: str, reward: float | None = 1.0, forks_from: Trajectory | None = None
) -> Trajectory:
    """`forks_from`: its ids up to some token are the first of this one."""
    size = rng.randint(4, 30)
    mask = [place > 1 and rng.random() < 0.6 for place in range(size)]
    mask[-1] = True
    ids = [rng.randrange(VOCABULARY) for _ in range(size)]
    if forks_from is not None:
        shared = forks_from.segments[0].ids[: rng.randint(1, size)]
        ids[: len(shared)] = shared
    return Trajectory(
        id="t",
        task_id="t",
        group_id=group,
        category="3 hops",
        prompt="",
        answer="",
        segments=[
            Segment(
                ids,
                mask,
                [-rng.uniform(1, 6) if sampled else 0.0 for sampled in mask],
                [0 if sampled else -1 for sampled in mask],
            )
        ],
        steps=[],
        stop_reason=StopReason.ANSWERED,
        reward=Reward(reward, reward is not None),
        success=reward == 1.0,
        worker="w",
        started_at="",
        duration_s=1.0,
        sampled_tokens=sum(mask),
    )


def make_groups(seed: int = 0, groups: int = 5, size: int = 4) -> list[list[Trajectory]]:
    """Members of a group share a beginning, as rollouts of one prompt do."""
    rng = random.Random(seed)
    made: list[list[Trajectory]] = []
    for g in range(groups):
        made.append([])
        for i in range(size):
            fork = rng.choice(made[g]) if i else None
            made[g].append(make_trajectory(rng, f"g{g}", float((i + g) % 3 == 0), fork))
    return made


def gradients(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in trainer.model.named_parameters()}


def assert_same(trainers: list[tuple[Trainer, dict[str, float]]]) -> None:
    (first, figures), *others = trainers
    for other, other_figures in others:
        assert _of_the_loss(other_figures) == pytest.approx(
            _of_the_loss(figures), rel=1e-4, abs=1e-5
        )
        expected = gradients(first)
        for name, gradient in gradients(other).items():
            assert torch.allclose(gradient, expected[name], atol=1e-6, rtol=1e-4), name


def _of_the_loss(figures: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if not name.startswith("tree_")}


def on_ranks(
    world: int, work: Callable[[Trainer], Any], **trainer: Any
) -> list[tuple[Trainer, Any]]:
    """Trainers of `world` ranks, and what `work` returned for each on a thread of its own."""
    barrier, lock = threading.Barrier(world), threading.Lock()
    given: list[torch.Tensor] = []
    results: dict[int, Any] = {}

    def all_reduce(tensor: torch.Tensor) -> None:
        with lock:
            given.append(tensor.clone())
        barrier.wait(30)
        tensor.copy_(sum(given))
        if barrier.wait(30) == 0:
            given.clear()
        barrier.wait(30)

    ranks = [
        make_trainer(rank=rank, world=world, all_reduce=all_reduce, **trainer)
        for rank in range(world)
    ]

    def run(rank: int) -> None:
        results[rank] = work(ranks[rank])

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [(ranks[rank], results[rank]) for rank in range(world)]
