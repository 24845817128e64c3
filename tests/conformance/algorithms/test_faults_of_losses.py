"""Public faults of losses, masks and denominators, each held against our own steps.

The first line of each test names where the fault was reported.
"""

import math
import random
from typing import Any

import pytest
import torch

from engine.algorithms.advantages import advantages
from engine.algorithms.aggregation import token_weights
from engine.algorithms.batch import collate
from engine.algorithms.corrections import correction_weights
from engine.algorithms.returns import whitened
from engine.records.trajectory import Segment, StopReason, Trajectory
from engine.spec import RlStage
from engine.spec.algorithms import KlKind
from engine.training.credit import credit
from engine.training.reinforcement import rl_step
from engine.training.rl_batch import gather
from engine.training.supervised import sft_step
from engine.training.trainer import Trainer
from tests.conformance.algorithms.exact import (
    assert_equal,
    assert_same_gradient,
    begun,
    by_hand,
    make_groups,
    rl_stage_of,
    sampled_at,
    start,
    step,
    trajectory_of,
    write,
)
from tests.engine.training.samples import FLAT, SFT, gradients, make_trainer, on_ranks


def trainer_of(**fields: Any) -> Trainer:
    trainer = make_trainer()
    start(trainer, RlStage.model_validate({"steps": 20, "optimizer": FLAT, **fields}))
    return trainer


def pair(rewards: tuple[float, float] = (1.0, 0.0), name: str = "g") -> list[Trajectory]:
    """Two trajectories of one group: four trained tokens, and two."""
    first = trajectory_of([False, True, True, False, True, True], rewards[0], name, 1)
    return [first, trajectory_of([False, False, True, True], rewards[1], name, 2)]


def test_gae_does_not_bootstrap_from_observations() -> None:
    """verl 2337: the value of an observation token took part in the recursion."""
    returns = []
    for values in ([9.0, 0.1, 0.2, 9.0, 9.0, 0.3, 0.4], [0.0, 0.1, 0.2, 5.0, -5.0, 0.3, 0.4]):
        group = [trajectory_of([False, True, True, False, False, True, True], 1.0)]
        stage = RlStage(algorithm="ppo", gamma=0.9, gae_lambda=0.8)
        found = gather([group])
        assert found is not None
        given = credit(found, [group], stage, values=torch.tensor([values]))
        assert given.returns is not None
        returns.append(given.returns[found.batch.loss_mask])
    assert torch.equal(*returns)


def test_accumulation_weighs_tokens_not_samples() -> None:
    """verl 5625: 100 tokens with a loss of .5 and 900 of .3 have the mean .32, not .40."""
    short, long = token_weights("token-mean", [100, 900], 1000)
    assert 100 * short * 0.5 + 900 * long * 0.3 == pytest.approx(0.32)
    for tokens in (16, 60, 1000):
        found = step(begun("dapo", merge="off", tokens=tokens), make_groups(1))
        assert_equal(found, step(begun("dapo", merge="off", tokens=1000), make_groups(1)))


def test_dr_grpo_divides_by_a_constant_of_the_run() -> None:
    """verl 3741: the sum over a sequence was divided by the width that padding gave it."""
    groups = [pair()]
    long = pair(name="long")
    write(long[0].segments[0], [1] * 10)  # ten columns more that nothing is learned from
    found, padded = step(begun("dr_grpo"), groups), step(begun("dr_grpo"), [long])
    assert found[0]["loss"] == pytest.approx(padded[0]["loss"], abs=1e-12)
    assert_same_gradient(found[1], padded[1])
    trainer = begun("dr_grpo")
    longest = trainer.spec.environment.max_tokens
    expected, known = by_hand(
        trainer,
        [
            (one.segments[0], lambda p, mu, a=a: -_clipped((p - mu).exp(), a).sum() / 2 / longest)
            for one, a in zip(groups[0], (0.5, -0.5), strict=True)
        ],
    )
    assert found[0]["loss"] == pytest.approx(expected, abs=1e-10)
    assert_same_gradient(found[1], known)


def _weight(p: torch.Tensor, mu: torch.Tensor) -> torch.Tensor:
    return (p - mu).exp().detach()


def _clipped(ratio: torch.Tensor, advantage: float, high: float = 1.2) -> torch.Tensor:
    return torch.minimum(ratio * advantage, ratio.clamp(0.8, high) * advantage)


