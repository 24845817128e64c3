"""The trainer: token batches to gradients, gradients to steps, steps to policy versions."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.algorithms.batch import TokenBatch
from engine.algorithms.tokens import Terms
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.logprobs import Rows, TokenLogProbs
from engine.models.lora import (
    adapter_config,
    adapter_tensors,
    load_adapters,
    merged_model,
    merged_weights,
    weights_digest,
)
from engine.planner.configs import from_spec
from engine.spec import ExperimentSpec, RlStage
from engine.spec.lineage import TrainedStage
from engine.training.checkpoint import (
    CheckpointError,
    read_checkpoint,
    read_tensors,
    save_checkpoint,
)
from engine.training.critic import Critic
from engine.training.learner import AllReduce, Learner, Ranks
from engine.training.passes import Place, samples_work
from engine.training.precision import choose_precision
from engine.trees.statistics import Cost, sharing

ADAPTERS = "adapter/adapter_model"  # file stem, in a checkpoint of a stage that trains them
ADAPTER_CONFIG = "adapter/adapter_config.json"

logger = logging.getLogger(__name__)


class Seen(NamedTuple):
    """What an objective sees of a pass.

    tokens: log-probabilities and the like of the tokens in the loss, [N]; place: their rows and
    columns in the batch; rows and head: what they were computed from.
    """

    tokens: TokenLogProbs
    place: Place
    rows: Rows
    head: Tensor


Objective = Callable[[Seen], Terms]


class Trainer:
    """Owns the weights and their version, which grows by one with every step.

    Parameters are fp32; where precision is bfloat16 the blocks compute in a bf16 copy. With
    `world` > 1 every rank is given the same batches and takes its share of the rows; `all_reduce`
    sums over the ranks. The loss then is the same as on one rank (one global denominator).
    What a step does is in a file for each kind of stage: `supervised`, `reinforcement`, ...
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
        self.spec = spec
        self.ranks = Ranks(rank, world, all_reduce)
        with torch.random.fork_rng():
            torch.manual_seed(spec.seed)
            self.model = HybridForCausalLM(config)
        self.dtype, sentence = choose_precision(spec.trainer.precision)
        logger.info(sentence)
        self.policy = Learner(self.model, self.dtype, spec.trainer, self.ranks)
        self._cost = Cost.of(from_spec(spec.model, spec.name))
        self.version = 0
        self.stage: TrainedStage | None = None
        self.critic: Critic | None = None
        self.reference: HybridForCausalLM | None = None
        self.base: str | None = None  # digest of the weights that a stage of adapters began with
        self._updates = 1  # of the optimizer in a step

    def begin(self, stage: TrainedStage) -> None:
        """Starts a stage with fresh optimizers, from the weights as they are.

        They are the reference of a KL term, and what a critic starts from.
        """
        self.stage = stage
        self.critic = self.reference = None
        self.policy.take_in()
        self._updates = 1
        if isinstance(stage, RlStage):
            self._updates = stage.updates_per_step
            if stage.resolved().advantage == "gae":
                self.critic = Critic(self.policy.model, self.dtype, self.spec.trainer, self.ranks)
                self.critic.begin(stage)
            if stage.kl_weight:
                self.reference = self.policy.frozen()
        self.base = None
        if stage.lora is not None:
            self.base = weights_digest(self.model)
            self.policy.adapt(stage.lora, self.spec.seed)
        self.policy.begin(stage.optimizer, stage.steps * self._updates)

    @property
    def step(self) -> int:
        """Finished steps of this stage."""
        optimizer = self.policy.optimizer
        return optimizer.finished_steps // self._updates if optimizer else 0

    def skip_step(self) -> None:
        """A step in which nothing was to be learned: it counts, and the weights stay."""
        self.skip_updates(self._updates)

    def skip_updates(self, count: int) -> None:
        """Updates of a step for which nothing was left."""
        self.policy.running_optimizer.finished_steps += count

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights in fp32, for samplers; with adapters taken in, where there are."""
        if self.policy.adapted is not None:
            return merged_weights(self.policy.adapted)
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def logprobs(
        self,
        batch: TokenBatch,
        groups: Sequence[int],
        temperature: float,
        model: HybridForCausalLM | None = None,
    ) -> Tensor:
        """Of the tokens in the loss, [rows, tokens], 0 elsewhere, without gradient.

        model: a frozen one, instead of the policy as it is.
        """
        head = self.model.head_weight if model is None else model.head_weight
        return self.policy.read(
            batch, groups, lambda rows: rows.logprobs(head, temperature).logprobs, model
        )

    def update(
        self,
        batch: TokenBatch,
        groups: Sequence[int],
        objective: Objective,
        temperature: float,
    ) -> tuple[Tensor, dict[str, float]]:
        """One update of the policy; the log-probs before it, [rows, tokens], and figures.

        `groups` numbers the group of each row. The objective's losses are summed.
        """
        head, loss_tokens = self.model.head_weight, batch.loss_tokens
        logprobs = torch.zeros(batch.ids.shape, dtype=head.dtype)
        totals = torch.zeros(4, dtype=torch.float64)

        def of_pass(rows: Rows, place: Place) -> Tensor:
            tokens = rows.logprobs(head, temperature)
            terms = objective(Seen(tokens, place, rows, head))
            logprobs[place] = tokens.logprobs.detach()
            counted = [tokens.entropies, tokens.likeliest, terms.clipped > 0, terms.clipped < 0]
            totals.add_(torch.stack([one.sum().double() for one in counted]))
            return terms.losses.sum()

        loss, imbalance, work = self.policy.gradient(batch, groups, of_pass)
        self.ranks.sum(logprobs, totals)
        statistics = self.policy.step()
        entropy, accuracy, high, low = (totals / max(1, loss_tokens)).tolist()
        figures = {
            "loss": loss,
            "entropy": entropy,
            "token_accuracy": accuracy,
            "clip_fraction": high + low,
            "clip_fraction_high": high,
            "clip_fraction_low": low,
            "loss_tokens": float(loss_tokens),
            "batch_tokens": float(batch.lengths.sum()),
            **statistics,
        }
        if imbalance is not None:
            figures["loss"] += self.model.config.router_aux_loss_coef * imbalance
            figures["balancing_loss"] = imbalance
        if self.spec.trainer.tree_merge != "off":
            figures |= sharing(samples_work(batch), work, self._cost)
        return logprobs, figures

    def save(
        self, folder: Path, meta: Mapping[str, Any], extra_files: Mapping[str, bytes]
    ) -> dict[str, dict[str, Any]]:
        """Writes a checkpoint folder, all or nothing; returns file -> {size, sha256}.

        Its model has adapters taken in; they lie beside, in a folder that peft loads.

        `meta` (plain values) is kept beside version and step, `extra_files` verbatim.
        """
        tensors = {"optimizer": self.policy.running_optimizer.tensors()}
        if self.critic is not None:
            tensors |= self.critic.tensors()
        model, files = self.model, dict(extra_files)
        if (adapted := self.policy.adapted) is not None:
            model = merged_model(adapted)
            tensors[ADAPTERS] = adapter_tensors(adapted)
            files[ADAPTER_CONFIG] = adapter_config(adapted)
        kept = {**meta, "version": self.version, "step": self.step, "adapter_base": self.base}
        return save_checkpoint(folder, model, tensors, kept, files)

    def load(self, folder: Path) -> dict[str, Any]:
        """Continues from a checkpoint of the stage that was begun; returns its meta data.

        Raises CheckpointError where it is damaged, or its adapters belong to other weights than
        those that the stage was begun with. The version is the checkpoint's; a resumed run
        sets a higher one, since the old attempt may have published beyond it.
        """
        if self.policy.adapted is None:
            meta = self.load_weights(folder)
        else:
            meta = read_checkpoint(folder)
            if meta.get("adapter_base") not in (None, self.base):
                raise CheckpointError(
                    f"The adapters in {folder.name} were trained on other weights than those that "
                    "this stage begins with: begin it with the weights of the same checkpoint."
                )
            load_adapters(self.policy.adapted, read_tensors(folder, ADAPTERS))
            self.policy.refresh()
        self.policy.running_optimizer.load_tensors(read_tensors(folder, "optimizer"))
        if self.critic is not None:
            self.critic.load(folder)
        self.version = int(meta["version"])
        return meta

    def load_weights(self, folder: Path) -> dict[str, Any]:
        """Takes a checkpoint's weights and nothing else of it; returns its meta data.

        Raises CheckpointError where it is damaged.
        """
        meta = read_checkpoint(folder)
        self.policy.take_in()
        self.model.load_state_dict(read_tensors(folder, "model"))
        self.policy.refresh()
        return meta
