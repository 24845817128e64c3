"""The line of a run's stages: which begins with whose final weights, who teaches whom."""

from dataclasses import dataclass, field
from typing import Any

from django.db.models import Case, CharField, F, OuterRef, QuerySet, Subquery, When

from engine.spec import problems_of
from engine.spec.lineage import TrainedStage, needed_by, parent_of
from webapp.experiments.models import Checkpoint, Run, Stage, State

ORIGIN = "origin/checkpoint"  # where a fork keeps the checkpoint that it was started from
COLUMN, ROW, WIDTH, HEIGHT = 190, 58, 150, 40  # px of the drawing


@dataclass
class Node:
    """A stage that trains, as it is drawn."""

    index: int
    kind: str
    parent: int | None
    teachers: list[int]
    checkpoint: Checkpoint | None  # the final one, of the newest attempt
    completion: float | None  # on the held-out tasks, at its end
    x: int = 0
    y: int = 0


@dataclass(frozen=True)
class Edge:
    """From the right side of a node to the left side of another."""

    path: str
    teaches: bool


@dataclass(frozen=True)
class Lineage:
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    width: int = 0
    height: int = 0


def with_parents(checkpoints: QuerySet[Checkpoint]) -> QuerySet[Checkpoint]:
    """Each with `parent_id`: the checkpoint that its stage began with, None where there is none."""
    parents = Checkpoint.objects.filter(run=OuterRef("run"), path=OuterRef("parent_path"))
    newest = Subquery(parents.order_by("-created_at").values("pk")[:1], output_field=CharField())
    of_fork = When(parent_path=ORIGIN, then=F("run__checkpoint"))
    return checkpoints.annotate(parent_id=Case(of_fork, default=newest, output_field=CharField()))


def needed_later(checkpoint: Checkpoint) -> list[int]:
    """The stages that still need it: it ended its stage, and the run has not got through."""
    if not checkpoint.final or checkpoint.run.state == State.SUCCEEDED:
        return []
    return needed_by(_stages(checkpoint.run), checkpoint.stage)


def lineage_of(run: Run) -> Lineage | None:
    """None where at most one stage trains: there is nothing to draw."""
    stages = _stages(run)
    finals = {one.stage: one for one in run.checkpoints.filter(final=True).order_by("created_at")}
    done = Stage.objects.filter(attempt__run=run, state="done").order_by("attempt__number")
    rates = {one.index: one.summary.get("completion_rate") for one in done}
    nodes = [
        Node(
            at,
            stage.kind,
            parent_of(stages, at),
            stage.teachers_from(),
            finals.get(at),
            rate if isinstance(rate := rates.get(at), float) else None,
        )
        for at, stage in enumerate(stages)
        if isinstance(stage, TrainedStage)
    ]
    return _drawn(nodes) if len(nodes) > 1 else None


def _drawn(nodes: list[Node]) -> Lineage:
    """Children right of their parents and teachers, the first at its parent's height, the others
    below."""
    by_index = {node.index: node for node in nodes}
    rows = 0
    has_child: set[int] = set()
    for node in nodes:  # parents and teachers come before
        parent = by_index.get(node.parent) if node.parent is not None else None
        if parent is None or parent.index in has_child:
            node.y = rows * ROW
            rows += 1
        else:
            node.y = parent.y
        if parent is not None:
            has_child.add(parent.index)
        left = [by_index[teacher] for teacher in node.teachers] + ([parent] if parent else [])
        node.x = max((one.x + COLUMN for one in left), default=0)
    edges = [
        Edge(_curve(by_index[source], node), teaches)
        for node in nodes
        for source, teaches in [
            *([(node.parent, False)] if node.parent is not None else []),
            *((teacher, True) for teacher in node.teachers),
        ]
    ]
    return Lineage(nodes, edges, max(n.x for n in nodes) + WIDTH, max(n.y for n in nodes) + HEIGHT)


def _curve(source: Node, target: Node) -> str:
    x, y = source.x + WIDTH, source.y + HEIGHT // 2
    to_x, to_y = target.x, target.y + HEIGHT // 2
    middle = (x + to_x) // 2
    return f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"


def _stages(run: Run) -> list[Any]:
    """Of a spec of another version, or of somebody's own trainer: none."""
    spec, _ = problems_of(run.spec)
    return list(spec.stages) if spec is not None else []
