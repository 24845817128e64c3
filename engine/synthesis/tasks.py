"""Questions drawn from the graph by chains of relations, and the gates they have to pass."""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from engine.environments.kg_search import KnowledgeGraph
from engine.environments.protocol import Task
from engine.spec import hop_category

# Every gate counts what passed it, in this order: the funnel that people see.
GATES = ("drawn", "answerable", "unique", "no shortcut", "no hub", "new")

HUB_SHARE = 0.1
HUB_MIN = 5
TRIES_PER_TASK = 60
START_KINDS = ("airport", "city", "country")


@dataclass(frozen=True)
class Split:
    """Start entities of training questions and of held-out ones; no entity is in both."""

    training: tuple[str, ...]
    held_out: tuple[str, ...]


def split_entities(graph: KnowledgeGraph, share: float, seed: int) -> Split:
    """Holds out a share of the cities with all their airports; countries are for training only."""
    cities = [name for name, kind in graph.kinds.items() if kind == "city" and name in graph.facts]
    count = round(share * len(cities))
    chosen = random.Random(f"split {seed}").sample(cities, count)
    held_out = dict.fromkeys(
        name for city in chosen for name in (city, *graph.values(city, "airport"))
    )
    training = (name for name in graph.facts if name not in held_out)
    return Split(tuple(training), tuple(held_out))


def question(start: str, relations: Sequence[str]) -> str:
    """Names the relations in the order in which they are looked up."""
    chain = "'s ".join(relations)
    return f'What is "{start}"\'s {chain}?'


@dataclass(frozen=True)
class _Chain:
    start_kind: str
    relations: tuple[str, ...]


class TaskSource:
    """Draws tasks from one graph. The same seed and arguments give the same tasks."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph
        self._value_kinds = {
            (graph.kinds[entity], relation): graph.kinds[values[0]]
            for entity, held in graph.facts.items()
            for relation, values in held.items()
        }
        self._near: dict[str, dict[str, int]] = {}

    def draw(
        self,
        starts: Sequence[str],
        hops: int,
        count: int,
        seed: str,
        progress: Callable[[int], None] = lambda done: None,
    ) -> tuple[list[Task], dict[str, int]]:
        """Up to `count` tasks and what passed each gate; fewer where the graph has no more.

        Shapes (start kind and relations) are drawn evenly, so that frequent ones do not crowd out
        the rest. No entity may serve as bridge or answer in more than a tenth of the tasks.
        """
        rng = random.Random(f"tasks {hops} {seed}")
        by_kind: dict[str, list[str]] = {}
        for name in starts:
            by_kind.setdefault(self.graph.kinds[name], []).append(name)
        shapes = [chain for chain in self._chains(hops) if chain.start_kind in by_kind]
        hub_limit = max(HUB_MIN, round(HUB_SHARE * count))
        passed = dict.fromkeys(GATES, 0)
        used: Counter[str] = Counter()
        seen: set[str] = set()
        tasks: list[Task] = []
        for _ in range(TRIES_PER_TASK * count if shapes else 0):
            if len(tasks) == count:
                break
            shape = rng.choice(shapes)
            start = rng.choice(by_kind[shape.start_kind])
            for gate in self._gates(start, shape.relations, used, hub_limit, seen):
                passed[gate] += 1
                if gate == GATES[-1]:
                    task = self._task(start, shape.relations)
                    seen.add(task.id)
                    used.update(task.meta["path"][1:])
                    tasks.append(task)
                    progress(len(tasks))
        return tasks, passed

    def _gates(
        self,
        start: str,
        relations: Sequence[str],
        used: Counter[str],
        hub_limit: int,
        seen: set[str],
    ) -> Iterator[str]:
        """The gates that this question passes, one after the other, up to the first it fails."""
        yield "drawn"
        path, single = [start], True
        for relation in relations:
            values = self.graph.values(path[-1], relation)
            if not values:
                return
            single = single and len(values) == 1
            path.append(values[0])
        yield "answerable"
        if not single:
            return
        yield "unique"
        if self.lookups_needed(start, path[-1], len(relations)) < len(relations):
            return
        yield "no shortcut"
        if any(used[name] >= hub_limit for name in path[1:]):
            return
        yield "no hub"
        if _task_id(start, relations) not in seen:
            yield "new"

    def lookups_needed(self, start: str, answer: str, most: int) -> int:
        """The fewest lookups from `start` that show `answer`, over any relations; `most` if more.

        A question of n relations whose answer is seen in fewer is answerable with a bridge left
        out. It also has no entity twice on its way: the way could be cut short there.
        """
        near = self._near.get(start)
        if near is None or near[""] < most:
            near = self._near[start] = self._distances(start, most)
        return min(near.get(answer, most), most)

    def _distances(self, start: str, most: int) -> dict[str, int]:
        found = {"": most, start: 0}  # no entity has an empty name: its entry is the depth
        frontier = [start]
        for depth in range(1, most):
            reached = []
            for name in frontier:
                for values in self.graph.facts.get(name, {}).values():
                    for value in values:
                        if value not in found:
                            found[value] = depth
                            reached.append(value)
            frontier = reached
        return found

    def _chains(self, hops: int) -> list[_Chain]:
        """Every sequence of different relations that fits together by kind."""
        chains = []

        def grow(kind: str, relations: tuple[str, ...], start_kind: str) -> None:
            if len(relations) == hops:
                chains.append(_Chain(start_kind, relations))
                return
            for (holder, relation), value_kind in sorted(self._value_kinds.items()):
                if holder == kind and relation not in relations:
                    grow(value_kind, (*relations, relation), start_kind)

        for kind in START_KINDS:
            grow(kind, (), kind)
        return chains

    def _task(self, start: str, relations: Sequence[str]) -> Task:
        path = [start]
        for relation in relations:
            path.append(self.graph.values(path[-1], relation)[0])
        return Task(
            id=_task_id(start, relations),
            category=hop_category(len(relations)),
            prompt=question(start, relations),
            answer=path[-1],
            hops=len(relations),
            meta={"relations": list(relations), "path": path},
        )


def _task_id(start: str, relations: Sequence[str]) -> str:
    return hashlib.sha256("\n".join([start, *relations]).encode()).hexdigest()[:12]
