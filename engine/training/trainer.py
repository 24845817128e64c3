"""The trainer: token batches to gradients, gradients to steps, steps to policy versions."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.algorithms.batch import TokenBatch, collate
from engine.algorithms.losses import LOSSES
from engine.algorithms.statistics import off_policy_statistics
from engine.algorithms.tokens import Terms, Tokens
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.optim.optimizer import StageOptimizer
from engine.planner.configs import from_spec
from engine.records.trajectory import Trajectory
from engine.spec import ExperimentSpec, RlStage, SftStage
from engine.training.checkpoint import read_checkpoint, read_tensors, save_checkpoint
from engine.training.passes import Place, passes, samples_work
from engine.training.precision import choose_precision
from engine.training.rl_batch import rl_batch
from engine.trees.statistics import Cost, Work, sharing

logger = logging.getLogger(__name__)

Objective = Callable[[Tensor, Place], Terms]  # log-probs [tokens] -> each one's part of the loss
AllReduce = Callable[[Tensor], None]  # sums a tensor over all ranks, in place


class Trainer:
    """Owns the weights and their version, which grows by one with every step.

    Parameters are fp32; where precision is bfloat16 the blocks compute in a bf16 copy. With
    `world` > 1 every rank is given the same batches and takes its share of the rows; `all_reduce`
    sums over the ranks. The loss then is the same as on one rank (one global denominator).
    """

    def __init__(
        self,
        spec: ExperimentSpec,
        config: HybridConfig,
        *,
        rank: int = 0,
        world: int = 1,
        all_reduce: AllReduce | None = None,
    ) -> None:
        if world > 1 and all_reduce is None:
            raise ValueError(f"{world} ranks need a function that sums over them")
        self.spec = spec
        self.rank, self.world, self._all_reduce = rank, world, all_reduce
        with torch.random.fork_rng():
            torch.manual_seed(spec.seed)
            self.model = HybridForCausalLM(config)
        self.dtype, sentence = choose_precision(spec.trainer.precision)
        logger.info(sentence)
        self._compute = self.model
        if self.dtype != torch.float32:
            self._compute = self.model.copy_in(self.dtype)
        self._cost = Cost.of(from_spec(spec.model, spec.name))
        self.version = 0
        self.stage: SftStage | RlStage | None = None
        self.optimizer: StageOptimizer | None = None

    def begin(self, stage: SftStage | RlStage) -> None:
        """Starts a stage with a fresh optimizer."""
        self.stage = stage
        self.optimizer = StageOptimizer(
            dict(self.model.named_parameters()),
            stage.optimizer,
            stage.steps,
            self.model.fused_matrices(),
            self.model.tables(),
        )

    @property
    def step(self) -> int:
        """Finished steps of this stage."""
        return self.optimizer.finished_steps if self.optimizer else 0

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights in fp32, for samplers."""
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def sft_step(self, demonstrations: Sequence[Trajectory]) -> dict[str, float]:
        """One step of supervised learning on the demonstrations' unmasked tokens."""
        segments = [segment for one in demonstrations for segment in one.segments]
        batch = collate(segments, [0.0] * len(segments))
        share = 1 / max(1, batch.loss_tokens)

        def likelihood(logprobs: Tensor, _: Place) -> Terms:
            return Terms(-share * logprobs, torch.zeros_like(logprobs, dtype=torch.bool))

        _, figures = self._update(batch, range(len(segments)), likelihood, 1.0)
        del figures["clip_fraction"]
        return figures

    def rl_step(self, groups: Sequence[Sequence[Trajectory]]) -> dict[str, float]:
        """One step of the stage's algorithm on whole groups of trajectories.

        Groups that teach nothing are left out of the loss; invalid rewards are masked. A batch in
        which nothing is left makes no update, yet counts as a step.
        """
        stage = self.stage
        if not isinstance(stage, RlStage):
            raise RuntimeError("rl_step needs a stage of kind rl: call begin first")
        how = stage.resolved()
        found, figures = rl_batch(groups, how, self.spec.environment.max_tokens)
        if found is None:
            self._optimizer().finished_steps += 1
            return figures
        batch = found.batch
        staleness = self.version - batch.versions[batch.loss_mask]
        if (staleness < 0).any():
            raise ValueError("A trajectory was sampled by a version that does not exist yet")

        def objective(logprobs: Tensor, place: Place) -> Terms:
            tokens = Tokens(
                logprobs,
                batch.behaviour[place],
                batch.advantages[place],
                found.trajectories[place[0]],
                how.bounds,
                how.correction,
            )
            terms = LOSSES[how.loss](tokens)
            return Terms(found.weights[place[0]] * terms.losses, terms.clipped)

        temperature = self.spec.rollout.temperature
        logprobs, update = self._update(batch, found.groups, objective, temperature)
        mask = batch.loss_mask
        cap = how.bounds.get("weight_max", math.inf)
        return {
            **figures,
            **update,
            **off_policy_statistics(logprobs[mask], batch.behaviour[mask], cap),
            "staleness_mean": float(staleness.double().mean()),
            "staleness_max": float(staleness.max()),
        }

    def save(
        self, folder: Path, meta: Mapping[str, Any], extra_files: Mapping[str, bytes]
    ) -> dict[str, dict[str, Any]]:
        """Writes a checkpoint folder, all or nothing; returns file -> {size, sha256}.

        `meta` (plain values) is kept beside version and step, `extra_files` verbatim.
        """
        return save_checkpoint(
            folder,
            self.model,
            {"optimizer": self._optimizer().tensors()},
            {**meta, "version": self.version, "step": self.step},
            extra_files,
        )

    def load(self, folder: Path) -> dict[str, Any]:
        """Continues from a checkpoint of the stage that was begun; returns its meta data.

        Raises CheckpointError where it is damaged. The version is the checkpoint's; a resumed run
        sets a higher one, since the old attempt may have published beyond it.
        """
        meta = read_checkpoint(folder)
        self.model.load_state_dict(read_tensors(folder, "model"))
        self._optimizer().load_tensors(read_tensors(folder, "optimizer"))
        self.version = int(meta["version"])
        self._refresh_copy()
        return meta

    def load_weights(self, folder: Path) -> None:
        """Takes the weights of a checkpoint folder, and nothing else.

        Raises CheckpointError where it is damaged.
        """
        read_checkpoint(folder)
        self.model.load_state_dict(read_tensors(folder, "model"))
        self._refresh_copy()

    def _optimizer(self) -> StageOptimizer:
        if self.optimizer is None:
            raise RuntimeError("No stage has begun: call begin first")
        return self.optimizer

    def _update(
        self,
        batch: TokenBatch,
        groups: Sequence[int],
        objective: Objective,
        temperature: float,
    ) -> tuple[Tensor, dict[str, float]]:
        """Gradient and step; returns the log-probs before it, [rows, tokens], and figures.

        `groups` numbers the group of each row.
        """
        optimizer = self._optimizer()
        loss_tokens = batch.loss_tokens
        all_logprobs = torch.zeros_like(batch.behaviour)
        totals = torch.zeros(7, dtype=torch.float64)  # loss, entropy, accuracy, clipped; work
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        how = self.spec.trainer
        balance_weight = self.model.config.router_aux_loss_coef / float(batch.lengths.sum())
        for one in passes(batch, groups, how.tree_merge, how.pack_tokens, self.rank, self.world):
            found, imbalance = one.run(self._compute, self.model.head_weight, temperature)
            terms = objective(found.logprobs, one.place)
            loss = terms.losses.sum()
            loss = loss + balance_weight * imbalance
            loss.backward()  # type: ignore[no-untyped-call]
            self._collect_gradients()
            all_logprobs[one.place] = found.logprobs.detach()
            sums = torch.stack([found.entropies.sum(), found.likeliest.sum(), terms.clipped.sum()])
            work = torch.tensor(astuple(one.work), dtype=torch.float64)
            totals += torch.cat([loss.detach()[None], sums / loss_tokens, work])
        self._sum_over_ranks(all_logprobs, totals, *(p.grad for p in self.model.parameters()))
        statistics = optimizer.step()
        self.version += 1
        self._refresh_copy()
        figures = {
            "loss": float(totals[0]),
            "entropy": float(totals[1]),
            "token_accuracy": float(totals[2]),
            "clip_fraction": float(totals[3]),
            "loss_tokens": float(loss_tokens),
            "batch_tokens": float(batch.lengths.sum()),
            **statistics,
        }
        if how.tree_merge != "off":
            figures |= sharing(samples_work(batch), Work(*totals[4:].tolist()), self._cost)
        return all_logprobs, figures

    @torch.no_grad()
    def _collect_gradients(self) -> None:
        """Adds what the copy's backward pass left to the fp32 gradients, piece by piece."""
        for master, copied in zip(self.model.parameters(), self._compute.parameters(), strict=True):
            if copied is not master and copied.grad is not None and master.grad is not None:
                master.grad += copied.grad
                copied.grad = None

    @torch.no_grad()
    def _refresh_copy(self) -> None:
        if self._compute is not self.model:
            for master, copied in zip(
                self.model.parameters(), self._compute.parameters(), strict=True
            ):
                if copied is not master:
                    copied.copy_(master)

    def _sum_over_ranks(self, *tensors: Tensor | None) -> None:
        if self._all_reduce is None:
            return
        present = [tensor for tensor in tensors if tensor is not None]
        flat = torch.cat([tensor.double().flatten() for tensor in present])
        self._all_reduce(flat)
        sizes = [tensor.numel() for tensor in present]
        for tensor, part in zip(present, torch.split(flat, sizes), strict=True):
            tensor.copy_(part.view_as(tensor))
