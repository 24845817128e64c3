"""Repair by preference beside supervised learning of the same repairs, on tools never seen before.

A hybrid of a lightning and a softmax layer learns to call tools from demonstrations of which some
are corrupted, practises, and learns from its own errors and their nearest repairs. Errors are then
counted on tools, arguments and lengths of the prefix that no training has shown it.
"""

import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import Any, NamedTuple

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
    wilson,
)
from bench.signature._toolbook import (
    CLASSES,
    Tool,
    Toolbook,
    Tools,
    demonstration,
    make_task,
    make_tools,
    texts,
)
from engine.algorithms.batch import collate
from engine.environments.protocol import Task
from engine.models.hybrid import HybridConfig
from engine.records.trajectory import Trajectory
from engine.rewards.scheme import RewardScheme
from engine.rollout.agent_loop import AgentLoop
from engine.rollout.torch_sampler import TorchSampler
from engine.spec import (
    DpoStage,
    EnvironmentSpec,
    ExperimentSpec,
    ModelSpec,
    OptimizerSpec,
    SftStage,
    SynthesiseStage,
    TrainerSpec,
)
from engine.synthesis import Tokenizer
from engine.synthesis.repair import Pair, PairCollector, faults_of
from engine.training.preference import Reference, preference_step, references
from engine.training.supervised import sft_step
from engine.training.trainer import Trainer

LIMITS = EnvironmentSpec(max_turn_tokens=64, max_tokens=192)
SLOTS = 256
LESS = 3.0  # times fewer errors
NOT_LOWER = 0.02  # of success, at the lower end of the interval


@dataclass(frozen=True)
class Settings:
    """beta and the arms' learning rates were looked at on seeds from 1000 up. DPO at 1e-4 and more
    was better on some and undid the copying of names on others; the rate here is half of that.

    cold_start, decay: steps, the former at most; copied: token accuracy that shows that names are
    copied, beyond which the corrupted calls alone are not foreseen.
    """

    width: int = 64
    cold_start: int = 1500
    copied: float = 0.96
    decay: int = 200
    slips: float = 0.12
    practised: int = 6000
    judged: int = 1000
    notes_practised: tuple[int, int] = (0, 1)
    notes_judged: tuple[int, int] = (2, 3)
    steps: int = 80
    batch: int = 32
    beta: float = 1.0
    dpo_lr: float = 5e-5
    sft_lr: float = 3e-5
    revision: int = 2


class Start(NamedTuple):
    """What both arms of a seed begin with; `before`: of the policy at the end of its cold start."""

    tools: Tools
    tokenizer: Tokenizer
    weights: dict[str, Tensor]
    pairs: list[Pair]
    references: list[Reference]
    before: dict[str, Any]


def run_one(settings: Settings, arm: str, seed: int) -> Outcome:
    start = _start(settings, seed)
    trainer = _trainer(settings, start.tokenizer, seed)
    trainer.model.load_state_dict(start.weights)
    stage = DpoStage(
        loss="sft" if arm == "sft" else "sigmoid",
        beta=None if arm == "sft" else settings.beta,
        steps=settings.steps,
        batch_size=settings.batch,
        optimizer=OptimizerSpec(
            lr=settings.sft_lr if arm == "sft" else settings.dpo_lr,
            betas=(0.9, 0.98),
            weight_decay=0.0,
            warmup_steps=5,
        ),
    )
    trainer.begin(stage)
    rng, order, figures = random.Random(f"order {seed}"), list[int](), dict[str, float]()
    for _ in range(settings.steps):
        if len(order) < settings.batch:  # an epoch is over
            order = rng.sample(range(len(start.pairs)), len(start.pairs))
        batch, order = order[: settings.batch], order[settings.batch :]
        pairs = [start.pairs[place] for place in batch]
        figures = preference_step(trainer, pairs, [start.references[n] for n in batch], stage)
    return {
        "pairs": len(start.pairs),
        "before": start.before,
        "after": _judged(settings, trainer, start.tools, start.tokenizer, seed),
        "chosen_change": figures["chosen_change"],
        "accuracy": figures["accuracy"],
    }


@lru_cache(maxsize=1)
def _start(settings: Settings, seed: int) -> Start:
    """Cold start and practice, which both arms of a seed share."""
    tools, rng = make_tools(seed), random.Random(f"cold start {seed}")
    made = texts(rng, tools, settings.slips)
    sample = [next(made) for _ in range(400)]
    tokenizer = Tokenizer.train(
        [part for task, call in sample for part in (task.prompt, call)], 340
    )
    trainer = _trainer(settings, tokenizer, seed)
    _cold_start(settings, trainer, (demonstration(*each, tokenizer) for each in made))
    tasks = _tasks(rng, tools.practised, settings.notes_practised, settings.practised)
    book = Toolbook((*tools.practised, *tools.held_out))
    collector = PairCollector(book, tokenizer, per_class=settings.practised)
    for one in _play(trainer, tokenizer, book, tasks, seed):
        collector.add(one)
    return Start(
        tools,
        tokenizer,
        trainer.weights(),
        collector.pairs,
        references(trainer, collector.pairs, 1.0),
        _judged(settings, trainer, tools, tokenizer, seed),
    )


