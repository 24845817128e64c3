"""On-policy distillation: the formula, its laws, several teachers, and what is refused."""

import random
import threading
from pathlib import Path

import pytest
import torch

from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.records.trajectory import Reward, StopReason, Trajectory
from engine.spec.opd import OpdStage, TeacherSpec
from engine.training import trainer as module
from engine.training.distillation import LOG_RATIO_CAP, opd_step
from engine.training.teachers import Teacher
from engine.training.trainer import Trainer
from tests.engine.training.samples import (
    FLAT,
    SFT,
    VOCABULARY,
    assert_same,
    gradients,
    make_groups,
    make_trainer,
    make_trajectory,
    on_ranks,
)

SPECS = [
    TeacherSpec(stage=1, categories=["3 hops"], weight=0.75),
    TeacherSpec(stage=2, categories=["4 hops"]),
    TeacherSpec(stage=3, categories=["3 hops"], weight=0.25),
]
FORMS = {
    "reverse": {},
    "forward": {"beta": 0.0},
    "gkd": {"algorithm": "gkd"},
    "one token": {"form": "one_token"},
    "with reward": {"reward_weight": 0.5},
    "one token with reward": {"form": "one_token", "reward_weight": 0.5},
}


def opd(**fields) -> OpdStage:
    return OpdStage(teachers=SPECS, steps=20, optimizer=FLAT, **fields)


def make_teachers(specs: list[TeacherSpec] = SPECS) -> list[Teacher]:
    """Models with other weights, and other widths, than the student's."""
    found = []
    for number, spec in enumerate(specs):
        torch.manual_seed(number)
        config = HybridConfig.from_spec(make_trainer().spec.model, VOCABULARY, 0, 1)
        config.intermediate_size = 40 + 8 * number
        found.append(Teacher(spec, HybridForCausalLM(config).requires_grad_(False)))
    return found


def make_lessons(seed: int = 0) -> tuple[list[list[Trajectory]], list[Trajectory]]:
    """Groups of two categories, one of them of one trajectory, and demonstrations."""
    groups = make_groups(seed)
    groups[0] = groups[0][:1]
    for group in groups[::2]:
        for one in group:
            one.category = "4 hops"
    rng = random.Random(seed)
    shown = [make_trajectory(rng, f"d{at}") for at in range(3)]
    for one in shown:
        one.segments[0].logprobs = [0.0] * len(one.segments[0].ids)
        one.segments[0].versions = [-1] * len(one.segments[0].ids)
    return groups, shown


def step(trainer: Trainer, stage: OpdStage, seed: int = 0) -> dict[str, float]:
    groups, shown = make_lessons(seed)
    shown = shown if stage.resolved().off_policy_share else []
    return opd_step(trainer, make_teachers(), groups, shown)


@pytest.mark.parametrize("fields", FORMS.values(), ids=FORMS.keys())
def test_the_loss_does_not_depend_on_micro_batches_nor_on_merging(fields) -> None:
    results = []
    for merge, tokens in (("off", 16), ("off", 200), ("on", 64), ("on", 8192)):
        trainer = make_trainer(merge=merge, tokens=tokens)
        trainer.begin(opd(**fields))
        results.append((trainer, step(trainer, opd(**fields))))
    assert_same(results)


@pytest.mark.parametrize("fields", [FORMS["gkd"], FORMS["one token with reward"]])
def test_the_loss_does_not_depend_on_ranks(fields) -> None:
    alone = make_trainer()
    alone.begin(opd(**fields))
    expected = step(alone, opd(**fields))
    made = threading.Lock()

    def work(trainer: Trainer) -> dict[str, float]:
        with made:  # teachers are drawn with torch's own generator
            teachers = make_teachers()
        groups, shown = make_lessons()
        trainer.begin(opd(**fields))
        shown = shown if opd(**fields).resolved().off_policy_share else []
        return opd_step(trainer, teachers, groups, shown)

    assert_same([(alone, expected), *on_ranks(2, work, merge="on")])


def test_the_order_of_groups_does_not_matter() -> None:
    results = []
    for shuffled in (False, True):
        groups, _ = make_lessons()
        if shuffled:
            random.Random(1).shuffle(groups)
        trainer = make_trainer()
        trainer.begin(opd(reward_weight=0.5))
        results.append((trainer, opd_step(trainer, make_teachers(), groups)))
    assert_same(results)


def test_what_the_environment_wrote_never_enters() -> None:
    results = []
    for poison in (0.0, float("nan")):
        groups, _ = make_lessons()
        for one in (one for group in groups for one in group):
            segment = one.segments[0]
            pairs = zip(segment.logprobs, segment.loss_mask, strict=True)
            segment.logprobs = [value if sampled else poison for value, sampled in pairs]
            segment.versions = [v if v >= 0 else 10**6 for v in segment.versions]
        trainer = make_trainer()
        trainer.begin(opd(form="one_token"))
        results.append((trainer, opd_step(trainer, make_teachers(), groups)))
    assert_same(results)


