"""A run of the repair experiment: cold start, practice, learning from the repairs, judgement."""

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import Any, NamedTuple

from torch import Tensor

from bench.signature import Outcome
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
from engine.spec.dpo import OwnTokens
from engine.synthesis import Tokenizer
from engine.synthesis.repair import Pair, PairCollector, faults_of
from engine.training.preference import preference_step, references
from engine.training.supervised import sft_step
from engine.training.trainer import Trainer

LIMITS = EnvironmentSpec(max_turn_tokens=64, max_tokens=192)
SLOTS = 256


@dataclass(frozen=True)
class Settings:
    """Steps, the arms' learning rates, the smoothing of DPO, and whether an arm's loss is of all
    own tokens of a repair or of the first alone, were looked at on seeds from 1000 up.

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
    steps: int = 160
    batch: int = 32
    beta: float = 1.0
    dpo_lr: float = 5e-5
    dpo_smoothing: float = 0.1
    dpo_tokens: OwnTokens = "first"
    sft_lr: float = 3e-5
    sft_tokens: OwnTokens = "all"
    revision: int = 4


class Start(NamedTuple):
    """What both arms of a seed begin with; `before`: of the policy at the end of its cold start."""

    tools: Tools
    tokenizer: Tokenizer
    weights: dict[str, Tensor]
    pairs: list[Pair]
    before: dict[str, Any]


def run_one(settings: Settings, arm: str, seed: int) -> Outcome:
    start, stage = _start(settings, seed), _stage(settings, arm)
    trainer = _trainer(settings, start.tokenizer, seed)
    trainer.model.load_state_dict(start.weights)
    likely = _repairs_logprob(trainer, start.pairs)
    figures = _learn(trainer, start.pairs, stage, f"order {seed}")
    return {
        "pairs": len(start.pairs),
        "before": start.before,
        "after": _judged(settings, trainer, start.tools, start.tokenizer, seed),
        "chosen_change": _repairs_logprob(trainer, start.pairs) - likely,
        "accuracy": figures["accuracy"],
    }


def _stage(settings: Settings, arm: str) -> DpoStage:
    lr = settings.sft_lr if arm == "sft" else settings.dpo_lr
    return DpoStage(
        loss="sft" if arm == "sft" else "sigmoid",
        own_tokens=settings.sft_tokens if arm == "sft" else settings.dpo_tokens,
        beta=None if arm == "sft" else settings.beta,
        label_smoothing=0.0 if arm == "sft" else settings.dpo_smoothing,
        steps=settings.steps,
        batch_size=settings.batch,
        optimizer=OptimizerSpec(lr=lr, betas=(0.9, 0.98), weight_decay=0.0, warmup_steps=5),
    )


def _learn(trainer: Trainer, pairs: Sequence[Pair], stage: DpoStage, seed: str) -> dict[str, float]:
    """A stage from the weights as they are, which are its reference; figures of its last step."""
    trainer.begin(stage)
    known, rng, order = references(trainer, pairs, stage), random.Random(seed), list[int]()
    figures: dict[str, float] = {}
    for _ in range(stage.steps):
        if len(order) < stage.batch_size:  # an epoch is over
            order = rng.sample(range(len(pairs)), len(pairs))
        batch, order = order[: stage.batch_size], order[stage.batch_size :]
        mine = [pairs[n] for n in batch]
        figures = preference_step(trainer, mine, [known[n] for n in batch], stage)
    return figures


def _repairs_logprob(trainer: Trainer, pairs: Sequence[Pair]) -> float:
    """Of all own tokens of the repairs, in nats a token."""
    chosen = [each for each, _ in references(trainer, pairs, DpoStage(own_tokens="all"))]
    return sum(chosen) / sum(len(one.chosen) for one in pairs)


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
    before = _judged(settings, trainer, tools, tokenizer, seed)
    return Start(tools, tokenizer, trainer.weights(), collector.pairs, before)


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
