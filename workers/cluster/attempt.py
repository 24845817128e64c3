"""One attempt of a run: what it was told, what it works with, and how far it has come."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.durable import remove_unfinished
from engine.records.events import CheckpointSaved, StageChange
from engine.spec import ExperimentSpec
from engine.spec.lineage import TrainedStage, parent_of
from engine.telemetry.reporter import Reporter
from workers.cluster import limits
from workers.cluster.control import Control
from workers.cluster.crew import Crew
from workers.cluster.pool_actor import Totals
from workers.cluster.reporting import Address
from workers.cluster.rewarding import Rewarding
from workers.cluster.storage import RunStorage


def _latest_file(attempt: int) -> str:
    """Names the newest checkpoint of one attempt: one that still runs somewhere, though a newer
    one was started, cannot move where the next goes on."""
    return f"checkpoints/attempt-{attempt}/latest.json"


def final_file(attempt: int, stage: int) -> str:
    """Names the checkpoint with which a stage ended in one attempt."""
    return f"checkpoints/attempt-{attempt}/final-of-stage-{stage}.json"


@dataclass(frozen=True)
class Position:
    """A finished step of a stage, and where its checkpoint lies in the run's storage."""

    stage: int
    step: int
    version: int
    path: str


@dataclass
class Attempt:
    spec: ExperimentSpec
    number: int
    address: Address
    storage: RunStorage
    control: Control
    reporter: Reporter
    crew: Crew
    resume: Position | None = None
    origin: Position | None = None  # the checkpoint of another run that this one starts from
    rehearses: bool = False  # a dry run: see `rehearsal`
    totals: Totals = field(default_factory=Totals)
    version: int = 0  # of the newest published weights
    weights: list[Any] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    saved: tuple[int, int] = (-1, 0)  # stage and step of the newest checkpoint
    rewarding: Rewarding = field(init=False)  # of the stage at hand

    def __post_init__(self) -> None:
        self.rewarding = Rewarding(self.spec)

    def steps_before(self, index: int) -> int:
        """Trainer steps of the stages before this one."""
        return sum(getattr(stage, "steps", 0) for stage in self.spec.stages[:index])

    def enter(self, index: int, step: int = 0) -> None:
        """Say that a stage has begun, or how far it is."""
        self.tell(index, step, getattr(self.spec.stages[index], "steps", 0))

    def tell(self, index: int, step: int, steps: int) -> None:
        """Say how far a stage is, in steps of its own; `steps` 0: nobody knows."""
        stage = self.spec.stages[index]
        self.control.at(stage.kind, index, step)
        self.reporter.spool.add(
            StageChange, index=index, name=stage.kind, state="running", step=step, steps=steps
        )

    def leave(self, index: int, summary: dict[str, Any]) -> None:
        steps = self.ended_at(index) or 0
        self.reporter.spool.add(
            StageChange,
            index=index,
            name=self.spec.stages[index].kind,
            state="done",
            step=steps,
            steps=steps,
            summary=summary,
        )

    def start_step(self, index: int) -> int:
        """The step of this stage from which the attempt goes on."""
        return self.resume.step if self.resume and self.resume.stage == index else 0

    def final(self, index: int) -> Position:
        """The checkpoint with which a finished stage ended, in this attempt or one before it."""
        found = self._final(index)
        if found is None:
            raise FileNotFoundError(
                f"Stage {index} ({self.spec.stages[index].kind}) left no final checkpoint on the "
                "run's storage, and a later stage needs it."
            )
        return found

    def ended_at(self, index: int) -> int | None:
        """The step after which a stage that trains took no other, before its last or not; None
        where it goes on, and for stages that do not train."""
        found = self._final(index)
        return None if found is None else found.step

    def _final(self, index: int) -> Position | None:
        for number in range(self.number, 0, -1):
            path = self.storage.fetch(final_file(number, index))
            if path is not None:
                return Position(**json.loads(path.read_text()))
        return None

    def parent(self, index: int) -> Position | None:
        """The final checkpoint that a stage begins with, of an earlier stage or of another run;
        None: the model as it was made."""
        parent = parent_of(self.spec.stages, index)
        return self.origin if parent is None else self.final(parent)

    def _teachers(self, index: int) -> list[str]:
        """The final checkpoints of a stage's teachers, in their order."""
        stage = self.spec.stages[index]
        sources = stage.teachers_from() if isinstance(stage, TrainedStage) else []
        return [self.final(source).path for source in sources]

    def begin(self, index: int) -> None:
        """Have the trainers begin a stage with its parent's final weights; where it is resumed,
        from its checkpoint."""
        resumed = self.resume is not None and self.resume.stage == index
        checkpoint = self.resume.path if self.resume is not None and resumed else None
        before = self.steps_before(index)
        parent = self.parent(index)
        if parent is not None:
            kind = self.spec.stages[index].kind
            self.reporter.log(f"Stage {index} ({kind}) begins with {parent.path}.")
        metas = self.crew.all_trainers(
            "begin",
            index,
            before,
            checkpoint,
            parent.path if parent is not None else None,
            self._teachers(index),
            limit_s=limits.START_S,
            what="the trainer to begin",
        )
        self.rewarding = Rewarding(self.spec)
        if checkpoint is not None:
            self.totals = Totals(**metas[0]["totals"])
            self.rewarding = Rewarding(self.spec, metas[0].get("curriculum"))
            self.raise_version(metas[0]["version"] + 1)
            self.saved = (index, self.start_step(index))
        self.totals.trainer_step = before + self.start_step(index)

    def load_parent(self, index: int) -> None:
        """Have the trainers take the weights that a stage which does not train is about."""
        parent = self.parent(index)
        if parent is None:
            raise ValueError(f"Stage {index} has no trained weights: no stage before it trains.")
        self.crew.all_trainers(
            "take_weights", parent.path, limit_s=limits.START_S, what="the trainer to load weights"
        )

    def raise_version(self, version: int) -> None:
        self.crew.all_trainers(
            "raise_version", version, limit_s=limits.CALL_S, what="the trainer to take a version"
        )

    def fetch_weights(self) -> None:
        """Put the trainer's weights where rollouts can take them."""
        call = self.crew.trainers[0].weights.remote()
        self.version, self.weights = self.crew.wait([call], limits.PUBLISH_S, "the weights")[0]

    def save(self, index: int, step: int, final: bool = False) -> None:
        """Write a checkpoint; complete, and known to a later attempt, on return."""
        if self.saved == (index, step) and not final:  # a stage may end where another was stopped
            return
        name = f"checkpoints/attempt-{self.number}/stage-{index}-step-{step:06d}"
        parent = self.parent(index)
        meta = {
            "stage": index,
            "totals": asdict(self.totals),
            "parent": asdict(parent) if parent is not None else None,
            "curriculum": self.rewarding.to_keep(),
        }
        call = self.crew.trainers[0].save.remote(name, meta)
        version, files = self.crew.wait([call], limits.SAVE_S, "the checkpoint")[0]
        position = asdict(Position(index, step, version, name))
        if final:  # first: where the latest is the final one, nobody writes this any more
            self.storage.write_json(final_file(self.number, index), position)
        self.storage.write_json(_latest_file(self.number), position)
        self.reporter.spool.add(
            CheckpointSaved,
            stage=index,
            step=step,
            version=version,
            path=name,
            files=files,
            final=final,
            parent=parent.path if parent is not None else "",
        )
        self.saved = (index, step)
        self.clean()

    def clean(self) -> None:
        """Remove what attempts before this one were writing when they died. They were revoked, but
        one that does not know it yet may still write: not what changed of late."""
        for earlier in range(1, self.number):
            folder = self.storage.folder / f"checkpoints/attempt-{earlier}"
            remove_unfinished(folder, quiet_s=limits.SAVE_S)


def newest_position(number: int, told: Position | None, storage: RunStorage) -> Position | None:
    """Where attempt `number` goes on: the newest complete checkpoint of the attempts before it.

    Storage knows best: the control plane may not have heard of the last one when the attempt
    before died.
    """
    for earlier in range(number - 1, 0, -1):
        path = storage.fetch(_latest_file(earlier))
        if path is not None:
            return Position(**json.loads(path.read_text()))
    return told