@pytest.mark.parametrize("kind", ["k2", "k3", "k3_unbiased", "abs"])
def test_a_kl_term_alone_lowers_the_kl(kind: KlKind) -> None:
    """verl PR 179: the term was subtracted, so that the distance grew. Rewards are equal here."""
    optimizer = FLAT.model_copy(update={"lr": 1e-3})
    trainer = trainer_of(algorithm="grpo", kl_weight=1.0, kl_kind=kind, optimizer=optimizer)
    seen = []
    for _ in range(6):
        groups = [pair((1.0, 1.0), "a"), pair((0.0, 0.0), "b")]
        seen.append(rl_step(trainer, sampled_at(trainer, groups, lambda _: 0.0))["kl_reference"])
    assert 0 < seen[-1] < 0.8 * seen[0]


@pytest.mark.parametrize("mask", [[0, 0.5, 1], [-1.2, -0.3, -0.7], [0, 2, 1]])
def test_only_zeros_and_ones_are_a_mask(mask: list[float]) -> None:
    """verl 2506: advantages were passed where the mask was expected, and taken for one."""
    wrong: Any = mask
    segment = Segment([1, 2, 3], wrong, [0.0, -1.0, -1.0], [-1, 0, 0])
    with pytest.raises(ValueError, match="mask"):
        collate([segment])


def test_every_update_of_a_step_has_its_own_denominator() -> None:
    """TRL 5619: the denominator spanned all updates of a generation, the gradient only one.

    Two minibatches of the same content give the gradient of one of them alone."""
    still = FLAT.model_copy(update={"lr": 1e-14})
    once, twice = (
        trainer_of(algorithm="dapo", minibatches=parts, optimizer=still) for parts in (1, 2)
    )
    alone = step(once, [pair()])
    found = step(twice, [pair(name="a"), pair(name="b")])
    assert_same_gradient(found[1], alone[1])
    assert found[0]["loss"] == pytest.approx(alone[0]["loss"], abs=1e-10)


def test_group_and_batch_scaling_are_not_swapped() -> None:
    """TRL PR 3992: rewards (0, 1) and (0, 10) are equal when scaled by group, not by batch."""
    groups = [[0.0, 1.0], [0.0, 10.0]]
    by_group = advantages("group_normalised", groups, [[1, 1], [1, 1]])
    assert max(by_group[0]) == pytest.approx(max(by_group[1]), rel=1e-5)
    by_batch = advantages("group_batch_whitened", groups, [[1, 1], [1, 1]])
    assert max(by_batch[1]) == pytest.approx(10 * max(by_batch[0]))


@pytest.mark.parametrize(
    ("ratio", "better", "worse"), [(1.5, (1, 0), (0, 0)), (0.5, (0, 0), (0, 1))]
)
def test_the_clip_fraction_looks_at_the_sign_of_the_advantage(
    ratio: float, better: tuple[int, int], worse: tuple[int, int]
) -> None:
    """TRL PR 3175: a ratio of 1.5 counted as clipped under a negative advantage too."""
    trainer = begun("grpo")
    figures = rl_step(trainer, sampled_at(trainer, [pair()], lambda _: math.log(ratio)))
    good, bad = 4 / 6, 2 / 6  # shares of the tokens of the better and the worse trajectory
    assert figures["clip_fraction_high"] == pytest.approx(good * better[0] + bad * worse[0])
    assert figures["clip_fraction_low"] == pytest.approx(good * better[1] + bad * worse[1])


def test_the_dual_clip_is_counted() -> None:
    """verl 972: the share of tokens that the dual clip bounded was always 0."""
    trainer = trainer_of(algorithm="grpo", dual_clip=3.0)
    figures = rl_step(trainer, sampled_at(trainer, [pair()], lambda _: math.log(4)))
    assert figures["clip_fraction"] == pytest.approx(1.0)
    assert figures["clip_fraction_high"] == pytest.approx(1.0)


def test_bad_trajectories_left_behind_are_dropped_by_the_samplers_logprobs() -> None:
    """TRL PR 4857: the mask compared with recomputed log-probabilities, which never differ.

    Here the sampler's are higher by .7: only the trajectory with the negative advantage goes, and
    the denominator keeps its tokens."""
    trainer = trainer_of(algorithm="grpo", drift_max=0.5)
    groups = sampled_at(trainer, [pair()], lambda _: -0.7)
    figures, found, _ = step(trainer, groups)
    assert figures["masked_share"] == pytest.approx(2 / 6)
    fresh = trainer_of(algorithm="grpo")
    advantage = advantages("group_normalised", [[1.0, 0.0]], [[4, 2]])[0][0]
    loss, known = by_hand(
        fresh,
        [(groups[0][0].segments[0], lambda p, mu: -_clipped((p - mu).exp(), advantage).mean() / 2)],
    )
    assert figures["loss"] == pytest.approx(loss, abs=1e-10)
    assert_same_gradient(found, known)


