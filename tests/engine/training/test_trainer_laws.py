"""The laws of the loss: no cut, order or rank changes it; what enters it, and what does not."""

import random
from dataclasses import replace
from typing import get_args

import pytest
import torch

from engine.records.trajectory import Reward, StopReason
from engine.spec import (
    RlStage,
)
from engine.spec.algorithms import Preset
from engine.training.reinforcement import rl_step
from engine.training.trainer import Trainer
from tests.engine.training.samples import (
    FLAT,
    RL,
    assert_same,
    gradients,
    make_groups,
    make_trainer,
    make_trajectory,
    on_ranks,
)


@pytest.mark.parametrize("algorithm", get_args(Preset))
def test_the_loss_does_not_depend_on_micro_batches_nor_on_merging(algorithm: Preset) -> None:
    results = []
    for merge, tokens in (("off", 16), ("off", 200), ("on", 64), ("on", 8192)):
        trainer = make_trainer(merge=merge, tokens=tokens)
        trainer.begin(RlStage(algorithm=algorithm, steps=20, optimizer=FLAT))
        results.append((trainer, rl_step(trainer, make_groups())))
    assert_same(results)


@pytest.mark.parametrize("merge", ["on", "off"])
@pytest.mark.parametrize("world", [2, 3])
def test_the_loss_does_not_depend_on_ranks(world: int, merge: str) -> None:
    alone = make_trainer()
    alone.begin(RL)
    expected = rl_step(alone, make_groups())

    def step(trainer: Trainer) -> dict[str, float]:
        trainer.begin(RL)
        return rl_step(trainer, make_groups())

    results = on_ranks(world, step, merge=merge)
    assert_same([(alone, expected), *results])
    ranks = [trainer for trainer, _ in results]
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
        results.append((trainer, rl_step(trainer, groups)))
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
        results.append((trainer, rl_step(trainer, groups)))
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
    figures = rl_step(trainer, groups)
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
    figures = rl_step(trainer, groups)
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
        results.append((trainer, rl_step(trainer, groups)))
    assert_same(results)


@pytest.mark.parametrize("tokens", [16, 8192])
def test_gspo_has_one_ratio_for_a_trajectory_in_several_segments(tokens: int) -> None:
    """As if they stood in one row: the same value and the same gradient."""
    groups = make_groups()
    for group in groups:
        for one in group:
            one.segments.append(make_trajectory(random.Random(3), "other").segments[0])
    trainer = make_trainer(tokens=tokens)
    trainer.begin(RlStage(algorithm="gspo", steps=20, optimizer=FLAT))
    model, parts = trainer.model, []
    for group in groups:
        rewards = torch.tensor([one.reward.value for one in group])
        for one, advantage in zip(
            group, (rewards - rewards.mean()) / (rewards.std() + 1e-6), strict=True
        ):
            ratios = []
            for segment in one.segments:
                ids, mask = torch.tensor(segment.ids), torch.tensor(segment.loss_mask)[1:]
                log_p = torch.log_softmax(model(ids[None]).logits[0, :-1], dim=-1)
                log_p = log_p.gather(1, ids[1:, None])[mask, 0]
                ratios.append(log_p - torch.tensor(segment.logprobs)[1:][mask])
            ratio = torch.cat(ratios).mean().exp()
            bounded = ratio.clamp(1 - 3e-4, 1 + 4e-4) * advantage
            parts.append(-torch.minimum(ratio * advantage, bounded))
    loss = torch.stack(parts).mean()
    loss.backward()
    expected = gradients(trainer)
    figures = rl_step(trainer, groups)
    assert figures["loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
    for name, gradient in gradients(trainer).items():
        assert torch.allclose(gradient, expected[name], atol=1e-6, rtol=1e-3), name


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
            ratios[merge, shares] = rl_step(trainer, [group]).get("tree_token_ratio")
    assert ratios["auto", True] == ratios["on", True] == pytest.approx(6)
    assert ratios["auto", False] == 1 <= ratios["on", False] < 1.25
    assert ratios["off", True] is None


def test_broken_episodes_are_left_out_and_equal_rewards_weigh_in_the_mean() -> None:
    groups = make_groups()
    rng = random.Random(9)
    flat = [[make_trajectory(rng, "flat", 1.0) for _ in range(4)]]
    broken = [[make_trajectory(rng, "broken", None) for _ in range(4)]]
    found = {}
    for name, extra in (("", []), ("broken", broken), ("flat", flat)):
        trainer = make_trainer()
        trainer.begin(RL)
        found[name] = rl_step(trainer, groups + extra)
    assert found["broken"]["zero_variance_share"] == pytest.approx(1 / 6)
    assert found["broken"]["invalid_reward_share"] == pytest.approx(4 / 24)
    for name in ("loss", "loss_tokens", "grad_norm"):
        assert found["broken"][name] == pytest.approx(found[""][name])
    assert found["flat"]["zero_variance_share"] == pytest.approx(1 / 6)
    learned = found[""]["loss_tokens"]
    share = learned / (learned + sum(sum(one.segments[0].loss_mask) for one in flat[0]))
    for name in ("loss", "grad_norm"):
        assert found["flat"][name] == pytest.approx(share * found[""][name], rel=1e-5)


def test_a_batch_without_any_difference_makes_no_update() -> None:
    trainer = make_trainer()
    trainer.begin(RL)
    before = trainer.weights()
    rng = random.Random(0)
    figures = rl_step(trainer, [[make_trajectory(rng, "g", 1.0) for _ in range(4)]])
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
    figures = rl_step(trainer, groups[:2])
    counts = [sum(sum(one.segments[0].loss_mask) for one in group) for group in groups[:2]]
    assert figures["staleness_max"] == 2
    assert figures["staleness_mean"] == pytest.approx(2 * counts[0] / sum(counts))
    assert trainer.version == 6
    for one in groups[0]:
        one.segments[0].versions = [7 if v >= 0 else -1 for v in one.segments[0].versions]
    with pytest.raises(ValueError, match="does not exist yet"):
        rl_step(trainer, groups[:2])