@pytest.mark.parametrize("fields", FORMS.values(), ids=FORMS.keys())
def test_one_step_has_the_gradient_of_the_formula(fields) -> None:
    """Written token by token; the mean is over all tokens of the step."""
    stage, trainer, teachers = opd(**fields), make_trainer(), make_teachers()
    trainer.begin(stage)
    groups, shown = make_lessons()
    shown = shown if stage.resolved().off_policy_share else []
    beta, total, tokens = stage.resolved().beta, torch.zeros(()), 0
    for one in [one for group in groups for one in group] + shown:
        (group,) = [g for g in groups if one in g] or [[one]]
        rewards = torch.tensor([member.reward.value for member in group])
        spread = float(rewards.std()) if len(group) > 1 else 0.0
        reward = 0.0
        if one not in shown and spread:
            reward = (one.reward.value - float(rewards.mean())) / (spread + 1e-6)
        segment = one.segments[0]
        ids, mask = torch.tensor(segment.ids), torch.tensor(segment.loss_mask)[1:]
        log_q = torch.log_softmax(trainer.model(ids[None]).logits[0, :-1], dim=-1)[mask]
        target = ids[1:][mask][:, None]
        logprob = log_q.gather(1, target)[:, 0]
        advantage = torch.full_like(logprob.detach(), stage.reward_weight * reward)
        losses = torch.zeros_like(logprob)
        for teacher in teachers:
            if not teacher.spec.teaches(one.category):
                continue
            log_p = torch.log_softmax(teacher.model(ids[None]).logits[0, :-1], dim=-1)[mask]
            if stage.form == "one_token":
                estimate = log_p.gather(1, target)[:, 0] - logprob.detach()
                advantage = advantage + teacher.spec.weight * estimate
                continue
            q, p = log_q.exp(), log_p.exp()
            if beta == 1:
                value = (q * (log_q - log_p)).sum(-1)
            elif beta == 0:
                value = (p * (log_p - log_q)).sum(-1)
            else:
                m = (beta * p + (1 - beta) * q).log()
                value = beta * (p * (log_p - m)).sum(-1) + (1 - beta) * (q * (log_q - m)).sum(-1)
            losses = losses + teacher.spec.weight * value
        ratio = (logprob.detach() - torch.tensor(segment.logprobs)[1:][mask]).exp()
        kept = ratio * ((ratio >= 0.5) & (ratio <= 5.0)) if one not in shown else 0 * ratio
        total = total + (losses - kept * advantage * logprob).sum()
        tokens += int(mask.sum())
    (total / tokens).backward()
    expected = gradients(trainer)
    figures = opd_step(trainer, teachers, groups, shown)
    assert figures["loss"] == pytest.approx(float(total.detach() / tokens), rel=1e-4, abs=1e-6)
    assert figures["loss_tokens"] == tokens
    assert trainer.version == 1
    for name, gradient in gradients(trainer).items():
        assert torch.allclose(gradient, expected[name], atol=1e-6, rtol=1e-3), name


def test_figures_are_means_over_the_tokens_of_each_teacher_and_category() -> None:
    trainer, teachers = make_trainer(), make_teachers()
    trainer.begin(opd())
    groups, _ = make_lessons()
    sums: dict[str, list[float]] = {}
    agreed, gaps, far = [], [], []
    for one in (one for group in groups for one in group):
        segment = one.segments[0]
        ids, mask = torch.tensor(segment.ids), torch.tensor(segment.loss_mask)[1:]
        with torch.no_grad():
            q = torch.distributions.Categorical(logits=trainer.model(ids[None]).logits[0, :-1])
            for teacher in teachers:
                if not teacher.spec.teaches(one.category):
                    continue
                logits = teacher.model(ids[None]).logits[0, :-1]
                p = torch.distributions.Categorical(logits=logits)
                kl = torch.distributions.kl_divergence(q, p)[mask].tolist()
                sums.setdefault(f"divergence/stage-{teacher.spec.stage}", []).extend(kl)
                sums.setdefault(f"divergence/{one.category}", []).extend(kl)
                agreed += (q.probs.argmax(-1) == p.probs.argmax(-1))[mask].tolist()
                gaps += (q.entropy() - p.entropy())[mask].tolist()
                log_ratio = (p.log_prob(ids[1:]) - q.log_prob(ids[1:]))[mask]
                far += (log_ratio.abs() > LOG_RATIO_CAP).tolist()
    figures = opd_step(trainer, teachers, groups)
    assert len(sums) == 5
    for name, values in sums.items():
        assert figures[name] == pytest.approx(sum(values) / len(values), rel=1e-4), name
    assert figures["agreement"] == pytest.approx(sum(agreed) / len(agreed))
    assert figures["entropy_gap"] == pytest.approx(sum(gaps) / len(gaps), rel=1e-3, abs=1e-6)
    assert figures["far_share"] == pytest.approx(sum(far) / len(far))
    assert "clip_fraction" not in figures, "nothing is clipped in a divergence"