def test_whitened_advantages_have_mean_zero_and_deviation_one_over_trained_tokens() -> None:
    """OpenRLHF 856: statistics were taken over another mask than the loss."""
    for name in ("reinforce_pp", "reinforce_pp_baseline"):
        figures = step(begun(name), make_groups(2))[0]
        assert abs(figures["advantage_mean"]) < 1e-6
        assert figures["advantage_std"] == pytest.approx(1, abs=1e-5)
    assert abs(float(whitened(torch.tensor([1.0, 5.0, 6.0])).mean())) < 1e-12


def test_masked_tokens_stay_in_the_denominator() -> None:
    """AReaL PR 1088: masking two of four tokens doubled the weight of the others."""
    trainer = trainer_of(loss="reinforce", correction="icepop", algorithm="reinforce")
    groups = sampled_at(trainer, [pair()], lambda one: math.log(9 if one.reward.value else 1))
    figures, found, _ = step(trainer, groups)
    known_loss, known = by_hand(
        trainer_of(algorithm="grpo"),
        [(groups[0][1].segments[0], lambda p, mu: 2 / 3 * (_weight(p, mu) * p).sum() / 6)],
    )  # the worse one's advantage against the mean over tokens, 4 / 6
    assert figures["loss"] == pytest.approx(known_loss, abs=1e-10)
    assert_same_gradient(found, known)
    assert figures["clip_fraction"] == pytest.approx(4 / 6)


def test_trajectories_masked_for_their_length_leave_the_denominator() -> None:
    """TRL 6369: they were masked from the loss and counted in what it was divided by.

    They stay in the baseline of their group: advantages here are 2/3 and -1/3."""
    group = [*pair(), trajectory_of([False, True, True, True], 0.0, seed=5)]
    group[2].stop_reason = StopReason.MAX_TOKENS
    stage = {"algorithm": "dapo", "advantage": "group_centred", "mask_truncated": True}
    figures, found, _ = step(trainer_of(**stage), [group])
    loss, known = by_hand(
        begun("dapo"),
        [
            (one.segments[0], lambda p, mu, a=a: -_clipped((p - mu).exp(), a, 1.28).sum() / 6)
            for one, a in zip(group[:2], (2 / 3, -1 / 3), strict=True)
        ],
    )
    assert figures["loss"] == pytest.approx(loss, abs=1e-10)
    assert_same_gradient(found, known)


def test_the_mean_ratio_of_a_sequence_is_geometric() -> None:
    """AReaL PR 1088: ratios of 4 and 1/4 have the mean 1, not 2.125."""
    one = torch.zeros(2, dtype=torch.long)
    bounds = {"weight_min": 0.99, "weight_max": 1.01}
    weights, _ = correction_weights("geometric", torch.tensor([4.0, 0.25]).log(), one, bounds)
    assert weights.tolist() == [1.0, 1.0]


def test_figures_do_not_depend_on_the_number_of_micro_batches() -> None:
    """verl 2259 and 4711: KL and clip figures were overwritten, or scaled, by micro-batch."""
    whole = step(begun("kl in the loss", merge="off", tokens=1000), make_groups(3))[0]
    pieces = step(begun("kl in the loss", merge="off", tokens=16), make_groups(3))[0]
    for name in ("kl_reference", "clip_fraction", "entropy", "loss", "weight_mean", "ess"):
        assert pieces[name] == pytest.approx(whole[name], abs=1e-10), name


@pytest.mark.parametrize("name", ["cispo", "grpo", "ppo", "reinforce_pp", "kl in the loss"])
def test_a_batch_in_which_all_is_masked_changes_nothing(name: str) -> None:
    """verl 782: a mean over no token was NaN, and with it the weights."""
    trainer = begun(name)
    before = trainer.weights()
    group = [trajectory_of([False, False, False], float(i), seed=i) for i in range(2)]
    figures = rl_step(trainer, [group])
    assert (trainer.version, trainer.step) == (0, 1)
    assert all(math.isfinite(value) for value in figures.values())
    assert all(torch.equal(before[key], value) for key, value in trainer.weights().items())


