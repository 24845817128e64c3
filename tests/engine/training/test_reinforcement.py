"""Steps with several updates, a critic, a reference, credit by turns, and corrections."""

import random
from typing import Any

import pytest
import torch

from engine.records.trajectory import Step, StopReason, ToolCall, Trajectory
from engine.spec import RlStage
from engine.training.credit import credit, turn_rewards
from engine.training.reinforcement import rl_step
from engine.training.rl_batch import deal, gather
from engine.training.trainer import Trainer
from tests.engine.training.samples import (
    FLAT,
    assert_same,
    gradients,
    make_groups,
    make_trainer,
    make_trajectory,
    on_ranks,
)

VARIANTS: dict[str, dict[str, Any]] = {
    "minibatches": {"algorithm": "grpo", "anchor": "old", "epochs": 2, "minibatches": 2},
    "kl in the loss": {"kl_weight": 0.1},
    "kl in the reward": {"algorithm": "rloo", "kl_weight": 0.1, "kl_place": "reward"},
    "kl on tokens": {"algorithm": "reinforce_pp", "kl_weight": 0.1, "kl_place": "reward"},
    "critic": {"algorithm": "ppo", "kl_weight": 0.1, "kl_place": "reward", "gae_lambda": 0.9},
    "turns": {"advantage": "turn_reward_to_go"},
    "situations": {"advantage": "gigpo", "gamma": 0.9},
    "decoupled": {"algorithm": "grpo", "anchor": "old", "correction": "truncated", "epochs": 2},
    "geometric": {"algorithm": "grpo", "anchor": "old", "correction": "geometric"},
    "drift": {"algorithm": "grpo", "drift_max": 0.5},
}


def stage(**fields: Any) -> RlStage:
    return RlStage(**{"steps": 20, "optimizer": FLAT, **fields})


def begun(variant: dict[str, Any], **trainer: Any) -> Trainer:
    made = make_trainer(**trainer)
    made.begin(stage(**variant))
    return made


def with_turns(groups: list[list[Trajectory]]) -> list[list[Trajectory]]:
    """The sampled tokens of each trajectory in two turns, graded."""
    rng = random.Random(1)
    for group in groups:
        for one in group:
            size = len(one.segments[0].ids)
            middle = size // 2
            call = ToolCall("c", "look_up", {}, rng.choice(["x", "y"]), None, 0.1)
            one.steps = [
                Step(0, 0, 2, middle, "", call, reward=rng.choice([0.0, 0.5])),
                Step(1, 0, middle, size, "", answer="a", reward=one.reward.value),
            ]
    return groups


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_depends_on_cuts_merging_or_order(name: str) -> None:
    results = []
    for merge, tokens in (("off", 16), ("on", 64), ("on", 8192)):
        trainer = begun(VARIANTS[name], merge=merge, tokens=tokens)
        groups = with_turns(make_groups())
        if merge == "on":
            random.Random(tokens).shuffle(groups)
        results.append((trainer, rl_step(trainer, groups)))
    assert_same(results)


@pytest.mark.parametrize("name", ["minibatches", "critic", "kl in the loss"])
def test_nothing_depends_on_ranks(name: str) -> None:
    alone = begun(VARIANTS[name])
    expected = rl_step(alone, make_groups())

    def step(trainer: Trainer) -> dict[str, float]:
        trainer.begin(stage(**VARIANTS[name]))
        return rl_step(trainer, make_groups())

    assert_same([(alone, expected), *on_ranks(2, step)])


@pytest.mark.parametrize("name", VARIANTS)
def test_it_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(name: str, tmp_path) -> None:
    start = make_trainer()
    start.begin(stage())
    start.save(tmp_path / "start", {}, {})
    whole = begun(VARIANTS[name])
    batches = [with_turns(make_groups(seed)) for seed in (1, 2)]
    rl_step(whole, batches[0])
    whole.save(tmp_path / "middle", {}, {})
    expected = rl_step(whole, batches[1])

    resumed = make_trainer()
    torch.nn.init.zeros_(resumed.model.embedding.weight)  # what it begins with is not its own
    resumed.load_weights(tmp_path / "start")
    resumed.begin(stage(**VARIANTS[name]))
    resumed.load(tmp_path / "middle")
    assert rl_step(resumed, batches[1]) == expected
    for weight, other in zip(resumed.weights().values(), whole.weights().values(), strict=True):
        assert torch.equal(weight, other)


