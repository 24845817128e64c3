"""QK-Clip in the trainer: the same clip however a batch is cut, and where clipped weights go."""

import logging
import threading
from pathlib import Path

import pytest
import torch

from engine.algorithms.batch import collate
from engine.models.hybrid.watched_logits import watched_logits
from engine.spec import OptimizerSpec, RlStage, SftStage
from engine.training.reinforcement import rl_step
from engine.training.supervised import sft_step
from engine.training.trainer import Trainer
from tests.engine.training.samples import make_groups, make_trainer

TAU = 0.32  # between the largest logits of the small trainers' heads


def stage(tau: float | None = TAU, **fields) -> SftStage:
    optimizer = OptimizerSpec(
        kind="muon", muon_scale="match_rms_adamw", lr=1e-3, warmup_steps=0, decay_share=0.0,
        qk_clip=tau, **fields,
    )  # fmt: skip
    return SftStage(steps=20, batch_size=20, optimizer=optimizer)


def learn(trainer: Trainer, seed: int = 0) -> dict[str, float]:
    return sft_step(trainer, [one for group in make_groups(seed) for one in group])


def largest(trainer: Trainer, seed: int = 0) -> torch.Tensor:
    """[softmax layers, heads] of the whole batch, padded, in one pass of the fp32 weights."""
    batch = collate([one.segments[0] for group in make_groups(seed) for one in group])
    found = torch.full((2, 4), -torch.inf)
    with watched_logits(trainer.model, found, batch.lengths[:, None].expand(batch.ids.shape)):
        trainer.model.hidden(batch.ids)
    return found


def clipped_weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: weight for name, weight in trainer.weights().items() if "qkv_proj" in name}


def assert_clipped_alike(trainers: list[tuple[Trainer, dict[str, float]]]) -> None:
    (first, figures), *others = trainers
    assert figures["qk_clipped_heads"] > 0 and figures["max_logit"] > TAU
    for other, other_figures in others:
        for name in ("max_logit", "qk_clipped_heads"):
            assert other_figures[name] == pytest.approx(figures[name], rel=1e-5)
        for name, weight in clipped_weights(other).items():
            # bf16 products of Newton-Schulz carry the rounding of gradients further
            assert torch.allclose(weight, clipped_weights(first)[name], atol=5e-4), name


def test_the_clip_does_not_depend_on_micro_batches_nor_on_merging() -> None:
    results = []
    for merge, tokens in (("off", 16), ("off", 200), ("on", 64), ("on", 8192)):
        trainer = make_trainer(merge=merge, tokens=tokens)
        trainer.begin(stage())
        before = largest(trainer)
        results.append((trainer, learn(trainer)))
        assert results[-1][1]["max_logit"] == pytest.approx(float(before.max()), rel=1e-5)
        assert results[-1][1]["qk_clipped_heads"] == int((before > TAU).sum()) < 8
    assert_clipped_alike(results)


@pytest.mark.parametrize("merge", ["on", "off"])
def test_the_clip_does_not_depend_on_ranks(merge: str) -> None:
    alone = make_trainer()
    alone.begin(stage())
    expected = learn(alone)
    world = 3
    barrier, lock = threading.Barrier(world), threading.Lock()
    total: list[torch.Tensor] = []

    def all_reduce(tensor: torch.Tensor) -> None:
        with lock:
            total.append(tensor.clone())
        barrier.wait(30)
        tensor.copy_(sum(total))
        barrier.wait(30)
        with lock:
            total.clear()
        barrier.wait(30)

    ranks = [
        make_trainer(merge=merge, rank=r, world=world, all_reduce=all_reduce) for r in range(3)
    ]
    results: dict[int, dict[str, float]] = {}

    def work(rank: int) -> None:
        ranks[rank].begin(stage())
        results[rank] = learn(ranks[rank])

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert_clipped_alike([(alone, expected), *((ranks[r], results[r]) for r in range(world))])
    for rank in ranks[1:]:
        for name, weight in rank.weights().items():
            assert torch.equal(weight, ranks[0].weights()[name])