def test_a_category_that_is_called_as_a_teacher_is_takes_no_teacher_s_figure() -> None:
    def figures(category: str) -> dict[str, float]:
        trainer = make_trainer()
        teachers = make_teachers([TeacherSpec(stage=1), TeacherSpec(stage=2)])
        trainer.begin(opd())
        groups, _ = make_lessons()
        for one in (one for group in groups for one in group):
            one.category = category if one.category == "4 hops" else one.category
        return opd_step(trainer, teachers, groups)

    found, plain = figures("stage-1"), figures("4 hops")
    assert plain["divergence/4 hops"] != plain["divergence/stage-1"]
    assert found["divergence/stage-1"] == plain["divergence/stage-1"]


def test_the_student_comes_to_say_what_each_teacher_says_of_its_tasks() -> None:
    trainer = make_trainer()
    trainer.begin(OpdStage(teachers=SPECS[:2], steps=30, optimizer=FLAT))
    teachers = make_teachers(SPECS[:2])
    groups, _ = make_lessons()
    found = [opd_step(trainer, teachers, groups) for _ in range(30)]
    for name in ("divergence/stage-1", "divergence/stage-2"):
        assert found[-1][name] < 0.6 * found[0][name], name


def test_it_continues_from_a_checkpoint_as_if_never_stopped(tmp_path: Path) -> None:
    trainer, resumed = make_trainer(), make_trainer()
    for one in (trainer, resumed):
        one.begin(opd(algorithm="gkd"))
    for seed in range(2):
        step(trainer, opd(algorithm="gkd"), seed)
    trainer.save(tmp_path / "step-2", {}, {})
    resumed.load(tmp_path / "step-2")
    for seed in (2, 3):
        step(trainer, opd(algorithm="gkd"), seed)
        step(resumed, opd(algorithm="gkd"), seed)
    for name, weight in resumed.weights().items():
        assert torch.equal(weight, trainer.weights()[name])


def test_in_bfloat16_it_comes_near_to_what_float32_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "choose_precision", lambda wanted: (getattr(torch, wanted), "as asked")
    )
    found = []
    for precision in ("float32", "bfloat16"):
        trainer, teachers = make_trainer(precision), make_teachers()
        trainer.begin(opd(reward_weight=0.5))
        for teacher in teachers:
            teacher.model.body_(trainer.dtype)
        found.append(opd_step(trainer, teachers, make_lessons()[0]))
    for name in ("loss", "divergence", "divergence/stage-2", "grad_norm"):
        assert found[1][name] == pytest.approx(found[0][name], rel=0.05), name


def test_tokens_of_broken_episodes_are_taught_and_their_rewards_are_not() -> None:
    found = []
    for broken in (False, True):
        groups, _ = make_lessons()
        one = groups[1][1]
        one.reward = Reward(None, False)
        if broken:
            one.stop_reason, one.reward = StopReason.INFRA_ERROR, Reward(1.0, True)
        trainer = make_trainer()
        trainer.begin(opd(reward_weight=0.5))
        found.append((trainer, opd_step(trainer, make_teachers(), groups)))
    assert_same(found)
    tokens = sum(sum(one.segments[0].loss_mask) for group in groups for one in group)
    assert found[0][1]["loss_tokens"] == tokens


def test_nothing_sampled_makes_no_update_and_counts_as_a_step() -> None:
    trainer = make_trainer()
    trainer.begin(opd())
    one = make_trajectory(random.Random(0), "g")
    one.segments[0].loss_mask = [False] * len(one.segments[0].ids)
    figures = opd_step(trainer, make_teachers(), [[one]])
    assert "loss" not in figures and (trainer.version, trainer.step) == (0, 1)


def test_a_version_that_does_not_exist_yet_is_refused() -> None:
    trainer = make_trainer()
    trainer.begin(opd())
    groups, _ = make_lessons()
    groups[1][0].segments[0].versions = [7] * len(groups[1][0].segments[0].ids)
    with pytest.raises(ValueError, match="does not exist yet"):
        opd_step(trainer, make_teachers(), groups)
    trainer.begin(SFT)
    with pytest.raises(RuntimeError, match="stage of kind opd"):
        opd_step(trainer, make_teachers(), groups)