def test_going_through_a_batch_twice_is_two_steps_on_it() -> None:
    once, twice = begun({"algorithm": "grpo"}), begun({"algorithm": "grpo", "epochs": 2})
    groups = make_groups()
    figures = [rl_step(once, groups), rl_step(once, groups)]
    both = rl_step(twice, groups)
    assert both["loss"] == pytest.approx(sum(one["loss"] for one in figures) / 2, rel=1e-5)
    for name, weight in once.weights().items():
        assert torch.allclose(weight, twice.weights()[name], atol=1e-7), name
    assert (once.version, twice.version) == (2, 1)
    assert (once.step, twice.step) == (2, 1)


def test_minibatches_are_steps_on_their_groups() -> None:
    groups = make_groups(groups=4)
    parted = begun({"algorithm": "grpo", "minibatches": 2})
    found = gather(groups)
    assert found is not None
    parts = [numbers for numbers, _ in deal(found, 1, 2, f"{parted.spec.seed} 0")]
    assert sorted(number for part in parts for number in part) == [0, 1, 2, 3]
    one_by_one = begun({"algorithm": "grpo"})
    for part in parts:
        rl_step(one_by_one, [groups[number] for number in sorted(part)])
    rl_step(parted, groups)
    for name, weight in one_by_one.weights().items():
        assert torch.allclose(weight, parted.weights()[name], atol=1e-7), name


@pytest.mark.parametrize("skipped", [0, 1])
def test_an_update_that_was_left_out_is_told_whichever_of_the_step_it_is(skipped: int) -> None:
    groups = make_groups(groups=4)
    trainer = begun({"algorithm": "grpo", "minibatches": 2})
    found = gather(groups)
    assert found is not None
    parts = [numbers for numbers, _ in deal(found, 1, 2, f"{trainer.spec.seed} 0")]
    worst = min(groups[min(parts[skipped])], key=lambda one: one.reward.value or 0.0)
    worst.segments[0].logprobs[-1] = -1e4  # its ratio is infinite
    assert rl_step(trainer, groups)["skipped_update"] == 0.5
    assert all(torch.isfinite(weight).all() for weight in trainer.weights().values())


def test_against_the_old_policy_one_update_is_the_plain_gradient() -> None:
    """The ratio is 1 everywhere: no clip can act, as the notice of the stage says."""
    found = []
    for fields in (
        {"algorithm": "grpo", "anchor": "old"},
        {"algorithm": "grpo", "loss": "reinforce"},
    ):
        trainer = begun(fields)
        figures = rl_step(trainer, make_groups())
        assert figures["clip_fraction"] == 0
        found.append(gradients(trainer))
    for name, gradient in found[0].items():
        assert torch.allclose(gradient, found[1][name], atol=1e-6, rtol=1e-4), name


def test_the_decoupled_loss_has_the_gradient_of_the_formula() -> None:
    """min(pi_old / mu, 2) times the surrogate of pi / pi_old, in its first update."""
    trainer, groups = begun({**VARIANTS["decoupled"], "epochs": 1}), make_groups()
    rewards = torch.tensor([[one.reward.value for one in group] for group in groups])
    advantages = rewards - rewards.mean(1, keepdim=True)
    advantages /= rewards.std(1, keepdim=True) + 1e-6
    parts = []
    for group, row in zip(groups, advantages, strict=True):
        for one, advantage in zip(group, row, strict=True):
            log_p, behaviour = _logprobs(trainer, one)
            rho = (log_p.detach() - behaviour).exp().clamp(max=2.0)
            parts.append(-(rho * (log_p - log_p.detach()).exp() * advantage).mean())
    torch.stack(parts).mean().backward()
    expected = gradients(trainer)
    rl_step(trainer, groups)
    for name, gradient in gradients(trainer).items():
        assert torch.allclose(gradient, expected[name], atol=1e-6, rtol=1e-4), name


