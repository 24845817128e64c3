"""Made-up names: tasks whose entities are random vocabulary pieces, so that only copying helps."""

import dataclasses
import random
from collections.abc import Sequence

from engine.environments.kg_search import KnowledgeGraph
from engine.environments.protocol import Task
from engine.synthesis.tasks import question

MAX_PIECES = 10
AGAIN_SHARE = 0.15  # of the pieces repeat the one before: names do, and copying stumbles there


def make_up(
    tasks: Sequence[Task], real: KnowledgeGraph, pieces: Sequence[str], seed: str
) -> tuple[list[Task], KnowledgeGraph]:
    """The tasks with a fresh name for every entity on the way, and the graph they are true in."""
    rng = random.Random(f"names {seed}")
    kinds: dict[str, str] = {}
    facts: dict[str, dict[str, tuple[str, ...]]] = {}
    made: list[Task] = []
    for number, task in enumerate(tasks):
        path: list[str] = []
        for entity in task.meta["path"]:
            name = _name(rng, pieces)
            while name in kinds or name in real.kinds:
                name = _name(rng, pieces)
            kinds[name] = real.kinds[entity]
            path.append(name)
        relations = task.meta["relations"]
        for entity, relation, value in zip(path, relations, path[1:], strict=False):
            facts[entity] = {relation: (value,)}
        made.append(
            dataclasses.replace(
                task,
                id=f"made-up-{number}",
                prompt=question(path[0], relations),
                answer=path[-1],
                meta={"relations": relations, "path": path, "made_up": True},
            )
        )
    return made, KnowledgeGraph(kinds, facts)


def _name(rng: random.Random, pieces: Sequence[str]) -> str:
    while True:
        drawn: list[str] = []
        for _ in range(rng.randint(1, MAX_PIECES)):
            again = drawn and rng.random() < AGAIN_SHARE
            drawn.append(drawn[-1] if again else rng.choice(pieces))
        if name := " ".join("".join(drawn).split()):
            return name
