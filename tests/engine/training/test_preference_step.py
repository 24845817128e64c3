"""Preference steps against a naive gradient, however they are cut, and what they refuse."""

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.algorithms.preference import Side, pair_loss
from engine.models.hybrid import HybridConfig
from engine.spec import DpoStage, ExperimentSpec, ModelSpec, SynthesiseStage, TrainerSpec
from engine.spec.practice import PracticeSpec
from engine.synthesis.repair import Pair
from engine.training.preference import pair_batch, preference_step, references
from engine.training.trainer import Trainer
from tests.engine.training.samples import FLAT, VOCABULARY, gradients, make_trainer

LOSSES = [
    DpoStage(steps=5, optimizer=FLAT),
    DpoStage(steps=5, optimizer=FLAT, label_smoothing=0.1, rpo_weight=0.7, beta=0.5),
    DpoStage(steps=5, optimizer=FLAT, loss="ipo"),
    DpoStage(steps=5, optimizer=FLAT, loss="sigmoid_norm", beta=2.0),
    DpoStage(steps=5, optimizer=FLAT, loss="sft"),
    DpoStage(steps=5, optimizer=FLAT, own_tokens="first", label_smoothing=0.1, rpo_weight=0.7),
    DpoStage(steps=5, optimizer=FLAT, own_tokens="first", loss="sigmoid_norm", beta=2.0),
    DpoStage(steps=5, optimizer=FLAT, own_tokens="first", loss="sft"),
]
NAMES = [
    f"{one.loss}{' with all' if one.rpo_weight else ''}, {one.own_tokens} tokens" for one in LOSSES
]


def make_pairs(count: int = 6, seed: int = 0) -> list[Pair]:
    """Tails of one token and of more; every third prefix is that of the pair before it."""
    rng, pairs = random.Random(seed), list[Pair]()

    def some(least: int, most: int) -> list[int]:
        return [rng.randrange(2, VOCABULARY) for _ in range(rng.randint(least, most))]

    for n in range(count):
        prefix = pairs[-1].prefix if n % 3 == 2 else some(3, 12)
        pairs.append(Pair("invalid_json", f"t{n}", prefix, [0, *some(0, 6)], [1, *some(0, 6)]))
    return pairs


def naive_loss(trainer: Trainer, pairs: list[Pair], stage: DpoStage, start) -> torch.Tensor:
    """Every sequence alone, in one graph; `start` are the references."""

    def logprob(prefix: list[int], own: list[int]) -> torch.Tensor:
        ids = torch.tensor([prefix + own])
        log_p = torch.log_softmax(trainer.model.logits(trainer.model.hidden(ids)).double(), -1)[0]
        return sum(log_p[len(prefix) + n - 1, token] for n, token in enumerate(own))

    beta, losses, tokens, likelihood = stage.strength, [], 0, torch.zeros((), dtype=torch.float64)
    for pair, (chosen_start, rejected_start) in zip(pairs, start, strict=True):
        better, worse = pair.chosen, pair.rejected
        if stage.own_tokens == "first":
            better, worse = better[:1], worse[:1]
        n_w, n_l = len(better), len(worse)
        w, l = logprob(pair.prefix, better), logprob(pair.prefix, worse)  # noqa: E741
        tokens += n_w
        likelihood = likelihood - w
        better, worse = w - chosen_start, l - rejected_start
        if stage.loss in ("ipo", "sigmoid_norm"):
            better, worse = better / n_w, worse / n_l
        h = better - worse
        if stage.loss == "ipo":
            losses.append((h - 1 / (2 * beta)) ** 2)
        else:
            eps = stage.label_smoothing
            losses.append(
                -(1 - eps) * torch.log(torch.sigmoid(beta * h))
                - eps * torch.log(torch.sigmoid(-beta * h))
            )
    if stage.loss == "sft":
        return likelihood / tokens
    return sum(losses) / len(losses) + stage.rpo_weight * likelihood / tokens


@pytest.mark.parametrize("merge", ["on", "off"])
@pytest.mark.parametrize("stage", LOSSES, ids=NAMES)
def test_loss_and_gradient_are_the_formulas(stage, merge):
    pairs, trainer = make_pairs(), make_trainer(merge=merge, tokens=40)
    trainer.begin(stage)
    start = [
        (chosen - 0.4, rejected + 0.7) for chosen, rejected in references(trainer, pairs, stage)
    ]
    expected = naive_loss(trainer, pairs, stage, start)
    wanted = torch.autograd.grad(expected, list(trainer.model.parameters()))
    figures = preference_step(trainer, pairs, start, stage)
    assert figures["loss"] == pytest.approx(float(expected), rel=1e-5)
    for gradient, other in zip(gradients(trainer).values(), wanted, strict=True):
        assert torch.allclose(gradient, other.float(), atol=1e-6, rtol=1e-3)
    assert trainer.version == 1


