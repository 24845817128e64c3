"""Three experts distilled into one student on its own samples, beside cheaper ways to merge them.

A weak base half knows three tasks on five digits: reverse, sort, add one to each. Three experts are
tuned from it, each on one task. From the base again, students learn from all three: by reverse KL
over the whole vocabulary, by its one-token estimate, by supervised learning on as many of the
experts' own samples; or the experts' weights are averaged. Once more student and experts are
adapters alone, all of them on the base's weights, which are held once. Stages and steps are the
engine's own.
"""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from bench.signature import (
    COLOURS,
    Claim,
    Experiment,
    Outcome,
    Results,
    Verdict,
    mean_interval,
    paired,
)
from bench.signature._digits import (
    DIGITS,
    TASKS,
    VOCABULARY,
    answer,
    questions,
    right_answer,
    sampled,
    trajectories,
)
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.lora import adapter_config, adapter_factors, adapter_tensors
from engine.spec import (
    ExperimentSpec,
    LoraSpec,
    ModelSpec,
    OpdStage,
    OptimizerSpec,
    SftStage,
    SynthesiseStage,
    TeacherSpec,
    TrainerSpec,
)
from engine.spec.lineage import TrainedStage
from engine.training.distillation import opd_step
from engine.training.supervised import sft_step
from engine.training.teachers import Teacher
from engine.training.trainer import Trainer

ARMS = ("base", "opd", "one token", "lora", "experts' samples", "average")
WITHIN = 0.02  # of the expert's completion
TAUGHT = [TeacherSpec(stage=at, categories=[task]) for at, task in enumerate(TASKS, start=2)]


@dataclass(frozen=True)
class Settings:
    """Steps of `batch` questions. Rates were chosen on seed 1000."""

    revision: int = 2
    width: int = 64
    batch: int = 64
    base_steps: int = 300
    expert_steps: int = 150
    student_steps: int = 400
    sft_lr: float = 2e-3
    student_lr: float = 1e-3
    lora_lr: float = 5e-3
    lora_rank: int = 16
    judged: int = 200  # questions of each task


def run_one(settings: Settings, arm: str, seed: int) -> Outcome:
    """Completion by task; gradient norms and the divergence step by step where there are any; what
    the teachers hold beside the student."""
    trainer = _trainer(settings, seed)
    trainer.model.load_state_dict(_base(settings, seed))
    if arm not in ("base", "average"):
        trainer.begin(_stage(settings, arm))
    teachers = _adapted(trainer, settings, seed) if arm == "lora" else _experts(settings, seed)
    own = {id(parameter) for parameter in trainer.model.parameters()}
    known = [[_taught_completion(one, task, settings, seed) for task in TASKS] for one in teachers]
    norms: list[float] = []
    apart: list[float] = []
    if arm == "average":
        both = zip(*(expert.model.parameters() for expert in teachers), strict=True)
        with torch.no_grad():
            for weight, of_experts in zip(trainer.model.parameters(), both, strict=True):
                weight.copy_(torch.stack(list(of_experts)).mean(0))
    elif arm != "base":
        for figures in _taught(trainer, settings, arm, teachers, seed):
            norms.append(figures["grad_norm"])
            apart.append(figures.get("divergence", figures["loss"]))
    model = HybridForCausalLM(trainer.model.config)
    model.load_state_dict(trainer.weights())
    return {
        "completion": [_completion(model, task, settings, seed) for task in TASKS],
        "experts": [known[task][task] for task in range(len(TASKS))],
        "elsewhere": statistics.fmean(
            known[expert][task]
            for expert in range(len(TASKS))
            for task in range(len(TASKS))
            if task != expert
        ),
        "grad_norm": statistics.fmean(norms) if norms else None,
        "divergence": apart,
        "tokens": len(norms) * settings.batch * DIGITS,
        "teachers_hold": sum(size for held, size in _sizes(teachers).items() if held not in own),
    }


@lru_cache(maxsize=1)
def _base(settings: Settings, seed: int) -> dict[str, Tensor]:
    """The weights that all arms of a seed begin with."""
    trainer = _trainer(settings, seed)
    _supervised(trainer, settings, TASKS, settings.base_steps, seed)
    return trainer.weights()


@lru_cache(maxsize=1)
def _experts(settings: Settings, seed: int) -> list[Teacher]:
    """Experts of which all weights were trained from the base."""
    experts = []
    for number, spec in enumerate(TAUGHT, start=1):
        trainer = _trainer(settings, seed)
        trainer.model.load_state_dict(_base(settings, seed))
        tasks = tuple(spec.categories)
        _supervised(trainer, settings, tasks, settings.expert_steps, 10 * seed + number)
        experts.append(Teacher(spec, trainer.policy.frozen()))
    return experts