@pytest.mark.parametrize("correction", ["truncated", "icepop"])
def test_what_a_corrections_bound_changed_is_counted_however_many_updates_there_are(
    correction: str,
) -> None:
    """The weights are taken before the first update: so are the tokens that their bound changed."""
    still = FLAT.model_copy(update={"lr": 1e-9})
    found = []
    for epochs in (1, 2):
        fields = {**VARIANTS["decoupled"], "correction": correction, "epochs": epochs}
        found.append(rl_step(begun({**fields, "optimizer": still}), make_groups()))
    assert found[0]["clip_fraction"] > 0.1
    for name in ("clip_fraction", "clip_fraction_high", "clip_fraction_low"):
        assert found[1][name] == pytest.approx(found[0][name]), name


def test_the_kl_term_is_added_to_the_loss_and_pulls_back() -> None:
    """Away from the reference and with equal rewards, a step on the KL term alone lowers it."""
    trainer = make_trainer()
    trainer.begin(stage())
    for _ in range(3):
        rl_step(trainer, make_groups())
    reference = make_trainer()
    trainer.begin(stage(kl_weight=1.0, kl_kind="k2"))
    trainer.reference = reference.model
    groups = make_groups()
    for group in groups:
        for one in group:
            one.reward.value = 0.5
    first = rl_step(trainer, groups)["kl_reference"]
    for _ in range(4):
        last = rl_step(trainer, groups)["kl_reference"]
    assert 0 < last < first


def test_a_kl_term_in_the_reward_is_the_sum_over_the_trajectory() -> None:
    """RLOO's way: the outcome less the weighted sum of its tokens' k1."""
    groups = make_groups()
    found = gather(groups)
    assert found is not None
    kl = torch.rand(found.batch.ids.shape, dtype=torch.float64)
    given = credit(found, groups, stage(algorithm="rloo"), kl).advantages
    sums = (kl * found.batch.loss_mask).sum(1)
    rewards = torch.tensor([one.trajectory.reward.value for one in found.members]) - sums
    size = len(groups[0])
    for start in range(0, len(rewards), size):
        own = rewards[start : start + size]
        expected = [float(own[i] - (own.sum() - own[i]) / (size - 1)) for i in range(size)]
        assert given[start : start + size, 0].tolist() == pytest.approx(expected)


def test_a_kl_term_on_tokens_is_returned_from_each_on_and_whitened() -> None:
    groups = make_groups(groups=2)
    found = gather(groups)
    assert found is not None
    mask = found.batch.loss_mask
    kl = torch.rand(mask.shape, dtype=torch.float64)
    given = credit(found, groups, stage(algorithm="reinforce_pp"), kl).advantages[mask]
    expected = []
    for row, member in enumerate(found.members):
        own = kl[row][mask[row]].tolist()
        expected += [member.trajectory.reward.value - sum(own[t:]) for t in range(len(own))]
    flat = torch.tensor(expected, dtype=torch.float64)
    flat = (flat - flat.mean()) / flat.std()
    assert torch.allclose(given, flat, atol=1e-6)


def test_the_critic_learns_what_rewards_to_expect() -> None:
    quick = FLAT.model_copy(update={"lr": 5e-3})
    trainer = begun({"algorithm": "ppo", "critic": {"optimizer": quick}})
    groups = make_groups()
    figures = [rl_step(trainer, groups) for _ in range(20)]
    assert figures[-1]["value_loss"] < 0.7 * figures[0]["value_loss"]
    assert figures[-1]["explained_variance"] > 0.2 > figures[0]["explained_variance"]