@pytest.mark.parametrize("stage", LOSSES, ids=NAMES)
def test_the_step_does_not_depend_on_order_padding_or_cut(stage):
    pairs = make_pairs()
    found = []
    for order, tokens in (([0, 1, 2, 3, 4, 5], 2048), ([5, 3, 1, 0, 2, 4], 16)):
        trainer = make_trainer(tokens=tokens)
        trainer.begin(stage)
        mine = [pairs[n] for n in order]
        figures = preference_step(trainer, mine, references(trainer, mine, stage), stage)
        found.append((figures, gradients(trainer)))
    (first, of_first), (second, of_second) = found
    for name in ("loss", "margin", "accuracy", "logps_chosen", "chosen_change", "loss_tokens"):
        assert second[name] == pytest.approx(first[name], rel=1e-4, abs=1e-6), name
    for name, gradient in of_first.items():
        assert torch.allclose(of_second[name], gradient, atol=1e-6, rtol=1e-4), name


def test_it_starts_at_ln_2_and_tells_the_sides_apart_after_a_few_steps():
    pairs, stage = make_pairs(), DpoStage(steps=30, optimizer=FLAT, rpo_weight=0.1)
    trainer = make_trainer()
    trainer.begin(stage)
    start = references(trainer, pairs, stage)
    figures = [preference_step(trainer, pairs, start, stage) for _ in range(20)]
    likelihood = -figures[0]["logps_chosen"] * 6 / sum(len(pair.chosen) for pair in pairs)
    assert figures[0]["loss"] == pytest.approx(math.log(2) + 0.1 * likelihood, rel=1e-4)
    assert figures[0]["margin"] == pytest.approx(0, abs=1e-4)
    assert figures[-1]["accuracy"] == 1.0
    assert figures[-1]["margin"] > 0
    assert figures[-1]["chosen_change"] > 0


def test_temperature_is_of_the_policy_that_is_compared():
    pairs, trainer = make_pairs(), make_trainer()
    stage = DpoStage(steps=5, optimizer=FLAT, practice=PracticeSpec(temperature=0.5))
    trainer.begin(stage)
    figures = preference_step(trainer, pairs, references(trainer, pairs, stage), stage)
    assert figures["loss"] == pytest.approx(math.log(2), rel=1e-4)


def test_the_shared_prefix_is_in_no_loss():
    batch = pair_batch([Pair("x", "t", [5, 6, 7], [0, 9], [1])], "all")
    assert batch.ids.tolist() == [[5, 6, 7, 0, 9], [5, 6, 7, 1, 0]]
    assert batch.loss_mask.tolist() == [[False] * 3 + [True] * 2, [False] * 3 + [True, False]]


@given(st.lists(st.integers(2, 9), max_size=5), st.lists(st.integers(2, 9), max_size=5))
def test_of_own_tokens_first_what_follows_the_choice_changes_nothing(after_chosen, after_rejected):
    prefix = [5, 6, 7]
    batch = pair_batch([Pair("x", "t", prefix, [0, *after_chosen], [1, *after_rejected])], "first")
    assert batch.ids.tolist() == [[*prefix, 0], [*prefix, 1]]
    assert batch.loss_mask.tolist() == [[False] * 3 + [True]] * 2


def test_the_choice_alone_moves_two_logits_apart_and_no_other():
    """The gradient on the logits at the place where the sides part; the oracle is the softmax's."""
    logits = torch.randn(VOCABULARY, dtype=torch.float64, requires_grad=True)
    log_p, one, beta = torch.log_softmax(logits, -1), torch.ones(1), 0.3
    chosen, rejected = (Side(log_p[n : n + 1], torch.full((1,), -2.0), one) for n in (4, 9))
    pair_loss("sigmoid", chosen, rejected, beta=beta).backward()
    push = beta * torch.sigmoid(-beta * (logits[4] - logits[9])).detach()
    expected = torch.zeros_like(logits)
    expected[4], expected[9] = -push, push
    assert torch.allclose(logits.grad, expected, atol=1e-12)


def test_a_log_probability_that_is_not_finite_stops_the_step_before_it_changes_anything():
    pairs, trainer = make_pairs(2), make_trainer()
    stage = LOSSES[0]
    trainer.begin(stage)
    before = trainer.weights()
    with pytest.raises(ValueError, match="reference of pair 1"):
        preference_step(trainer, pairs, [(-1.0, -1.0), (math.nan, -1.0)], stage)
    assert all(torch.equal(before[name], now) for name, now in trainer.weights().items())


def test_a_pair_without_a_prefix_has_no_context_to_compare_in():
    with pytest.raises(ValueError, match="first token of a segment has no context"):
        pair_batch([Pair("x", "t", [], [0], [1])], "all")


def test_it_goes_on_exactly_where_it_was_saved(tmp_path):
    pairs, stage = make_pairs(), LOSSES[0]

    def make() -> Trainer:
        spec = ExperimentSpec(
            name="small",
            model=ModelSpec(width=32, heads=4, mlp_width=48),
            stages=[SynthesiseStage()],
            trainer=TrainerSpec(precision="float32"),
        )
        trainer = Trainer(spec, HybridConfig.from_spec(spec.model, VOCABULARY, 0, 1))
        trainer.begin(stage)
        return trainer

    whole = make()
    start = references(whole, pairs, stage)
    for step in range(4):
        if step == 2:
            whole.save(tmp_path / "saved", {}, {})
        preference_step(whole, pairs, start, stage)
    resumed = make()
    resumed.load(tmp_path / "saved")
    for _ in range(2):
        preference_step(resumed, pairs, start, stage)
    for name, weight in whole.weights().items():
        assert torch.equal(weight, resumed.weights()[name]), name
