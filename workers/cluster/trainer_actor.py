"""One rank of the trainer as a Ray actor. The driver has every rank take the same step."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import ray

from engine.records.events import TreeSnapshot
from engine.records.trajectory import Trajectory
from engine.spec import DpoStage, ExperimentSpec, OpdStage, SftStage, hop_category
from engine.spec.lineage import TrainedStage
from engine.synthesis.repair import Faults
from workers.cluster import limits, practised, synthesised, trained
from workers.cluster.played import Play
from workers.cluster.reporting import Address
from workers.cluster.storage import RunStorage

if TYPE_CHECKING:
    from engine.training.teachers import Teacher
    from engine.training.token_record import TokenRecord

BUSY = "time/busy_share_trainer"

# torch is imported where it is used: the driver imports this module and must stay small.


class TrainerActor:
    def __init__(self, spec: str, rank: int, world: int, storage: str, address: Address) -> None:
        """`spec`: as JSON; `storage`: the run's, a path or URL."""
        self._spec = ExperimentSpec.model_validate_json(spec)
        self._rank, self._world = rank, world
        self._reporter = address.reporter(f"trainer-{rank}")
        self._trainer: Any = None
        self._demonstrations: synthesised.Demonstrations | None = None
        self._pairs: practised.Pairs | None = None
        self._reference: list[tuple[float, float]] = []  # of each pair
        self._held_back: list[Trajectory] | None = None
        self._teachers: list[Teacher] = []
        self._storage = RunStorage(storage)
        self._steps_before = 0  # trainer steps of the stages before this one
        self._weights: Any = None  # keeps the newest published weights alive

    def rendezvous(self) -> str:
        """An address at which the ranks can meet; asked of rank 0."""
        import socket

        host = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        with socket.socket() as probe:
            probe.bind((host, 0))
            return f"tcp://{host}:{probe.getsockname()[1]}"

    def load(self, rendezvous: str) -> str:
        """Make the model for the synthesised tokenizer; one sentence on the precision."""
        import torch
        import transformers

        from engine.models.hybrid import HybridConfig
        from engine.training.trainer import Trainer

        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        torch.set_num_threads(self._spec.trainer.threads)
        tokenizer = synthesised.tokenizer(synthesised.folder(self._storage))
        config = HybridConfig.from_spec(
            self._spec.model, tokenizer.vocab_size, tokenizer.pad_id, tokenizer.end_id
        )
        if self._world > 1:
            torch.distributed.init_process_group(
                "gloo",
                init_method=rendezvous,
                rank=self._rank,
                world_size=self._world,
                timeout=timedelta(seconds=limits.STEP_S),
            )
        self._trainer = Trainer(
            self._spec,
            config,
            rank=self._rank,
            world=self._world,
            all_reduce=torch.distributed.all_reduce if self._world > 1 else None,
        )
        return f"{self._trainer.model.num_parameters():,} parameters, {self._trainer.dtype}"

    def begin(
        self,
        index: int,
        steps_before: int,
        checkpoint: str | None,
        parent: str | None,
        teachers: list[str],
    ) -> dict[str, Any]:
        """Start a stage with the weights of `parent`, then take up `checkpoint`, which is of this
        stage, where one is given; its meta data. `teachers`: checkpoints that teach the stage."""
        stage = self._stage(index)
        self._teachers = []  # those of the stage before make room
        if parent is not None:
            self.take_weights(parent)
        self._trainer.begin(stage)
        meta: dict[str, Any] = {}
        if checkpoint is not None:
            with self._storage.borrow(checkpoint) as folder:
                meta = self._trainer.load(folder)
        self._steps_before = steps_before
        self._demonstrations = self._shown(stage, self._spec.seed + index)
        self._teachers = self._taught_by(stage, teachers)
        return meta

    def take_weights(self, checkpoint: str) -> None:
        with self._storage.borrow(checkpoint) as folder:
            self._trainer.load_weights(folder)
        self._trainer.version += 1  # samplers that hold other weights of this version reload

    def practised(self, index: int, rehearses: bool) -> dict[str, Any]:
        """Make what a stage learns from of what it played or of a dataset; its summary."""
        return practised.make(self._storage, self._spec, index, rehearses)

    def faults(self, play: Play) -> Faults:
        """How often calls failed in what was played."""
        return practised.faults(self._storage, play)

    def take_up(self, index: int, known: bool) -> None:
        """Load what was made for a stage. known: whether the reference of pairs lies on
        the storage; otherwise it is computed, with the weights as they are, and kept there."""
        stage, seed = self._spec.stages[index], self._spec.seed + index
        if isinstance(stage, SftStage):
            self._demonstrations = practised.accepted(self._storage, index, stage.batch_size, seed)
            return
        from engine.training.preference import references

        assert isinstance(stage, DpoStage)
        self._pairs = practised.Pairs(self._storage, index, stage.batch_size, seed)
        found = practised.reference(self._storage, index) if known else None
        if found is None:
            with self._reporter.phases.phase("train"):
                found = references(self._trainer, self._pairs.all, stage)
            if self._rank == 0:
                practised.keep_reference(self._storage, index, found)
        self._reference = found

    def sft_steps(self, count: int) -> list[dict[str, float]]:
        """Take this many steps of supervised learning; figures of each, with its seconds."""
        from engine.training.supervised import sft_step

        demonstrations = self._demonstrations
        assert demonstrations is not None
        return self._steps(count, lambda step: sft_step(self._trainer, demonstrations.batch(step)))

    def dpo_steps(self, count: int) -> list[dict[str, float]]:
        """Take this many steps of preference learning; figures of each, with its seconds."""
        from engine.training.preference import preference_step

        pairs, stage = self._pairs, self._trainer.stage
        assert pairs is not None

        def one_step(step: int) -> dict[str, float]:
            places = pairs.batch(step)
            batch = [pairs.all[place] for place in places]
            reference = [self._reference[place] for place in places]
            return preference_step(self._trainer, batch, reference, stage)

        return self._steps(count, one_step)

    def _steps(
        self, count: int, one_step: Callable[[int], dict[str, float]]
    ) -> list[dict[str, float]]:
        figures = []
        for _ in range(count):
            started = time.monotonic()
            with self._reporter.phases.phase("train"):
                found = one_step(self._trainer.step)
            figures.append({**found, "step_s": time.monotonic() - started})
            self._tick()
        return figures

    def learn_from_groups(self, step: int, pool: Any) -> dict[str, float]:
        """Train on the groups that the pool set aside for this step."""
        with self._reporter.phases.phase("queue"):
            groups = ray.get(pool.batch.remote(step), timeout=limits.CALL_S)
        started = time.monotonic()
        with self._reporter.phases.phase("train"):
            batch = [group.trajectories() for group in groups]
            record = trained.record_of(self._trainer.stage, groups)
            version = self._trainer.version
            found = self._learn_from(batch, step, record)
            if record is not None and self._rank == 0:
                trained.report(self._reporter, record, self._steps_before + step, version)
        step_s = time.monotonic() - started
        if step == 1 or step % self._spec.evaluation.every_steps == 0:
            self._show_tree(batch)
        self._tick()
        return {**found, "step_s": step_s}

    def judge_demonstrations(self) -> dict[str, float]:
        """How likely the weights find demonstrations that nothing learns from; empty without."""
        from engine.training.supervised import judge

        if self._held_back is None:
            self._held_back = synthesised.held_back(synthesised.folder(self._storage))
        return judge(self._trainer, self._held_back) if self._held_back else {}

    def weights(self) -> tuple[int, list[Any]]:
        """The version, and a reference to its weights (numpy, float32) in the object store."""
        with self._reporter.phases.phase("sync"):
            arrays = {name: tensor.numpy() for name, tensor in self._trainer.weights().items()}
            self._weights = ray.put(arrays)
        return self._trainer.version, [self._weights]

    def save(self, name: str, meta: dict[str, Any]) -> tuple[int, dict[str, dict[str, Any]]]:
        """Put a checkpoint on the run's storage; its version, and its files as
        name -> {size, sha256}."""
        extra = synthesised.tokenizer_files(synthesised.folder(self._storage))
        files = self._trainer.save(self._storage.path(name), meta, extra)
        self._storage.publish(name)
        return self._trainer.version, files

    def raise_version(self, version: int) -> None:
        """Call the weights this version, unless theirs is higher: versions never go back."""
        self._trainer.version = max(self._trainer.version, version)

    def close(self, timeout_s: float) -> bool:
        return self._reporter.close(timeout_s)

    def _stage(self, index: int) -> TrainedStage:
        stage = self._spec.stages[index]
        assert isinstance(stage, TrainedStage)
        return stage

    def _learn_from(
        self, groups: list[list[Trajectory]], step: int, record: "TokenRecord | None"
    ) -> dict[str, float]:
        from engine.training.distillation import opd_step
        from engine.training.reinforcement import rl_step

        if not isinstance(self._trainer.stage, OpdStage):
            return rl_step(self._trainer, groups, record)
        shown = self._demonstrations.batch(step - 1) if self._demonstrations else []
        return opd_step(self._trainer, self._teachers, groups, shown, record)

    def _shown(self, stage: TrainedStage, seed: int) -> synthesised.Demonstrations | None:
        """The demonstrations that the stage learns from."""
        if isinstance(stage, SftStage) and stage.source == "demonstrations":
            folder = synthesised.folder(self._storage)
            return synthesised.Demonstrations(folder, stage.batch_size, seed)
        if isinstance(stage, OpdStage) and (batch_size := stage.demonstrations_per_step):
            folder = synthesised.folder(self._storage)
            categories = {hop_category(hops) for hops in stage.hops}
            return synthesised.Demonstrations(folder, batch_size, seed, categories)
        return None

    def _taught_by(self, stage: TrainedStage, checkpoints: list[str]) -> "list[Teacher]":
        from engine.training.teachers import load_teachers

        if not isinstance(stage, OpdStage):
            return []
        tokenizer = synthesised.tokenizer_files(synthesised.folder(self._storage))
        borrow = self._storage.borrow
        return load_teachers(
            self._trainer, stage.teachers, checkpoints, borrow, tokenizer, self._tell
        )

    def _tell(self, sentence: str) -> None:
        if self._rank == 0:
            self._reporter.log(sentence)

    def _show_tree(self, batch: list[list[Trajectory]]) -> None:
        """What the batch shared, for people, as often as the model is judged."""
        from engine.trees.statistics import batch_icicle

        if self._rank > 0 or self._spec.trainer.tree_merge == "off":
            return
        found = batch_icicle(batch)
        if found is not None:
            step = self._steps_before + self._trainer.step
            self._reporter.spool.add(TreeSnapshot, step=step, **vars(found))

    def _tick(self) -> None:
        step = self._steps_before + self._trainer.step

        def report(share: float) -> None:
            self._reporter.metrics(step, {BUSY: share})

        self._reporter.tick(report if self._rank == 0 else None)
