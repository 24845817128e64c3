"""The trainer: the laws of the loss, what a step does, and checkpoints."""

import json
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch

from engine.models.hybrid import HybridConfig
from engine.models.logprobs import token_logprobs
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
from engine.spec.algorithms import Preset
from engine.training import trainer as module
from engine.training.checkpoint import CheckpointError
from engine.training.trainer import Trainer

VOCABULARY = 40
FLAT = OptimizerSpec(kind="adamw", lr=1e-3, warmup_steps=0, decay_share=0.0, clip_norm=1e9)
SFT = SftStage(steps=20, batch_size=8, optimizer=FLAT)
RL = RlStage(steps=20, optimizer=FLAT)
MUON = SftStage(steps=20, batch_size=8)


def make_trainer(
    precision: str = "float32", merge: str = "auto", tokens: int = 2048, **ranks
) -> Trainer:
    spec = ExperimentSpec(
        name="small",
        model=ModelSpec(width=32, heads=4, mlp_width=48),
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


@pytest.mark.parametrize("algorithm", get_args(Preset))
def test_the_loss_does_not_depend_on_micro_batches_nor_on_merging(algorithm: Preset) -> None:
    results = []
    for merge, tokens in (("off", 16), ("off", 200), ("on", 64), ("on", 8192)):
        trainer = make_trainer(merge=merge, tokens=tokens)
        trainer.begin(RlStage(algorithm=algorithm, steps=20, optimizer=FLAT))
        results.append((trainer, trainer.rl_step(make_groups())))
    assert_same(results)


@pytest.mark.parametrize("merge", ["on", "off"])
@pytest.mark.parametrize("world", [2, 3])
def test_the_loss_does_not_depend_on_ranks(world: int, merge: str) -> None:
    alone = make_trainer()
    alone.begin(RL)
    expected = alone.rl_step(make_groups())

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

    ranks = [
        make_trainer(merge=merge, rank=r, world=world, all_reduce=all_reduce) for r in range(world)
    ]
    results: dict[int, dict[str, float]] = {}

    def work(rank: int) -> None:
        ranks[rank].begin(RL)
        results[rank] = ranks[rank].rl_step(make_groups())

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert_same([(alone, expected), *((ranks[r], results[r]) for r in range(world))])
    for rank in ranks:
        for name, weight in rank.weights().items():
            assert torch.equal(weight, ranks[0].weights()[name])


@pytest.mark.parametrize("algorithm", get_args(Preset))
def test_the_loss_does_not_depend_on_the_order_of_groups_and_members(algorithm: Preset) -> None:
    results = []
    for shuffled in (False, True):
        groups = make_groups()
        if shuffled:
            random.Random(1).shuffle(groups)
            for group in groups:
                random.Random(2).shuffle(group)
        trainer = make_trainer()
        trainer.begin(RlStage(algorithm=algorithm, steps=20, optimizer=FLAT))
        results.append((trainer, trainer.rl_step(groups)))
    assert_same(results)


def test_what_the_environment_wrote_never_enters() -> None:
    """Log-probs and versions of masked tokens may be anything."""
    results = []
    for poison in (0.0, 1e6, float("nan")):
        groups = make_groups()
        for group in groups:
            for one in group:
                segment = one.segments[0]
                segment.logprobs = [
                    value if sampled else poison
                    for value, sampled in zip(segment.logprobs, segment.loss_mask, strict=True)
                ]
                segment.versions = [v if v >= 0 else 10**6 for v in segment.versions]
        trainer = make_trainer()
        trainer.begin(RL)
        results.append((trainer, trainer.rl_step(groups)))
    assert_same(results)


def test_one_rl_step_has_the_gradient_of_the_formula() -> None:
    trainer, groups = make_trainer(), make_groups()
    model = trainer.model
    trainer.begin(RL)
    rewards = torch.tensor([[one.reward.value for one in group] for group in groups])
    advantages = rewards - rewards.mean(1, keepdim=True)
    advantages /= rewards.std(1, keepdim=True) + 1e-6
    loss, tokens = torch.zeros(()), 0
    for group, row in zip(groups, advantages, strict=True):
        for one, advantage in zip(group, row, strict=True):
            segment = one.segments[0]
            ids, mask = torch.tensor(segment.ids), torch.tensor(segment.loss_mask)[1:]
            log_p = torch.log_softmax(model(ids[None]).logits[0, :-1], dim=-1)
            log_p = log_p.gather(1, ids[1:, None])[mask, 0]
            behaviour = torch.tensor(segment.logprobs)[1:][mask]
            weight = (log_p.detach() - behaviour).exp().clamp(max=5.0)
            loss = loss - (weight * advantage * log_p).sum()
            tokens += int(mask.sum())
    (loss / tokens).backward()
    expected = gradients(trainer)
    figures = trainer.rl_step(groups)
    assert figures["loss"] == pytest.approx(float(loss.detach() / tokens), rel=1e-4)
    assert figures["loss_tokens"] == tokens
    for name, gradient in gradients(trainer).items():
        assert torch.allclose(gradient, expected[name], atol=1e-6, rtol=1e-4), name


def test_grpo_has_the_gradient_of_the_formula() -> None:
    """Each trajectory's clipped surrogate is averaged over its tokens, then over trajectories."""
    trainer, groups = make_trainer(), make_groups()
    trainer.begin(RlStage(algorithm="grpo", steps=20, optimizer=FLAT))
    rewards = torch.tensor([[one.reward.value for one in group] for group in groups])
    advantages = rewards - rewards.mean(1, keepdim=True)
    advantages /= rewards.std(1, keepdim=True) + 1e-6
    parts, clipped, tokens = [], 0, 0
    for group, row in zip(groups, advantages, strict=True):
        for one, advantage in zip(group, row, strict=True):
            segment = one.segments[0]
            ids, mask = torch.tensor(segment.ids), torch.tensor(segment.loss_mask)[1:]
            log_p = torch.log_softmax(trainer.model(ids[None]).logits[0, :-1], dim=-1)
            log_p = log_p.gather(1, ids[1:, None])[mask, 0]
            ratio = (log_p - torch.tensor(segment.logprobs)[1:][mask]).exp()
            bounded = ratio.clamp(0.8, 1.2) * advantage
            parts.append(-torch.minimum(ratio * advantage, bounded).mean())
            clipped += int((bounded < ratio * advantage).sum())
            tokens += len(ratio)
    loss = torch.stack(parts).mean()
    loss.backward()
    expected = gradients(trainer)
    figures = trainer.rl_step(groups)
    assert figures["loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
    assert figures["clip_fraction"] == pytest.approx(clipped / tokens)
    for name, gradient in gradients(trainer).items():
        assert torch.allclose(gradient, expected[name], atol=1e-6, rtol=1e-4), name


def test_an_episode_that_broke_under_the_policy_teaches_nothing() -> None:
    results = []
    for broken in (False, True):
        groups = make_groups()
        one = groups[0][1]
        if broken:
            one.stop_reason, one.reward = StopReason.INFRA_ERROR, Reward(0.0, True)
        else:
            one.reward = Reward(None, False)
        trainer = make_trainer()
        trainer.begin(RL)
        results.append((trainer, trainer.rl_step(groups)))
    assert_same(results)


def test_gspo_refuses_trajectories_in_several_segments() -> None:
    groups = make_groups()
    for one in groups[0]:
        one.segments.append(one.segments[0])
    trainer = make_trainer()
    trainer.begin(RlStage(algorithm="gspo", steps=20, optimizer=FLAT))
    with pytest.raises(ValueError, match="4 segments of this batch continue a trajectory"):
        trainer.rl_step(groups)


def test_merging_is_left_alone_where_it_would_save_little() -> None:
    """auto: groups that share much are merged, samples that share nothing are not."""
    rng = random.Random(0)
    ratios = {}
    for merge in ("auto", "on", "off"):
        for shares in (True, False):
            group = [make_trajectory(rng, "g", float(i % 2)) for i in range(6)]
            if shares:
                for one in group:
                    one.segments[0] = replace(group[0].segments[0])
            trainer = make_trainer(merge=merge)
            trainer.begin(RL)
            ratios[merge, shares] = trainer.rl_step([group]).get("tree_token_ratio")
    assert ratios["auto", True] == ratios["on", True] == pytest.approx(6)
    assert ratios["auto", False] == 1 <= ratios["on", False] < 1.25
    assert ratios["off", True] is None


def test_groups_that_teach_nothing_are_left_out() -> None:
    groups = make_groups()
    rng = random.Random(9)
    flat = [[make_trajectory(rng, "flat", 1.0) for _ in range(4)]]
    broken = [[make_trajectory(rng, "broken", None) for _ in range(4)]]
    results = []
    for extra in ([], flat + broken):
        trainer = make_trainer()
        trainer.begin(RL)
        results.append((trainer, trainer.rl_step(groups + extra)))
    assert results[1][1]["zero_variance_share"] == pytest.approx(2 / 7)
    assert results[1][1]["invalid_reward_share"] == pytest.approx(4 / 28)
    for name in ("loss", "loss_tokens", "grad_norm"):
        assert results[0][1][name] == pytest.approx(results[1][1][name])


def test_a_batch_without_any_difference_makes_no_update() -> None:
    trainer = make_trainer()
    trainer.begin(RL)
    before = trainer.weights()
    rng = random.Random(0)
    figures = trainer.rl_step([[make_trajectory(rng, "g", 1.0) for _ in range(4)]])
    assert figures["zero_variance_share"] == 1.0 and "loss" not in figures
    assert (trainer.version, trainer.step) == (0, 1)
    assert all(torch.equal(before[name], weight) for name, weight in trainer.weights().items())


def test_staleness_is_exact_and_never_negative() -> None:
    trainer, groups = make_trainer(), make_groups()
    trainer.begin(RL)
    trainer.version = 5
    for one in groups[0]:
        one.segments[0].versions = [3 if v >= 0 else -1 for v in one.segments[0].versions]
    for one in groups[1]:
        one.segments[0].versions = [5 if v >= 0 else -1 for v in one.segments[0].versions]
    figures = trainer.rl_step(groups[:2])
    counts = [sum(sum(one.segments[0].loss_mask) for one in group) for group in groups[:2]]
    assert figures["staleness_max"] == 2
    assert figures["staleness_mean"] == pytest.approx(2 * counts[0] / sum(counts))
    assert trainer.version == 6
    for one in groups[0]:
        one.segments[0].versions = [7 if v >= 0 else -1 for v in one.segments[0].versions]
    with pytest.raises(ValueError, match="does not exist yet"):
        trainer.rl_step(groups[:2])


def test_repeated_steps_make_what_was_rewarded_likelier() -> None:
    trainer, groups = make_trainer(), make_groups()
    trainer.begin(RL)

    def logprob(one: Trajectory) -> float:
        segment = one.segments[0]
        ids, mask = torch.tensor(segment.ids), torch.tensor(segment.loss_mask)[1:]
        hidden = trainer.model.hidden(ids[None])[0, :-1]
        values = token_logprobs(hidden, trainer.model.embedding.weight, ids[1:]).logprobs
        return float(values[mask].mean())

    good = [one for group in groups for one in group if one.reward.value == 1.0]
    bad = [one for group in groups for one in group if one.reward.value == 0.0]
    before = sum(map(logprob, good)), sum(map(logprob, bad))
    for _ in range(5):
        trainer.rl_step(groups)
    assert sum(map(logprob, good)) > before[0]
    assert sum(map(logprob, bad)) < before[1]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_sft_learns_its_demonstrations_by_heart(
    monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    monkeypatch.setattr(
        module, "choose_precision", lambda wanted: (getattr(torch, wanted), "as asked")
    )
    trainer = make_trainer(precision)
    rng = random.Random(0)
    shown = [make_trajectory(rng, "g") for _ in range(8)]
    trainer.begin(SftStage(steps=60, batch_size=8, optimizer=MUON.optimizer))
    losses = [trainer.sft_step(shown)["loss"] for _ in range(60)]
    assert losses[-1] < losses[0] - 2
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters())


def test_sft_and_rl_take_the_mean_over_tokens_of_the_whole_step() -> None:
    trainer = make_trainer()
    rng = random.Random(0)
    shown = [make_trajectory(rng, "g") for _ in range(8)]
    trainer.begin(SFT)
    total = count = 0.0
    for one in shown:
        segment = one.segments[0]
        ids, mask = torch.tensor(segment.ids), torch.tensor(segment.loss_mask)[1:]
        log_p = torch.log_softmax(trainer.model(ids[None]).logits[0, :-1], dim=-1)
        total -= float(log_p.gather(1, ids[1:, None])[mask].sum().detach())
        count += int(mask.sum())
    assert trainer.sft_step(shown)["loss"] == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize("stage", [RL, MUON], ids=["rl", "sft"])
def test_it_continues_from_a_checkpoint_as_if_never_stopped(tmp_path: Path, stage) -> None:
    def step(trainer: Trainer, seed: int) -> None:
        if stage is RL:
            trainer.rl_step(make_groups(seed))
        else:
            trainer.sft_step([one for group in make_groups(seed) for one in group])

    trainer = make_trainer()
    trainer.begin(stage)
    for seed in range(3):
        step(trainer, seed)
    folder = tmp_path / "checkpoints" / "step-3"
    files = trainer.save(folder, {"stage": 2}, {"tokenizer.json": b"{}"})
    assert {path.name for path in folder.iterdir()} == set(files)
    assert set(files) >= {"config.json", "model.safetensors", "tokenizer.json", "caravan.json"}
    assert all(entry["size"] == (folder / name).stat().st_size for name, entry in files.items())

    resumed = make_trainer()
    resumed.begin(stage)
    meta = resumed.load(folder)
    assert (meta["stage"], meta["step"], resumed.step, resumed.version) == (2, 3, 3, 3)
    for seed in range(3, 6):
        step(trainer, seed)
        step(resumed, seed)
    for name, weight in resumed.weights().items():
        assert torch.equal(weight, trainer.weights()[name])


def test_a_damaged_or_half_written_checkpoint_is_refused(tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.begin(SFT)
    folder = tmp_path / "step-0"
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        trainer.load(folder)
    trainer.save(folder, {}, {})
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match="differs from its recorded hash"):
        trainer.load(folder)
    weights.unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        trainer.load(folder)


def test_saving_again_replaces_the_folder_as_a_whole(tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.begin(SFT)
    folder = tmp_path / "step"
    trainer.save(folder, {}, {"old.txt": b"old"})
    trainer.save(folder, {}, {"new.txt": b"new"})
    assert not (folder / "old.txt").exists() and (folder / "new.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["step"]
    assert json.loads((folder / "caravan.json").read_text())["version"] == 0


def test_steps_need_a_stage_of_their_kind() -> None:
    trainer = make_trainer()
    with pytest.raises(RuntimeError, match="call begin first"):
        trainer.sft_step([make_trajectory(random.Random(0), "g")])
    trainer.begin(SFT)
    with pytest.raises(RuntimeError, match="stage of kind rl"):
        trainer.rl_step(make_groups())


def test_equal_seeds_give_equal_weights_and_leave_torchs_own_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second = make_trainer().weights(), make_trainer().weights()
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(first[name], second[name]) for name in first)