def _adapted(student: Trainer, settings: Settings, seed: int) -> list[Teacher]:
    """Experts of which adapters were trained from the base, on the weights of a student that has
    begun a stage of adapters from it."""
    model, teachers = student.policy.compute, []
    for number, spec in enumerate(TAUGHT, start=1):
        trainer = _trainer(settings, seed)
        trainer.model.load_state_dict(_base(settings, seed))
        tasks = tuple(spec.categories)
        _supervised(
            trainer, settings, tasks, settings.expert_steps, 10 * seed + number, adapters=True
        )
        adapted = trainer.policy.adapted
        assert adapted is not None and trainer.base == student.base
        factors = adapter_factors(adapter_tensors(adapted), adapter_config(adapted), model)
        teachers.append(Teacher(spec, model, factors))
    return teachers


def _sizes(teachers: Sequence[Teacher]) -> dict[int, int]:
    """Numbers in each of the tensors that teachers hold."""
    held = [[*one.model.parameters(), *(one.adapters or {}).values()] for one in teachers]
    return {id(tensor): tensor.numel() for tensors in held for tensor in tensors}


def _supervised(
    trainer: Trainer,
    settings: Settings,
    tasks: Sequence[str],
    steps: int,
    seed: int,
    *,
    adapters: bool = False,
) -> None:
    """Learns right answers."""
    rate, lora = (settings.lora_lr, _lora(settings)) if adapters else (settings.sft_lr, None)
    trainer.begin(SftStage(steps=steps, optimizer=_optimizer(rate), lora=lora))
    rng = random.Random(f"supervised {seed}")
    for _ in range(steps):
        asked = questions(rng, tasks, settings.batch)
        answers = torch.tensor([right_answer(task, digits) for task, digits in asked])
        sft_step(trainer, trajectories(asked, answers))


def _taught(
    trainer: Trainer, settings: Settings, arm: str, teachers: list[Teacher], seed: int
) -> Any:
    """The figures of every step of a student that has begun its stage."""
    rng = random.Random(f"student {seed}")
    draw = torch.Generator().manual_seed(seed)
    for _ in range(settings.student_steps):
        asked = questions(rng, TASKS, settings.batch)
        if arm == "experts' samples":
            shown = []
            for teacher in teachers:
                own = [one for one in asked if teacher.spec.teaches(one[0])]
                shown += sampled(teacher.model, own, draw, 0) if own else []
            yield sft_step(trainer, shown)
        else:
            played = sampled(trainer.model, asked, draw, trainer.version)
            yield opd_step(trainer, teachers, [[one] for one in played])


def _stage(settings: Settings, arm: str) -> TrainedStage:
    steps, rate = settings.student_steps, settings.student_lr
    if arm == "experts' samples":
        return SftStage(steps=steps, optimizer=_optimizer(settings.sft_lr))
    if arm == "lora":
        optimizer = _optimizer(settings.lora_lr)
        return OpdStage(steps=steps, optimizer=optimizer, teachers=TAUGHT, lora=_lora(settings))
    return OpdStage(
        steps=steps,
        optimizer=_optimizer(rate),
        teachers=TAUGHT,
        form="one_token" if arm == "one token" else "full_vocabulary",
    )


def _lora(settings: Settings) -> LoraSpec:
    return LoraSpec(rank=settings.lora_rank, alpha=2.0 * settings.lora_rank)


def _optimizer(rate: float) -> OptimizerSpec:
    return OptimizerSpec(lr=rate, weight_decay=0.0, warmup_steps=5, betas=(0.9, 0.98))


def _trainer(settings: Settings, seed: int) -> Trainer:
    model = ModelSpec(
        width=settings.width,
        mlp_width=2 * settings.width,
        layers=["lightning", "softmax"],
        rope_base=100.0,
    )
    spec = ExperimentSpec(
        name="opd",
        seed=seed,
        model=model,
        stages=[SynthesiseStage()],
        trainer=TrainerSpec(precision="float32", tree_merge="off"),
    )
    return Trainer(spec, HybridConfig.from_spec(model, VOCABULARY, 0, 1))


def _completion(model: HybridForCausalLM, task: str, settings: Settings, seed: int) -> float:
    """Share of held-out questions answered right, digit for digit."""
    rng = random.Random(f"judged {task} {seed}")
    asked = questions(rng, (task,), settings.judged, held_out=True)
    answers, _ = answer(model, asked, None)
    right = torch.tensor([right_answer(task, digits) for _, digits in asked])
    return float((answers == right).all(1).double().mean())


def _taught_completion(teacher: Teacher, task: str, settings: Settings, seed: int) -> float:
    with teacher.present() as model:
        return _completion(model, task, settings, seed)


def judge(results: Results) -> dict[str, Verdict]:
    return {
        "keeps": _keeps(results, "opd"),
        "lora": _keeps(results, "lora"),
        "noise": _noise(results),
        "average": _better(results, "average"),
        "samples": _better(results, "experts' samples"),
    }


def _by_task(results: Results, arm: str, name: str = "completion") -> list[list[float]]:
    """Of each task, by seed."""
    return [list(of_task) for of_task in zip(*results.of(arm, name), strict=True)]


