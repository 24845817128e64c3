"""The synthesise stage: everything a run learns from and is judged by, out of its spec alone."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from engine.environments.kg_search import KgSearch, KnowledgeGraph, task_graph
from engine.environments.protocol import Task
from engine.evaluation.plan import EvaluationPlan
from engine.records.trajectory import Trajectory
from engine.spec import ExperimentSpec, SynthesiseStage
from engine.synthesis.demonstrations import Demonstration, Demonstrator, tokenise
from engine.synthesis.made_up import make_up
from engine.synthesis.tasks import Split, TaskSource, split_entities
from engine.synthesis.tokenizer import Tokenizer

Progress = Callable[[int, int, str], None]  # done, total, what
PROGRESS_EVERY = 500
HELD_BACK = 64  # demonstrations that show how likely they are, while nothing learns from them


@dataclass(frozen=True)
class Synthesis:
    """What the stage made. `funnels`: by set of items, how many passed each gate, in order.

    `practice` are the training tasks that were not demonstrated (where all tasks of a number of
    hops were, all of them). `quick` are the tasks of evaluations during training; they have none in
    common with `held_out`. `held_back` demonstrate some of them, and nothing is learned from it.
    """

    graph: KnowledgeGraph
    split: Split
    training: list[Task]
    practice: list[Task]
    held_out: list[Task]
    quick: list[Task]
    tokenizer: Tokenizer
    demonstrations: list[Trajectory]
    held_back: list[Trajectory]
    funnels: dict[str, dict[str, int]]


def synthesise(
    spec: ExperimentSpec, progress: Progress = lambda done, total, what: None
) -> Synthesis:
    """Runs the spec's synthesise stage. Deterministic by the spec, but for clock times.

    Raises ValueError where the graph holds not one task of a number of hops that was asked for.
    """
    stage = spec.stages[0]
    if not isinstance(stage, SynthesiseStage):
        raise ValueError(f"The first stage is {stage.kind}; only synthesise makes tasks.")
    progress(0, 1, "graph")
    graph = task_graph(spec.environment.graph.cities)
    split = split_entities(graph, spec.environment.graph.held_out, spec.seed)
    funnels: dict[str, dict[str, int]] = {}
    source = TaskSource(graph)
    held_out, quick = _held_out_tasks(spec, source, split, funnels)
    training = _training_tasks(spec, stage, source, split, funnels, progress)

    real, to_rename = _to_demonstrate(stage, training, spec.seed)
    player = Demonstrator(KgSearch(graph, spec.environment), stage.detour_share, f"{spec.seed}")
    shown = list(_play(player, real, progress, "demonstrations"))
    funnels["demonstrations, real names"] = dict(player.counts)
    progress(0, 1, "tokenizer")
    tokenizer = Tokenizer.train(_texts(training, shown), spec.model.vocab_size)

    renamed, made_up_graph = make_up(to_rename, graph, tokenizer.name_pieces, f"{spec.seed}")
    made_up_environment = KgSearch(made_up_graph, spec.environment)
    player = Demonstrator(made_up_environment, stage.detour_share, f"made up {spec.seed}")
    shown += _play(player, renamed, progress, "demonstrations with made-up names")
    funnels["demonstrations, made-up names"] = dict(player.counts)

    random.Random(f"order {spec.seed}").shuffle(shown)
    records = tokenise(shown, tokenizer, spec.reward, _every(progress, len(shown), "tokens"))
    longest = spec.environment.max_tokens
    fitting = [record for record in records if len(record.segments[0].ids) <= longest]
    funnels["demonstrations"] = {"tokenised": len(records), "short enough": len(fitting)}
    return Synthesis(
        graph=graph,
        split=split,
        training=training,
        practice=_practice(training, {task.id for task in (*real, *to_rename)}),
        held_out=held_out,
        quick=quick,
        tokenizer=tokenizer,
        demonstrations=fitting,
        held_back=_held_back(spec, graph, quick, tokenizer),
        funnels=funnels,
    )


def _held_out_tasks(
    spec: ExperimentSpec, source: TaskSource, split: Split, funnels: dict[str, dict[str, int]]
) -> tuple[list[Task], list[Task]]:
    """Final and quick evaluation tasks, in equal parts per number of hops.

    They depend on the seed, the graph and the evaluation alone: nothing that is tuned moves them.
    """
    final: list[Task] = []
    quick: list[Task] = []
    numbers = spec.evaluation.hops
    for place, hops in enumerate(numbers):
        # Equal parts; what is left over goes to the first.
        of_final, of_quick = (
            total // len(numbers) + (place < total % len(numbers))
            for total in (spec.evaluation.tasks, spec.evaluation.quick_tasks)
        )
        tasks, passed = source.draw(
            split.held_out, hops, of_final + of_quick, f"held out {spec.seed}"
        )
        _refuse_none(tasks, hops, "held-out", spec)
        funnels[f"held-out tasks, {tasks[0].category}"] = passed
        final += tasks[:of_final]
        quick += tasks[of_final:]
    return final, quick


def _training_tasks(
    spec: ExperimentSpec,
    stage: SynthesiseStage,
    source: TaskSource,
    split: Split,
    funnels: dict[str, dict[str, int]],
    progress: Progress,
) -> list[Task]:
    training: list[Task] = []
    total = sum(stage.tasks.values())
    for hops, count in sorted(stage.tasks.items()):
        if not count:
            continue
        before = len(training)
        tasks, passed = source.draw(
            split.training,
            int(hops),
            count,
            f"training {spec.seed}",
            _every(progress, total, "tasks", before),
        )
        _refuse_none(tasks, int(hops), "training", spec)
        funnels[f"training tasks, {tasks[0].category}"] = passed
        training += tasks
    return training


def _refuse_none(tasks: Sequence[Task], hops: int, what: str, spec: ExperimentSpec) -> None:
    if not tasks:
        raise ValueError(
            f"A graph of {spec.environment.graph.cities} cities, {spec.environment.graph.held_out} "
            f"of them held out, has no {what} task of {hops} hops: take more cities or fewer hops."
        )


def _to_demonstrate(
    stage: SynthesiseStage, training: Sequence[Task], seed: int
) -> tuple[list[Task], list[Task]]:
    """Tasks to play under real names, and those to play under made-up ones.

    Where more demonstrations than tasks are asked for, tasks are played again.
    """
    real: list[Task] = []
    made_up: list[Task] = []
    for hops, count in sorted(stage.demonstrations.items()):
        tasks = [task for task in training if task.hops == int(hops)]
        random.Random(f"demonstrate {hops} {seed}").shuffle(tasks)
        chosen = list(islice(cycle(tasks), count))
        split = round(count * stage.made_up_share)
        made_up += chosen[:split]
        real += chosen[split:]
    return real, made_up


def _practice(training: Sequence[Task], demonstrated: set[str]) -> list[Task]:
    chosen: list[Task] = []
    for hops in sorted({task.hops for task in training}):
        tasks = [task for task in training if task.hops == hops]
        chosen += [task for task in tasks if task.id not in demonstrated] or tasks
    return chosen


def _play(
    player: Demonstrator, tasks: Sequence[Task], progress: Progress, what: str
) -> Iterator[Demonstration]:
    report = _every(progress, len(tasks), what)
    for done, task in enumerate(tasks, start=1):
        if shown := player.play(task):
            yield shown
        report(done)


def _held_back(
    spec: ExperimentSpec, graph: KnowledgeGraph, quick: Sequence[Task], tokenizer: Tokenizer
) -> list[Trajectory]:
    """Demonstrations of evaluation tasks, without detours, in equal parts per number of hops."""
    chosen = EvaluationPlan("quick", 1, 0.0, number=HELD_BACK).choose(quick)
    player = Demonstrator(KgSearch(graph, spec.environment), 0.0, f"held back {spec.seed}")
    played = [shown for task in chosen if (shown := player.play(task))]
    records = tokenise(played, tokenizer, spec.reward)
    longest = spec.environment.max_tokens
    return [record for record in records if len(record.segments[0].ids) <= longest]


def _texts(training: Sequence[Task], shown: Sequence[Demonstration]) -> Iterator[str]:
    """What the tokenizer is trained on: no held-out question is among it."""
    for task in training:
        yield task.prompt
    for one in shown:
        for turn in one.turns:
            yield turn.text
            yield turn.seen.text


def _every(progress: Progress, total: int, what: str, before: int = 0) -> Callable[[int], None]:
    """Passes every so many counts on, and the last one."""

    def report(done: int) -> None:
        if (before + done) % PROGRESS_EVERY == 0 or before + done == total:
            progress(before + done, total, what)

    return report