def _cold_start(settings: Settings, trainer: Trainer, shown: Iterator[Trajectory]) -> None:
    """Until names are copied, which sets in all at once and at a time that depends on the seed, and
    then as many steps of decay for every seed."""
    accuracies: deque[float] = deque(maxlen=20)
    for steps, decay in ((settings.cold_start, 0.0), (settings.decay, 1.0)):
        optimizer = OptimizerSpec(
            kind="muon", lr=6e-3, muon_lr=0.03, warmup_steps=1, decay_share=decay
        )
        trainer.begin(SftStage(steps=steps, optimizer=optimizer))
        for _ in range(steps):
            figures = sft_step(trainer, [next(shown) for _ in range(32)])
            accuracies.append(figures["token_accuracy"])
            if not decay and fmean(accuracies) >= settings.copied:
                break


def _trainer(settings: Settings, tokenizer: Tokenizer, seed: int) -> Trainer:
    spec = ExperimentSpec(
        name="toolbook",
        seed=seed,
        model=ModelSpec(
            width=settings.width,
            heads=2,
            layers=["lightning", "softmax"],
            mlp_width=2 * settings.width,
        ),
        stages=[SynthesiseStage()],
        trainer=TrainerSpec(precision="float32", tree_merge="off"),
    )
    vocabulary = tokenizer.vocab_size, tokenizer.pad_id, tokenizer.end_id
    return Trainer(spec, HybridConfig.from_spec(spec.model, *vocabulary))


def _tasks(
    rng: random.Random, tools: Sequence[Tool], notes: tuple[int, int], count: int
) -> list[Task]:
    return [make_task(rng, rng.choice(tools), rng.randint(*notes)) for _ in range(count)]


def _play(
    trainer: Trainer, tokenizer: Tokenizer, book: Toolbook, tasks: Sequence[Task], seed: int
) -> list[Trajectory]:
    """Each task once at temperature 1, in the order of the tasks."""
    sampler = TorchSampler(
        trainer.model,
        end_id=tokenizer.end_id,
        capacity=SLOTS,
        max_tokens=LIMITS.max_tokens,
        seed=seed,
    )
    loop = AgentLoop(sampler, book, tokenizer, RewardScheme(), LIMITS)
    for place, task in enumerate(tasks):
        loop.submit(replace(task, id=f"{place:06d}"), "practice")
    found: list[Trajectory] = []
    while loop.active:
        found += loop.step()
    return sorted(found, key=lambda one: one.task_id)


def _judged(
    settings: Settings, trainer: Trainer, tools: Tools, tokenizer: Tokenizer, seed: int
) -> dict[str, Any]:
    """Errors and success on held-out tools behind longer prefixes, and how likely the right call
    is there, in nats a token; the same tasks and seed for every policy of a seed."""
    rng = random.Random(f"judged {seed}")
    tasks = _tasks(rng, tools.held_out, settings.notes_judged, settings.judged)
    book = Toolbook((*tools.practised, *tools.held_out))
    found = faults_of(_play(trainer, tokenizer, book, tasks, seed))
    right = [demonstration(task, task.answer, tokenizer).segments[0] for task in tasks[:200]]
    batch = collate(right)
    logprobs = trainer.logprobs(batch, range(len(right)), 1.0)
    return {
        "calls": found.calls,
        "classes": {name: found.by_class[name] for name in CLASSES},
        "success": found.successes / found.trajectories,
        "right_logprob": float(logprobs.sum() / batch.loss_tokens),
    }


def judge(results: Results) -> dict[str, Verdict]:
    return {
        "fewer": _fewer(results),
        "beside_sft": _beside_sft(results),
        "chosen": _chosen(results),
    }


def errors(judged: dict[str, Any]) -> float:
    """Share of calls with an error, half of one more than there were, so that none has a log."""
    counts, calls = judged["classes"].values(), float(judged["calls"])
    return (sum(map(float, counts)) + 0.5) / (calls + 1)


def _fewer(results: Results) -> Verdict:
    """The geometric mean of the ratio is LESS or more at the lower end of its interval, and the
    success is not lower by more than NOT_LOWER at the lower end of its own."""
    before, after = results.of("dpo", "before"), results.of("dpo", "after")
    logs = [math.log(errors(b) / errors(a)) for b, a in zip(before, after, strict=True)]
    ratio = mean_interval(logs)
    times = replace(
        ratio, **{end: math.exp(getattr(ratio, end)) for end in ("value", "lower", "upper")}
    )
    success = paired([a["success"] for a in after], [b["success"] for b in before])
    rates = {
        f"{name}, {when}": wilson(
            sum(one["classes"][name] for one in judged), sum(one["calls"] for one in judged)
        )
        for name in CLASSES
        for when, judged in (("before", before), ("after DPO", after))
    }
    first, last = (mean_interval([errors(one) for one in judged]) for judged in (before, after))
    return Verdict(
        times.lower >= LESS and success.lower >= -NOT_LOWER,
        f"Errors per call on held-out tools: {100 * first.value:.1f}% before, "
        f"{100 * last.value:.1f}% after, {times.value:.1f} times fewer; success "
        f"{100 * success.value:+.1f} points.",
        {
            "errors per call, before": first,
            "errors per call, after DPO": last,
            "times fewer errors (geometric mean)": times,
            "gain of success": success,
            **rates,
        },
    )


