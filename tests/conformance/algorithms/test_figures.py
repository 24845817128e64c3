"""Every figure that a step logs, as a number: computed once more from the model's logits."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from engine.algorithms.advantages import advantages
from engine.algorithms.returns import whitened
from engine.records.trajectory import Reward
from engine.training.reinforcement import rl_step
from engine.training.trainer import Trainer
from tests.conformance.algorithms.exact import Groups, begun, make_groups


@dataclass
class Tokens:
    """Of all trained tokens, one trajectory after the other: [tokens], and logits [tokens, ids]."""

    logits: Tensor
    ids: Tensor
    behaviour: Tensor
    lengths: list[int]

    @property
    def logprobs(self) -> Tensor:
        return torch.log_softmax(self.logits, -1).gather(1, self.ids[:, None])[:, 0]


@torch.no_grad()
def tokens_of(model: torch.nn.Module, groups: Groups) -> Tokens:
    logits, ids, behaviour, lengths = [], [], [], []
    for one in (one for group in groups for one in group):
        (segment,) = one.segments
        mask = torch.tensor(segment.loss_mask)[1:]
        row = torch.tensor(segment.ids)
        logits.append(model(row[None]).logits[0, :-1][mask])
        ids.append(row[1:][mask])
        behaviour.append(torch.tensor(segment.logprobs, dtype=torch.float32)[1:][mask].double())
        lengths.append(int(mask.sum()))
    return Tokens(torch.cat(logits), torch.cat(ids), torch.cat(behaviour), lengths)


def stepped(name: str, groups: Groups) -> tuple[Trainer, Tokens, dict[str, float]]:
    trainer = begun(name)
    seen = tokens_of(trainer.model, groups)
    return trainer, seen, rl_step(trainer, groups)


def close(value: float) -> object:
    return pytest.approx(value, abs=1e-9, rel=1e-9)


def test_rewards_are_means_over_those_that_are_valid() -> None:
    groups = make_groups(0)
    groups[0][0].reward = Reward(None, False)
    every = [one for group in groups for one in group]
    valid = every[1:]
    figures = rl_step(begun("grpo"), groups)
    assert figures["reward_mean"] == close(sum(one.reward.value or 0 for one in valid) / 8)
    assert figures["completion_rate"] == close(sum(one.success for one in valid) / 8)
    assert figures["invalid_reward_share"] == close(1 / 9)
    for one in groups[1]:
        one.reward.value = 0.5
    assert rl_step(begun("grpo"), groups)["zero_variance_share"] == close(1 / 3)


def test_figures_of_the_policy() -> None:
    _, seen, figures = stepped("dapo", make_groups(1))
    log_p = torch.log_softmax(seen.logits, -1)
    assert figures["entropy"] == close(float(-(log_p.exp() * log_p).sum(-1).mean()))
    likeliest = seen.logits.argmax(-1) == seen.ids
    assert figures["token_accuracy"] == close(float(likeliest.double().mean()))
    assert figures["loss_tokens"] == len(seen.ids)


def test_figures_of_the_distance_to_the_behaviour_policy() -> None:
    for name, cap in (("dapo", math.inf), ("cispo", 5.0), ("reinforce", 2.0)):
        _, seen, figures = stepped(name, make_groups(2))
        log_ratio = seen.logprobs - seen.behaviour
        ratio = log_ratio.exp()
        weight = ratio.clamp(max=cap)
        assert figures["weight_mean"] == close(float(ratio.mean()))
        assert figures["weight_max"] == close(float(ratio.max()))
        assert figures["weight_p99"] == close(float(torch.quantile(ratio, 0.99)))
        assert figures["sampler_kl"] == close(float((ratio - 1 - log_ratio).mean()))
        ess = weight.sum() ** 2 / (len(weight) * weight.square().sum())
        assert figures["ess"] == close(float(ess))


def test_shares_of_clipped_tokens() -> None:
    groups = make_groups(3)
    _, seen, figures = stepped("dapo", groups)
    rewards = [[one.reward.value for one in group] for group in groups]
    flat = [a for group in advantages("group_normalised", rewards, []) for a in group]
    each = torch.repeat_interleave(torch.tensor(flat), torch.tensor(seen.lengths))
    ratio = (seen.logprobs - seen.behaviour).exp()
    high, low = (ratio > 1.28) & (each > 0), (ratio < 0.8) & (each < 0)
    assert figures["clip_fraction_high"] == close(float(high.double().mean()))
    assert figures["clip_fraction_low"] == close(float(low.double().mean()))
    assert figures["clip_fraction"] == close(float((high | low).double().mean()))
    assert 0 < figures["clip_fraction_high"] < 1 and 0 < figures["clip_fraction_low"] < 1


def test_figures_of_advantages() -> None:
    groups = make_groups(4)
    _, seen, figures = stepped("dr_grpo", groups)
    rewards = [[one.reward.value or 0.0 for one in group] for group in groups]
    centred = torch.cat([torch.tensor(one) - torch.tensor(one).mean() for one in rewards])
    each = torch.repeat_interleave(centred, torch.tensor(seen.lengths))
    assert figures["advantage_mean"] == close(float(each.mean()))
    assert figures["advantage_std"] == close(float(each.std()))


def test_the_distance_to_the_reference_is_the_k3_estimate() -> None:
    groups = make_groups(5)
    trainer = begun("kl in the loss")
    assert trainer.reference is not None
    seen, known = tokens_of(trainer.model, groups), tokens_of(trainer.reference, groups)
    difference = known.logprobs - seen.logprobs
    expected = float((difference.exp() - 1 - difference).mean())
    assert expected > 1e-4
    assert rl_step(trainer, groups)["kl_reference"] == close(expected)


def test_figures_of_the_critic() -> None:
    """Its values begin at 0, so that returns are the outcome, discounted by lambda."""
    groups = make_groups(6)
    _, seen, figures = stepped("ppo", groups)
    returns = []
    for one, length in zip((one for g in groups for one in g), seen.lengths, strict=True):
        powers = 0.9 ** torch.arange(length - 1, -1, -1.0)
        returns.append((one.reward.value or 0.0) * powers)
    targets = torch.cat(returns)
    assert figures["value_loss"] == close(float(0.5 * targets.square().mean()))
    assert figures["value_clip_fraction"] == 0.0
    assert figures["explained_variance"] == close(0.0)
    assert figures["advantage_std"] == close(float(whitened(targets).std()))


def test_staleness_is_counted_in_versions_over_tokens() -> None:
    groups = make_groups(7)
    trainer = begun("grpo")
    trainer.version = 5
    ages = []
    for age, one in enumerate(one for group in groups for one in group):
        segment = one.segments[0]
        segment.versions = [5 - age % 4 if sampled else -1 for sampled in segment.loss_mask]
        ages += [age % 4] * sum(segment.loss_mask)
    figures = rl_step(trainer, groups)
    assert figures["staleness_mean"] == close(sum(ages) / len(ages))
    assert figures["staleness_max"] == 3
