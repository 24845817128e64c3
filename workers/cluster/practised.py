"""What stages with a set of their own learn from, kept on the run's storage: made once, of what
was played or of the rows of a dataset."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import zstandard

from engine.records.rows import Learned
from engine.records.trajectory import Trajectory
from engine.spec import DpoStage, ExperimentSpec, SftStage
from engine.spec.practice import PracticeSpec
from engine.synthesis.repair import Faults, Pair, PairCollector, faults_of
from workers.cluster import rehearsal, stored_rows, synthesised
from workers.cluster.played import Play, Played
from workers.cluster.storage import RunStorage

_PAIRS = "pairs.jsonl.zst"
_SUMMARY = "summary.json"  # written last
_REFERENCE = "reference.json"


def folder(index: int) -> str:
    return f"practice/stage-{index}"


def practice_play(spec: ExperimentSpec, index: int, practice: PracticeSpec) -> Play:
    """The practice tasks of a stage."""
    return Play(
        f"{folder(index)}/played",
        practice.dataset or "practice",
        None if practice.dataset else tuple(practice.hops),
        practice.tasks,
        practice.attempts,
        practice.temperature,
        f"{spec.seed} {index}",
    )


def held_out_play(spec: ExperimentSpec, index: int, stage: DpoStage, when: str) -> Play:
    """The held-out tasks on which errors are counted; the same `before` and `after`."""
    return Play(
        f"{folder(index)}/{when}",
        "held_out",
        None if spec.evaluation.dataset else tuple(spec.evaluation.hops),
        stage.judged_tasks,
        1,
        stage.practice.temperature,
        f"{spec.seed} {index} held out",
    )


def summary(storage: RunStorage, index: int) -> dict[str, Any] | None:
    """Of what a stage learns from; None where it was not made yet."""
    path = storage.fetch(f"{folder(index)}/{_SUMMARY}")
    if path is None:
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def make(
    storage: RunStorage, spec: ExperimentSpec, index: int, rehearses: bool = False
) -> dict[str, Any]:
    """Make what a stage learns from of what it played or of a dataset, and keep it; the summary.

    rehearses: where nothing that was played can be learned, demonstrations stand in for it.
    """
    stage = spec.stages[index]
    assert isinstance(stage, DpoStage | SftStage)
    played = Played(storage, f"{folder(index)}/played")
    if stage.dataset is not None:
        found = _read_rows(storage, spec, index, stage, stage.dataset)
    elif isinstance(stage, DpoStage):
        found = _make_pairs(storage, spec, index, stage, played, rehearses)
    else:
        found = _keep_accepted(storage, spec, index, stage, played, rehearses)
    storage.write_json(f"{folder(index)}/{_SUMMARY}", found)
    return found


def _make_pairs(
    storage: RunStorage,
    spec: ExperimentSpec,
    index: int,
    stage: DpoStage,
    played: Played,
    rehearses: bool,
) -> dict[str, Any]:
    from engine.environments.kg_search import task_graph
    from engine.environments.kg_search.repair import KgRepairer

    collector = PairCollector(
        KgRepairer(task_graph(spec.environment.graph.cities)),
        synthesised.tokenizer(synthesised.folder(storage)),
        stage.pairs_per_class,
    )

    def passing() -> Iterator[Trajectory]:
        for one in played:
            collector.add(one)
            yield one

    faults = faults_of(passing())
    pairs = collector.pairs
    if rehearses and not pairs:
        pairs = rehearsal.pairs(synthesised.folder(storage), spec.seed)
    _write_pairs(storage, index, pairs)
    return {
        "pairs": len(pairs),
        "played": faults.trajectories,
        "calls": faults.calls,
        "classes": {name: dict(counts) for name, counts in sorted(collector.counts.items())},
    }


def _keep_accepted(
    storage: RunStorage,
    spec: ExperimentSpec,
    index: int,
    stage: SftStage,
    played: Played,
    rehearses: bool,
) -> dict[str, Any]:
    """What the verifier accepted, without doubles and at most so many of a task."""
    kept: list[Trajectory] = []
    of_task: Counter[str] = Counter()
    seen: set[tuple[int, ...]] = set()
    total = accepted = 0
    for one in played:
        if not one.stop_reason.is_policy:
            continue
        total += 1
        accepted += one.success
        ids = tuple(token for segment in one.segments for token in segment.ids)
        if one.success and ids not in seen and of_task[one.task_id] < stage.kept_per_prompt:
            seen.add(ids)
            of_task[one.task_id] += 1
            kept.append(one)
    if rehearses and not kept:
        kept = rehearsal.accepted(synthesised.folder(storage), spec.seed)
    tokens = sum(sum(segment.loss_mask) for one in kept for segment in one.segments)
    if kept:
        _write_kept(storage, index, kept)
    return {
        "played": total,
        "acceptance_rate": accepted / total if total else 0.0,
        "kept": len(kept),
        "prompts_kept": len(of_task),
        "tokens_per_prompt": tokens / len(of_task) if of_task else 0.0,
    }


def _read_rows(
    storage: RunStorage, spec: ExperimentSpec, index: int, stage: DpoStage | SftStage, version: str
) -> dict[str, Any]:
    """What can be learned of a version of a dataset."""
    if isinstance(stage, DpoStage):
        pairs, found = stored_rows.pairs(storage, spec, stage, version)
        _write_pairs(storage, index, pairs)
        return {"pairs": len(pairs), **found}
    rows, found = stored_rows.trajectories(storage, spec, version)
    if rows:
        _write_kept(storage, index, rows)
    return {"kept": len(rows), **found}


def _write_pairs(storage: RunStorage, index: int, pairs: Sequence[Pair]) -> None:
    name = f"{folder(index)}/{_PAIRS}"
    with zstandard.open(storage.path(name), "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(vars(pair)) + "\n" for pair in pairs)
    storage.publish(name)


def _write_kept(storage: RunStorage, index: int, kept: Sequence[Trajectory | Learned]) -> None:
    name = f"{folder(index)}/accepted"
    storage.path(name).mkdir(parents=True, exist_ok=True)
    synthesised.write_demonstrations(storage.path(name), kept)
    storage.publish(name)


def accepted(
    storage: RunStorage, index: int, batch_size: int, seed: int
) -> synthesised.Demonstrations:
    """The trajectories that a stage kept to learn from. Raises FileNotFoundError without."""
    found = storage.fetch(f"{folder(index)}/accepted")
    if found is None:
        raise FileNotFoundError(f"Stage {index} kept no accepted rollouts in {storage.place}.")
    return synthesised.Demonstrations(found, batch_size, seed)


def faults(storage: RunStorage, play: Play) -> Faults:
    """How often calls failed in what was played."""
    return faults_of(Played(storage, play.folder))


class Pairs:
    """The pairs of a stage, and in which order they are learned: the same in every process."""

    def __init__(self, storage: RunStorage, index: int, batch_size: int, seed: int) -> None:
        path = storage.fetch(f"{folder(index)}/{_PAIRS}")
        if path is None:
            raise FileNotFoundError(f"Stage {index} made no pairs in {storage.place}.")
        with zstandard.open(path, "rt", encoding="utf-8") as file:
            self.all = [Pair(**json.loads(line)) for line in file]
        self._batch_size = min(batch_size, len(self.all))
        self._seed = seed

    def batch(self, step: int) -> list[int]:
        """Places in `all` of the pairs of a step, counted from 0."""
        epoch, place = divmod(step, len(self.all) // self._batch_size)
        order = list(range(len(self.all)))
        random.Random(f"pairs {self._seed} {epoch}").shuffle(order)
        return order[place * self._batch_size : (place + 1) * self._batch_size]


def keep_reference(storage: RunStorage, index: int, reference: list[tuple[float, float]]) -> None:
    storage.write_json(f"{folder(index)}/{_REFERENCE}", reference)


def reference(storage: RunStorage, index: int) -> list[tuple[float, float]] | None:
    """Log-probabilities of both sides of each pair at the start of the stage, None before that."""
    path = storage.fetch(f"{folder(index)}/{_REFERENCE}")
    if path is None:
        return None
    return [(chosen, rejected) for chosen, rejected in json.loads(path.read_text())]