def _beside_sft(results: Results) -> Verdict:
    """The interval of the log of the ratio of errors, seed by seed, lies above 0."""
    ours, theirs = results.of("dpo", "after"), results.of("sft", "after")
    logs = paired(
        [math.log(errors(one)) for one in theirs], [math.log(errors(one)) for one in ours]
    )
    rates = {
        f"errors per call, {arm}": mean_interval([errors(one) for one in results.of(arm, "after")])
        for arm in ("dpo", "sft")
    }
    success = {
        f"success, {arm}": mean_interval([one["success"] for one in results.of(arm, "after")])
        for arm in ("dpo", "sft")
    }
    classes = {
        f"{name}, after SFT": wilson(
            sum(one["classes"][name] for one in theirs), sum(one["calls"] for one in theirs)
        )
        for name in CLASSES
    }
    return Verdict(
        logs.lower > 0,
        f"At the same pairs, steps and batches SFT on the repairs leaves "
        f"{math.exp(logs.value):.1f} times the errors of DPO.",
        {"log of the ratio of errors, SFT by DPO": logs, **rates, **success, **classes},
    )


def _chosen(results: Results) -> Verdict:
    """The interval of the change lies above 0, on the pairs and on held-out right calls."""
    trained = mean_interval(results.of("dpo", "chosen_change"))
    gains = {
        arm: paired(
            [one["right_logprob"] for one in results.of(arm, "after")],
            [one["right_logprob"] for one in results.of(arm, "before")],
        )
        for arm in ("dpo", "sft")
    }
    return Verdict(
        trained.lower > 0 and gains["dpo"].lower > 0,
        f"Log-probability a token: {trained.value:+.3f} nats for the repairs that were trained on, "
        f"{gains['dpo'].value:+.3f} for the right calls of held-out tools.",
        {
            "change of trained repairs": trained,
            "change of right held-out calls, DPO": gains["dpo"],
            "change of right held-out calls, SFT": gains["sft"],
        },
    )


def draw(results: Results, panels: list[Any]) -> None:
    left, right = panels
    states = {
        "before": results.of("dpo", "before"),
        "after SFT": results.of("sft", "after"),
        "after DPO": results.of("dpo", "after"),
    }
    width = 0.8 / len(states)
    for place, ((label, judged), colour) in enumerate(zip(states.items(), COLOURS, strict=False)):
        calls = sum(one["calls"] for one in judged)
        rates = [wilson(sum(one["classes"][name] for one in judged), calls) for name in CLASSES]
        ends = [[r.value - r.lower for r in rates], [r.upper - r.value for r in rates]]
        spots = [n + (place - 1) * width for n in range(len(CLASSES))]
        left.bar(
            spots, [r.value for r in rates], width, yerr=ends, color=colour, label=label, capsize=2
        )
        success = mean_interval([one["success"] for one in judged])
        reach = [[success.value - success.lower], [success.upper - success.value]]
        right.bar(label, success.value, yerr=reach, color=colour, capsize=3)
    names = [name.replace("_", "\n") for name in CLASSES]
    left.set_xticks(range(len(CLASSES)), names, fontsize=7)
    left.set(ylabel="errors per call, held-out tools")
    left.legend()
    right.set(ylabel="right calls, held-out tools", ylim=(0, 1))


EXPERIMENT = Experiment(
    name="dpo",
    settings=Settings(),
    arms=("dpo", "sft"),
    claims=(
        Claim(
            "fewer",
            "DPO on pairs of own errors and their nearest repairs leaves at least 3 times fewer "
            "tool-call errors, on tools, arguments and longer prefixes that were held out, with "
            "no fewer right calls.",
            "a target of ours: 12% to 4% is often told of 3000 repairs, without a source",
        ),
        Claim(
            "beside_sft",
            "It leaves fewer errors than supervised learning of the same repairs.",
            "2305.18290 argues so for preferences; taken to repairs here",
        ),
        Claim(
            "chosen",
            "Repairs do not become less likely by it, nor do the right calls of held-out tools.",
            "a known failure of DPO (likelihood displacement, 2410.08847) that minimal pairs "
            "should spare",
        ),
    ),
    budget="the same pairs of 6000 practice calls, 80 steps of 32 pairs; learning rates were tried "
    "on three other seeds, where 1e-4 still broke copying on one: half of it was taken, untried",
    run_one=run_one,
    judge=judge,
    draw=draw,
    panels=2,
)
run = EXPERIMENT.run
