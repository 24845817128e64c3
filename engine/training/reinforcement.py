"""A step of reinforcement learning: groups of trajectories to one or several updates."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch
from torch import Tensor

from engine.algorithms.corrections import (
    correction_weights,
    negative_drift_mask,
    sequence_mean,
)
from engine.algorithms.divergence import kl_estimate
from engine.algorithms.losses import LOSSES
from engine.algorithms.statistics import off_policy_statistics
from engine.algorithms.tokens import Terms, Tokens
from engine.records.trained import LeftOut
from engine.records.trajectory import Trajectory
from engine.spec import RlStage
from engine.spec.algorithms import Algorithm
from engine.training.credit import credit
from engine.training.critic import Critic
from engine.training.passes import Place
from engine.training.rl_batch import RlBatch, deal, gather, keep_rows, reward_figures
from engine.training.token_record import TokenRecord
from engine.training.trainer import Objective, Seen, Trainer


def rl_step(
    trainer: Trainer,
    groups: Sequence[Sequence[Trajectory]],
    record: TokenRecord | None = None,
) -> dict[str, float]:
    """One step of the stage's algorithm on whole groups of trajectories; its figures.

    Trajectories without a reward of their own are left out. A batch in which nothing is to be
    learned makes no update, yet counts as a step. record: is told what the loss sees of each token.

    Raises ValueError for a token of a version that does not exist yet.
    """
    stage = trainer.stage
    if not isinstance(stage, RlStage):
        raise RuntimeError("rl_step needs a stage of kind rl: call begin first")
    figures = reward_figures(groups)
    if record is not None:
        record.left_out |= _left_out(groups, mask_truncated=stage.mask_truncated)
    found = gather(groups, mask_truncated=stage.mask_truncated)
    if found is None:
        trainer.skip_step()
        return figures | {"zero_variance_share": 1.0}
    _check_versions(found, trainer.version)
    step = _Step(trainer, stage, stage.resolved(), found, record)
    figures |= step.estimate(groups)
    warming = trainer.critic is not None and trainer.step < stage.critic.warmup_steps
    if warming and record is not None:
        record.left_out |= {one.trajectory.id: "critic_warmup" for one in found.members}
    if warming or not len(step.found.batch):
        trainer.skip_step()
        return figures
    figures |= step.learn()
    trainer.version += 1
    return figures


def _left_out(
    groups: Sequence[Sequence[Trajectory]], *, mask_truncated: bool
) -> dict[str, LeftOut]:
    """Why each trajectory of the batch would not be trained on; no advantage: unless it is."""
    found: dict[str, LeftOut] = {}
    for one in (one for group in groups for one in group):
        if one.trainable_reward is None:
            found[one.id] = "invalid_reward"
        elif not any(any(segment.loss_mask) for segment in one.segments):
            found[one.id] = "no_tokens"
        elif mask_truncated and one.stop_reason.is_truncated:
            found[one.id] = "truncated"
        else:
            found[one.id] = "no_advantage"
    return found


def _check_versions(found: RlBatch, version: int) -> None:
    if (found.batch.versions[found.batch.loss_mask] > version).any():
        raise ValueError("A trajectory was sampled by a version that does not exist yet")


@dataclass(eq=False)
class _Step:
    """The tensors of a step, all [rows, tokens]; None where the algorithm needs none of it.

    values, returns: a critic's, and what it learns; old: log-probabilities before the first update;
    reference: under the policy at the stage's start; factor: what the policy term is multiplied by;
    bounded: where a bound changed that factor.
    """

    trainer: Trainer
    stage: RlStage
    how: Algorithm
    found: RlBatch
    record: TokenRecord | None = None
    advantages: Tensor = field(default_factory=lambda: torch.zeros(0))
    values: Tensor | None = None
    returns: Tensor | None = None
    old: Tensor | None = None
    reference: Tensor | None = None
    factor: Tensor | None = None
    bounded: Tensor | None = None

    def estimate(self, groups: Sequence[Sequence[Trajectory]]) -> dict[str, float]:
        """Everything that is taken before the first update, and the critic's own; figures."""
        stage, critic = self.stage, self.trainer.critic
        in_reward = bool(stage.kl_weight) and stage.kl_place == "reward"
        kl = None
        if in_reward:
            self.old, self.reference = self._logprobs(), self._logprobs(reference=True)
            kl = stage.kl_weight * kl_estimate(self.old, self.reference, stage.kl_estimate)
        if critic is not None:
            self.values = critic.values(self.found.batch, self.found.groups)
        given = credit(self.found, groups, stage, kl, self.values)
        self.advantages, self.returns = given.advantages, given.returns
        self._keep(self.found.trained())
        teaching = self._whole(((self.advantages != 0) & self.found.batch.loss_mask).any(1))
        figures = self._advantage_figures(teaching, len(groups))
        if critic is not None:
            figures |= self._teach(critic)
        if not stage.kl_weight or in_reward:
            self._keep(teaching)
        if not len(self.found.batch):
            return figures
        if self.old is None and self._needs_old:
            self.old = self._logprobs()
        if stage.kl_weight and not in_reward:
            self.reference = self._logprobs(reference=True)
        self._mask_drift()
        if self.how.correction != "none" and self.old is not None:
            self.factor = self._times(self.factor, self._correction(self.old))
        return figures

    def learn(self) -> dict[str, float]:
        """The updates of the step; figures are means over them."""
        stage, trainer, found = self.stage, self.trainer, self.found
        longest = trainer.spec.environment.max_tokens
        before = torch.zeros_like(found.batch.behaviour, dtype=torch.float64)
        if self.record is not None:
            self.record.begin(found.named_rows(), found.batch.loss_mask, self._recorded)
        updates = []
        seen: set[int] = set()
        for groups, index in self._deal():
            weights = found.weights(self.how.aggregation, longest, groups)
            part = keep_rows(found, index)
            logprobs, figures = trainer.update(
                part.batch,
                part.groups,
                self._objective(index, part, weights),
                trainer.spec.rollout.temperature,
            )
            updates.append(figures)
            if self.record is not None:
                self.record.settle(trainer.ranks)
            if not groups & seen:  # of the first epoch
                before[index] = logprobs.double()
            seen |= groups
        trainer.skip_updates(stage.updates_per_step - len(updates))
        return self._figures(updates, before)

    @property
    def _needs_old(self) -> bool:
        several = self.stage.updates_per_step > 1
        return (
            (self.stage.anchor == "old" and several)
            or self.how.correction == "geometric"
            or self.stage.drift_max is not None
        )

    def _objective(self, index: Tensor, part: RlBatch, weights: Tensor) -> Objective:
        whole_mean = self._mean_over_segments(part, index)
        batch, stage = self.found.batch, self.stage

        def objective(seen: Seen) -> Terms:
            place = index[seen.place[0]], seen.place[1]
            current, behaviour = seen.tokens.logprobs, batch.behaviour[place]
            detached = current.detach()
            old = detached if self.old is None else self.old[place]
            anchor = behaviour if stage.anchor == "rollout" else old
            sequence = self.found.trajectories[place[0]]
            if whole_mean is None:
                mean = sequence_mean(detached - anchor, sequence)
            else:
                mean = whole_mean[sequence]
            tokens = Tokens(current, anchor, self.advantages[place], mean, self.how.bounds)
            losses, clipped, ratio = LOSSES[self.how.loss](tokens)
            factor = None if self.factor is None else self.factor[place]
            if factor is not None:
                losses = factor * losses
            if self.bounded is not None:
                bounded = self.bounded[place]
                clipped = torch.where(bounded != 0, bounded, clipped)
            if self.how.correction != "none" and self.old is None:
                log_rho = detached - behaviour
                weight, bounded = correction_weights(
                    self.how.correction, log_rho, sequence, self.how.correction_bounds
                )
                losses, clipped = weight * losses, torch.where(bounded != 0, bounded, clipped)
                factor = weight if factor is None else factor * weight
            if stage.kl_weight and self.reference is not None and stage.kl_place != "reward":
                kl = kl_estimate(current, self.reference[place], stage.kl_estimate, behaviour)
                losses = losses + stage.kl_weight * kl
            if self.record is not None:
                self._note(self.record, seen, place, Terms(losses, clipped, ratio), factor)
            return Terms(weights[place[0]] * losses, clipped)

        return objective

    @property
    def _recorded(self) -> tuple[str, ...]:
        """What there is to record of a token: without a ratio there is no importance weight."""
        weighs = self.how.loss != "reinforce" or self.how.correction != "none"
        ratio = ("weight", "clipped") if weighs else ()
        factor = self.factor is not None or self.how.correction != "none"
        return ("logprob", "entropy", "advantage", *ratio, *(("correction",) if factor else ()))

    def _note(
        self, record: TokenRecord, seen: Seen, place: Place, terms: Terms, factor: Tensor | None
    ) -> None:
        """Tell the record what the loss saw of a pass's tokens."""
        ratio = terms.ratio
        if ratio is None:  # the correction alone weighs
            anchor = seen.tokens.logprobs if self.old is None else self.old[place]
            ratio = torch.exp(anchor - self.found.batch.behaviour[place])
        values = {
            "logprob": seen.tokens.logprobs,
            "entropy": seen.tokens.entropies,
            "advantage": self.advantages[place],
            "weight": ratio,
            "clipped": terms.clipped,
        }
        record.note(place, values if factor is None else values | {"correction": factor})

    def _mean_over_segments(self, part: RlBatch, index: Tensor) -> Tensor | None:
        """The mean log ratio of each member for a loss of whole trajectories, where segments of
        one may stand in different passes; the policy is asked once more for it."""
        if self.how.loss != "gspo" or len(set(part.trajectories.tolist())) == len(part.batch):
            return None
        current = self.trainer.logprobs(part.batch, part.groups, self._temperature).double()
        anchor = part.batch.behaviour
        if self.stage.anchor == "old":
            anchor = current if self.old is None else self.old[index]
        mask = part.batch.loss_mask
        sums = torch.zeros(len(part.members), dtype=torch.float64)
        sums.index_add_(0, part.trajectories, ((current - anchor) * mask).sum(1))
        return sums / torch.tensor([max(1, one.loss_tokens) for one in part.members])

    def _mask_drift(self) -> None:
        if self.stage.drift_max is None or self.old is None:
            return
        mask = self.found.batch.loss_mask
        sequence = self.found.by_token(self.found.trajectories)
        kept = torch.zeros(mask.shape, dtype=torch.float64)
        behind = (self.found.batch.behaviour - self.old)[mask].double()
        kept[mask] = negative_drift_mask(
            behind, self.advantages[mask], sequence, self.stage.drift_max
        )
        self.factor = self._times(self.factor, kept)

    def _correction(self, old: Tensor) -> Tensor:
        mask = self.found.batch.loss_mask
        log_rho = (old - self.found.batch.behaviour)[mask].double()
        weights = torch.zeros(mask.shape, dtype=torch.float64)
        self.bounded = torch.zeros(mask.shape, dtype=torch.int8)
        weights[mask], self.bounded[mask] = correction_weights(
            self.how.correction,
            log_rho,
            self.found.by_token(self.found.trajectories),
            self.how.correction_bounds,
        )
        return weights

    def _advantage_figures(self, teaching: Tensor, groups: int) -> dict[str, float]:
        """How far advantages spread, and the share of groups without any."""
        rows = self.found.groups
        heard = {group for group, any_ in zip(rows, teaching.tolist(), strict=True) if any_}
        figures = {"zero_variance_share": 1 - len(heard) / groups}
        values = self.advantages[self.found.batch.loss_mask]
        if len(values) > 1:
            figures["advantage_mean"] = float(values.mean())
            figures["advantage_std"] = float(values.std())
        return figures

    def _teach(self, critic: Critic) -> dict[str, float]:
        """The critic's updates, on the same parts of the batch as the policy's."""
        assert self.values is not None and self.returns is not None
        updates = []
        for _, index in self._deal():
            part = keep_rows(self.found, index)
            returns, values = self.returns[index], self.values[index]
            updates.append(critic.update(part.batch, part.groups, returns, values))
        return _means(updates)

    def _deal(self) -> Iterator[tuple[frozenset[int], Tensor]]:
        seed = f"{self.trainer.spec.seed} {self.trainer.step}"
        return deal(self.found, self.stage.epochs, self.stage.minibatches, seed)

    def _figures(self, updates: list[dict[str, float]], before: Tensor) -> dict[str, float]:
        batch = self.found.batch
        mask, version = batch.loss_mask, self.trainer.version
        behaviour = batch.behaviour[mask].double()
        staleness = (version - batch.versions[mask]).double()
        cap = (self.how.correction_bounds or self.how.bounds).get("weight_max", math.inf)
        figures = {
            **_means(updates),
            **off_policy_statistics(before[mask], behaviour, cap),
            "loss_tokens": float(batch.loss_tokens),
            "batch_tokens": float(batch.lengths.sum()),
            "staleness_mean": float(staleness.mean()),
            "staleness_max": float(staleness.max()),
        }
        if self.reference is not None:
            kl = kl_estimate(before[mask], self.reference[mask].double(), "k3")
            figures["kl_reference"] = float(kl.mean())
        if self.factor is not None:
            figures["masked_share"] = float((self.factor[mask] == 0).double().mean())
        return figures

    def _keep(self, rows: Tensor) -> None:
        index = rows.nonzero()[:, 0]
        if len(index) == len(self.found.batch):
            return
        self.found = keep_rows(self.found, index)
        self.advantages = self.advantages[index]
        for name in ("values", "returns", "old", "reference"):
            tensor = getattr(self, name)
            setattr(self, name, None if tensor is None else tensor[index])

    def _logprobs(self, *, reference: bool = False) -> Tensor:
        model = self.trainer.reference if reference else None
        return self.trainer.logprobs(self.found.batch, self.found.groups, self._temperature, model)

    def _whole(self, rows: Tensor) -> Tensor:
        """Every row of the members of which some row is there: ratios are of whole trajectories."""
        members = torch.zeros(len(self.found.members), dtype=torch.bool)
        members[self.found.trajectories[rows]] = True
        return members[self.found.trajectories]

    @property
    def _temperature(self) -> float:
        return self.trainer.spec.rollout.temperature

    @staticmethod
    def _times(factor: Tensor | None, other: Tensor) -> Tensor:
        return other if factor is None else factor * other


def _means(updates: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for one in updates for name in one)
    means = {name: fmean(one[name] for one in updates if name in one) for name in names}
    if "skipped_update" in means:
        means["skipped_update"] *= sum("skipped_update" in one for one in updates) / len(updates)
    if "max_logit" in means:
        means["max_logit"] = max(one["max_logit"] for one in updates)
    return means