def test_a_critics_schedule_counts_every_update_of_its_stage() -> None:
    trainer = begun(
        {"algorithm": "ppo", "anchor": "old", "steps": 1, "epochs": 2, "minibatches": 2}
    )
    assert trainer.critic is not None
    rl_step(trainer, make_groups())
    with pytest.raises(ValueError, match=r"step 4 is not among 0\.\.3"):
        rl_step(trainer, make_groups())


def test_a_critic_without_experience_gives_whitened_returns() -> None:
    """Its head begins at 0, so that ppo's first advantages are those of reinforce_pp."""
    found = []
    for algorithm in ("ppo", "reinforce_pp"):
        trainer = begun({"algorithm": algorithm})
        rl_step(trainer, make_groups())
        found.append(gradients(trainer))
    for name, gradient in found[0].items():
        assert torch.allclose(gradient, found[1][name], atol=1e-5, rtol=1e-3), name


def test_a_critic_warms_up_while_the_policy_stays() -> None:
    trainer = begun({"algorithm": "ppo", "critic": {"warmup_steps": 1, "optimizer": FLAT}})
    before = trainer.weights()
    figures = rl_step(trainer, make_groups())
    assert "value_loss" in figures and "loss" not in figures
    assert all(torch.equal(before[name], one) for name, one in trainer.weights().items())
    assert (trainer.step, trainer.version) == (1, 0)
    assert "loss" in rl_step(trainer, make_groups())


def test_truncated_trajectories_count_in_the_baseline_alone() -> None:
    groups = make_groups()
    cut = groups[0][0]
    cut.stop_reason = StopReason.MAX_TOKENS
    trainer = begun({"mask_truncated": True})
    figures = rl_step(trainer, groups)
    masked = gradients(trainer)
    tokens = sum(sum(one.segments[0].loss_mask) for group in groups for one in group)
    assert figures["loss_tokens"] == tokens - sum(cut.segments[0].loss_mask)
    cut.segments[0].loss_mask = [False] * len(cut.segments[0].ids)
    other = begun({})
    groups[0][0].segments[0].loss_mask[-1] = False
    # without a token in the loss it is no member, but its reward stays in the mean of the group
    rl_step(other, groups)
    for name, gradient in masked.items():
        assert torch.allclose(gradient, gradients(other)[name], atol=1e-7), name


def test_each_turn_has_its_own_advantage() -> None:
    groups = with_turns(make_groups(groups=1, size=2))
    for one, rewards in zip(groups[0], ([0.0, 1.0], [0.5, 0.0]), strict=True):
        for step, reward in zip(one.steps, rewards, strict=True):
            step.reward = reward
    found = gather(groups)
    assert found is not None
    given = credit(found, groups, stage(advantage="turn_reward_to_go")).advantages
    # to go: (1, 1) and (.5, 0); two values are always one deviation of .7071 from their mean
    for row, signs in enumerate(([1, 1], [-1, -1])):
        for step, sign in zip(groups[0][row].steps, signs, strict=True):
            of_turn = given[row, step.start : step.stop]
            assert of_turn.tolist() == pytest.approx([sign * 0.5**0.5] * len(of_turn), abs=1e-4)


def test_what_was_not_graded_by_turns_is_earned_by_the_last() -> None:
    one = with_turns([[make_trajectory(random.Random(0), "g", 0.7)]])[0][0]
    for step in one.steps:
        step.reward = None
    assert turn_rewards(one) == [0.0, 0.7]


def _logprobs(trainer: Trainer, one: Trajectory) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the sampled tokens: under the policy, with gradient, and under the behaviour policy."""
    segment = one.segments[0]
    ids, mask = torch.tensor(segment.ids), torch.tensor(segment.loss_mask)[1:]
    log_p = torch.log_softmax(trainer.model(ids[None]).logits[0, :-1], dim=-1)
    log_p = log_p.gather(1, ids[1:, None])[mask, 0]
    return log_p, torch.tensor(segment.logprobs)[1:][mask]