def _keeps(results: Results, arm: str) -> Verdict:
    """Of every task the whole interval of student minus expert lies above -WITHIN."""
    students, experts = _by_task(results, arm), _by_task(results, arm, "experts")
    gaps = {task: paired(s, e) for task, s, e in zip(TASKS, students, experts, strict=True)}
    gains = {
        task: paired(s, b)
        for task, s, b in zip(TASKS, students, _by_task(results, "base"), strict=True)
    }
    elsewhere = mean_interval(results.of(arm, "elsewhere"))
    said = ", ".join(f"{task} {100 * gap.value:+.1f}" for task, gap in gaps.items())
    return Verdict(
        all(gap.lower > -WITHIN for gap in gaps.values()),
        f"Points beside each task's expert: {said}; an expert solves "
        f"{100 * elsewhere.value:.0f}% of the other two tasks.",
        {f"{task}, student less expert": gap for task, gap in gaps.items()}
        | {f"{task}, student less base": gain for task, gain in gains.items()}
        | {"experts on the other tasks": elsewhere},
    )


def _noise(results: Results) -> Verdict:
    """The interval of the ratio of gradient norms lies above 2, and of the worst tasks above 0."""
    one, all_ = results.of("one token", "grad_norm"), results.of("opd", "grad_norm")
    ratio = mean_interval([a / b for a, b in zip(one, all_, strict=True)])
    lost = paired(_worst(results, "opd"), _worst(results, "one token"))
    return Verdict(
        ratio.lower > 2 and lost.lower > 0,
        f"The one-token estimate had {ratio.value:.1f} times the gradient norm, and its student "
        f"ended {100 * lost.value:.1f} points lower on its worst task.",
        {"gradient norm, one token by whole vocabulary": ratio, "worst task, less one token": lost},
    )


def _better(results: Results, other: str) -> Verdict:
    """The interval of the difference of the worst tasks lies above 0."""
    found = paired(_worst(results, "opd"), _worst(results, other))
    ends = {arm: mean_interval(_worst(results, arm)) for arm in ("opd", other)}
    return Verdict(
        found.lower > 0,
        f"Completion of the worst task: {100 * ends['opd'].value:.1f}% by distillation, "
        f"{100 * ends[other].value:.1f}% beside it.",
        {f"worst task, {arm}": end for arm, end in ends.items()} | {"difference": found},
    )


def _worst(results: Results, arm: str) -> list[float]:
    return [min(found) for found in results.of(arm, "completion")]


def draw(results: Results, panels: list[Any]) -> None:
    left, right = panels
    for place, (arm, colour) in enumerate(zip(ARMS, COLOURS, strict=True)):
        for task, found in enumerate(_by_task(results, arm)):
            end = mean_interval(found)
            left.errorbar(
                task + 0.12 * (place - 2.5),
                end.value,
                yerr=[[end.value - end.lower], [end.upper - end.value]],
                color=colour,
                marker="o",
                capsize=2,
                label=arm if task == 0 else None,
            )
    left.set(xticks=range(len(TASKS)), xticklabels=TASKS, ylabel="completion, held out")
    left.legend(fontsize=7)
    for arm in ("opd", "lora"):
        curves = torch.tensor(results.of(arm, "divergence"))
        right.plot(curves.mean(0), color=COLOURS[ARMS.index(arm)], label=arm)
    right.set(xlabel="steps", ylabel="reverse KL a token, nats", yscale="log")
    right.legend()


EXPERIMENT = Experiment(
    name="opd",
    settings=Settings(),
    arms=ARMS,
    claims=(
        Claim(
            "keeps",
            "One student learns from three experts on its own samples and stays within 2 points of "
            "each on that expert's task.",
            "DeepSeek-V4 report and MOPD (MiMo-V2-Flash), taken to three toy tasks",
        ),
        Claim(
            "lora",
            "So does a student of which adapters alone are trained, taught by adapters on the same "
            "weights.",
            "Thinking Machines, On-policy distillation, taken to three toy tasks",
        ),
        Claim(
            "noise",
            "The estimate from one token has a much noisier gradient than the divergence over the "
            "whole vocabulary, and teaches less in as many steps.",
            "DeepSeek-V4 report, on full-vocabulary distillation",
        ),
        Claim(
            "average",
            "Averaging the experts' weights loses more on the worst task than distilling them.",
            "MOPD (MiMo-V2-Flash), taken to three toy tasks",
        ),
        Claim(
            "samples",
            "As many tokens of the experts' own samples teach less than the student's own samples.",
            "GKD, 2306.13649, taken to three toy tasks",
        ),
    ),
    budget="students take 400 steps of 64 answers from the same base, sampled by themselves or by "
    "the experts; the average takes none",
    run_one=run_one,
    judge=judge,
    draw=draw,
    panels=2,
)
run = EXPERIMENT.run