def test_advantages_stay_on_trained_tokens() -> None:
    """verl 1527: the baseline's advantages also stood on masked tokens."""
    groups = make_groups(4)
    found = gather(groups)
    assert found is not None
    given = credit(found, groups, rl_stage_of("reinforce_pp_baseline")).advantages
    mask = found.batch.loss_mask
    assert abs(float(given[mask].mean())) < 1e-10
    assert float(given[mask].std()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("tokens", [16, 1000])
def test_supervised_learning_predicts_each_trained_token_from_those_before(tokens: int) -> None:
    """verl 3287 and 3994: the mask was one token off, and ranks divided by their own tokens."""
    group = pair()
    trainer = make_trainer(merge="off", tokens=tokens)
    trainer.begin(SFT)
    figures = sft_step(trainer, group)
    found = gradients(trainer)
    loss, known = by_hand(
        make_trainer(), [(one.segments[0], lambda p, _: -p.sum() / 6) for one in group]
    )
    assert figures["loss"] == pytest.approx(loss, abs=1e-10)
    assert_same_gradient(found, known)

    def work(rank: Trainer) -> dict[str, float]:
        rank.begin(SFT)
        return sft_step(rank, group)

    for rank, ranked in on_ranks(2, work, merge="off", tokens=tokens):
        assert ranked["loss"] == pytest.approx(loss, abs=1e-10)
        assert_same_gradient(gradients(rank), known)


def test_every_group_is_normalised_whatever_its_size() -> None:
    """AReaL 225: the loop's bound and its slices had different units, so that groups were left."""
    rng = random.Random(0)
    groups = [[rng.random() for _ in range(size)] for size in (2, 5, 3, 4)]
    for kind in ("group_normalised", "group_centred", "leave_one_out"):
        found = advantages(kind, groups, [[1] * len(group) for group in groups])
        for group in found:
            assert abs(sum(group)) < 1e-12 and max(map(abs, group)) > 0.01


@pytest.mark.parametrize("world", [2, 3])
def test_norms_and_means_are_over_all_ranks(world: int) -> None:
    """AReaL 320 and 335, OpenRLHF 1216: the norm of a part of the gradient; a mean of means."""
    alone, gradient, _ = step(begun("dapo", merge="off", tokens=60), make_groups(5))
    norm = math.sqrt(sum(float(one.square().sum()) for one in gradient.values()))
    assert alone["grad_norm"] == pytest.approx(norm, rel=1e-12)

    def work(trainer: Trainer) -> dict[str, float]:
        start(trainer, rl_stage_of("dapo"))
        return rl_step(trainer, make_groups(5))

    for _, figures in on_ranks(world, work, merge="off", tokens=60):
        for name in ("grad_norm", "entropy", "token_accuracy", "clip_fraction", "loss"):
            assert figures[name] == pytest.approx(alone[name], abs=1e-10), name


def test_cispo_is_not_ppo() -> None:
    """TRL 4499: the branch of CISPO was overwritten by PPO's.

    Where PPO has left its band on both sides it is silent; CISPO weighs by at most 5."""
    weights = {1.0: 8.0, 0.0: 0.5}  # by reward: far above, and below
    size = 0.5 / (math.sqrt(0.5) + 1e-6)
    found = {}
    for name in ("cispo", "grpo"):
        trainer = begun(name)
        groups = sampled_at(trainer, [pair()], lambda one: math.log(weights[one.reward.value or 0]))
        found[name] = step(trainer, groups)
    assert found["grpo"][0]["grad_norm"] == 0
    assert found["grpo"][0]["clip_fraction"] == 1
    _, known = by_hand(
        begun("cispo"),
        [
            (one.segments[0], lambda p, mu, a=a: -(_weight(p, mu).clamp(max=5) * a * p).sum() / 6)
            for one, a in zip(groups[0], (size, -size), strict=True)
        ],
    )
    assert_same_gradient(found["cispo"][1], known)
    assert found["cispo"][0]["clip_fraction"] == pytest.approx(4 / 6)


def test_advantages_of_nearly_equal_rewards_are_computed_from_centred_sums() -> None:
    """NeMo-RL 4158: E[x^2] - E[x]^2 made an advantage of -2075 out of rewards like these."""
    rewards = [0.0] + [0.95] * 15
    for kind in ("group_normalised", "leave_one_out", "group_batch_whitened"):
        (found,) = advantages(kind, [rewards], [[1] * 16])
        assert max(map(abs, found)) < 4
    (found,) = advantages("group_normalised", [[1e8 + one for one in rewards]], [[1] * 16])
    assert found[0] == pytest.approx(-15 / 4, abs=1e-4)


def test_long_trajectories_are_not_crushed_by_a_product_of_ratios() -> None:
    """NeMo-RL 2269 and TRL 4772: with ratios of 1.0001 a token, products leave every band."""
    tokens = 30_000
    log_rho = torch.full((tokens,), math.log(1.0001))
    one = torch.zeros(tokens, dtype=torch.long)
    assert float(log_rho.sum().exp()) > 3
    for kind, bounds in (
        ("truncated", {"weight_max": 2.0}),
        ("icepop", {"weight_min": 0.5, "weight_max": 5.0}),
        ("geometric", {"weight_min": 0.999, "weight_max": 1.001}),
    ):
        weights, _ = correction_weights(kind, log_rho, one, bounds)
        assert float(weights.mean()) == pytest.approx(1, abs=1e-3)