def test_it_is_the_step_without_the_clip_with_rows_scaled() -> None:
    """After the optimizer's own update: every head above tau by tau / S, others bit by bit."""
    clipped, plain = make_trainer(), make_trainer()
    clipped.begin(stage())
    plain.begin(stage(tau=None))
    gamma = (TAU / largest(plain)).where(largest(plain) > TAU, 1.0)
    assert "max_logit" in learn(clipped) and "max_logit" not in learn(plain)
    layers = sorted(clipped.model.softmax_layers())
    for name, weight in plain.weights().items():
        found = clipped.weights()[name]
        layer = next((at for at in layers if f"layers.{at}.mixer.qkv_proj" in name), None)
        if layer is None:
            assert torch.equal(found, weight), name
            continue
        rows, old = found.view(4, 3, 8, 32), weight.view(4, 3, 8, 32)
        factor = gamma[layers.index(layer)].sqrt()[:, None, None]
        assert torch.equal(rows[:, 2], old[:, 2])
        assert torch.allclose(rows[:, 0], old[:, 0] * factor, rtol=1e-6)
        assert torch.allclose(rows[:, 1], old[:, 1] * factor, rtol=1e-6)


def test_logits_stay_around_tau_over_steps() -> None:
    """The bound is soft: each maximum is measured before the update that it follows."""
    peaks = {}
    for tau in (None, 0.5):
        trainer = make_trainer()
        trainer.begin(
            stage(tau).model_copy(update={"optimizer": stage(tau, muon_lr=0.02).optimizer})
        )
        for _ in range(15):
            learn(trainer)
        peaks[tau] = float(largest(trainer).max())
    assert peaks[0.5] <= 1.25 * 0.5 < peaks[None]


def test_the_copy_that_computes_and_the_sampler_get_clipped_weights() -> None:
    trainer = make_trainer(precision="bfloat16")
    trainer.begin(stage())
    assert learn(trainer)["qk_clipped_heads"] > 0
    weights = trainer.weights()
    for name, copied in trainer.policy.compute.named_parameters():
        assert torch.equal(copied, weights[name].to(copied.dtype)), name


def test_a_step_that_is_left_out_clips_nothing() -> None:
    trainer = make_trainer()
    trainer.begin(stage())
    with torch.no_grad():
        trainer.model.layers[3].mlp.down_proj.weight[0, 0] = torch.nan
    before = trainer.weights()
    figures = learn(trainer)
    assert figures["skipped_update"] == 1 and figures["qk_clipped_heads"] == 0
    for name, weight in clipped_weights(trainer).items():
        assert torch.equal(weight, before[name])


def test_a_resumed_stage_goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    whole, resumed = make_trainer(), make_trainer()
    whole.begin(stage())
    learn(whole, 0)
    whole.save(tmp_path / "c", {}, {})
    figures = learn(whole, 1)
    resumed.begin(stage())
    resumed.load(tmp_path / "c")
    assert learn(resumed, 1) == figures and figures["qk_clipped_heads"] > 0
    for name, weight in resumed.weights().items():
        assert torch.equal(weight, whole.weights()[name]), name


def test_every_update_of_a_step_clips_and_the_critic_has_its_own() -> None:
    trainer = make_trainer()
    rl = RlStage(algorithm="ppo", steps=20, minibatches=2, optimizer=stage().optimizer)
    critic = rl.critic.model_copy(update={"optimizer": stage().optimizer})
    before = clipped_weights(trainer)
    trainer.begin(rl.model_copy(update={"critic": critic}))
    figures = rl_step(trainer, make_groups())
    assert figures["max_logit"] > TAU and 0 < figures["qk_clipped_heads"] < 8
    assert trainer.critic is not None
    critics = trainer.critic.tensors()["critic"]
    assert all(
        float(critics[name].norm()) < float(weight.norm()) for name, weight in before.items()
    )


def test_it_says_which_layers_it_watches(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        make_trainer().begin(stage(tau=100.0))
    assert "attention logits of 2 of 4 layers at 100; the others are lightning" in caplog.text
