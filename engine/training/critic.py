"""The critic of PPO: a second model that says what return the policy expects from each token on."""

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from engine.algorithms.batch import TokenBatch
from engine.algorithms.values import explained_variance, value_losses
from engine.models.hybrid import HybridForCausalLM
from engine.models.logprobs import Rows
from engine.models.value_head import ValueHead
from engine.spec import RlStage, TrainerSpec
from engine.training.checkpoint import read_tensors
from engine.training.learner import Learner, Ranks
from engine.training.passes import Place


class Critic:
    """A copy of the policy with a value head, learning beside it.

    The value of a token is read where the token is predicted: it may not know the token itself.
    """

    def __init__(
        self, policy: HybridForCausalLM, dtype: torch.dtype, spec: TrainerSpec, ranks: Ranks
    ) -> None:
        self._model = copy.deepcopy(policy)
        self._head = ValueHead(policy.config.hidden_size)
        self._learner = Learner(self._model, dtype, spec, ranks, self._head)
        self._ranks = ranks

    def begin(self, stage: RlStage) -> None:
        """A fresh optimizer for a stage."""
        self._clip = stage.critic.value_clip
        self._learner.begin(stage.critic.optimizer, stage.steps * stage.updates_per_step)

    def values(self, batch: TokenBatch, groups: Sequence[int]) -> Tensor:
        """Of the tokens in the loss, [rows, tokens], 0 elsewhere, without gradient."""
        return self._learner.read(batch, groups, self._of_rows)

    def update(
        self, batch: TokenBatch, groups: Sequence[int], returns: Tensor, before: Tensor
    ) -> dict[str, float]:
        """One update towards the returns, values clipped around those before the step.

        returns, before: [rows, tokens]. The loss is a mean over all tokens of the batch.
        """
        share = 1 / batch.loss_tokens
        clipped = torch.zeros(1, dtype=torch.float64)

        def of_pass(rows: Rows, place: Place) -> Tensor:
            terms = value_losses(self._of_rows(rows), returns[place], before[place], self._clip)
            clipped.add_(terms.clipped.abs().sum())
            return share * terms.losses.sum()

        found = self._learner.gradient(batch, groups, of_pass)
        self._ranks.sum(clipped)
        figures = {
            "value_loss": found.loss,
            "value_clip_fraction": share * float(clipped),
            "critic_grad_norm": self._learner.step()["grad_norm"],
        }
        mask = batch.loss_mask
        explained = explained_variance(before[mask], returns[mask])
        return figures if explained is None else figures | {"explained_variance": explained}

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """File stem -> named tensors, for a checkpoint."""
        head = {f"head.{name}": p.detach() for name, p in self._head.named_parameters()}
        model = {name: p.detach() for name, p in self._model.named_parameters()}
        return {
            "critic": model | head,
            "critic_optimizer": self._learner.running_optimizer.tensors(),
        }

    def load(self, folder: Path) -> None:
        """The inverse of `tensors`, for a critic that has begun the same stage."""
        stored = read_tensors(folder, "critic")
        parameters = dict(self._model.named_parameters())
        parameters |= {f"head.{name}": p for name, p in self._head.named_parameters()}
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(stored[name])
        self._learner.refresh()
        self._learner.running_optimizer.load_tensors(read_tensors(folder, "critic_optimizer"))

    def _of_rows(self, rows: Rows) -> Tensor:
        values: Tensor = self._head(rows.hidden)
        return rows.each(values)
