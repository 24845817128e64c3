"""The stage of reinforcement learning: its algorithm, its batch and its optimizer."""

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from engine.spec import algorithms
from engine.spec.base import Disagreement, Share, SpecModel
from engine.spec.optimizer import OptimizerSpec
from engine.spec.sampled import SampledStage

REFILL_ROUNDS = 100


class CriticSpec(SpecModel):
    """The model that estimates returns for the advantage gae, as large as the policy."""

    optimizer: OptimizerSpec = OptimizerSpec(
        lr=1e-3, betas=(0.9, 0.98), clip_norm=0.5, weight_decay=0.0
    )
    value_clip: float = Field(
        0.5, gt=0, description="Farthest that an update may move a value, in units of the return"
    )
    warmup_steps: int = Field(
        0, ge=0, description="First steps in which the critic learns and the policy stays"
    )


class RlStage(SampledStage):
    """Asynchronous reinforcement learning through the data pool."""

    kind: Literal["rl"] = "rl"
    algorithm: algorithms.Preset = Field(
        "cispo", description="A named set of the four parts below; cispo where nothing is known"
    )
    advantage: algorithms.Advantage | None = Field(
        None, description="How much better a trajectory was than expected; empty: the algorithm's"
    )
    loss: algorithms.Loss | None = Field(None, description="Policy loss; empty: the algorithm's")
    aggregation: algorithms.Aggregation | None = Field(
        None, description="What a token weighs in the loss; empty: the algorithm's"
    )
    correction: algorithms.Correction | None = Field(
        None, description="Weight against the age of the batch; empty: the algorithm's"
    )
    eps_low: float | None = Field(None, ge=0, le=1, description="Ratios stay above 1 - eps_low")
    eps_high: float | None = Field(
        None, ge=0, description="Ratios, and CISPO's weights, stay below 1 + eps_high"
    )
    dual_clip: float | None = Field(
        None, gt=1, description="Largest ratio with a negative advantage, for ppo; empty: unbounded"
    )
    weight_min: float | None = Field(
        None, ge=0, description="Smallest weight of icepop and geometric"
    )
    weight_max: float | None = Field(None, gt=0, description="Largest importance weight, absolute")
    drift_max: float | None = Field(
        None,
        gt=0,
        description="Bad trajectories that the policy has left by more, in nats a token"
        " on average, are masked; empty: none",
    )
    anchor: Literal["rollout", "old"] = Field(
        "rollout",
        description="What ratios are taken against: the behaviour policy, or the policy "
        "before the step's first update",
    )
    epochs: int = Field(1, ge=1, le=64, description="Times that a batch is gone through")
    minibatches: int = Field(
        1, ge=1, le=256, description="Updates each time, each on its share of the groups"
    )
    gamma: float = Field(
        1.0, gt=0, le=1, description="Discount for each sampled token (gae) or turn (by turns)"
    )
    gae_lambda: Share = Field(1.0, description="1: returns as they are; 0: the critic alone")
    step_weight: float = Field(
        1.0, ge=0, description="Weight of gigpo's comparison of equal situations"
    )
    critic: CriticSpec = CriticSpec()
    kl_weight: float = Field(
        0.0, ge=0, description="Weight of the divergence from the policy at the stage's start"
    )
    kl_kind: algorithms.KlKind | None = Field(
        None, description="Its estimate; empty: k3_unbiased in the loss, k1 in the reward"
    )
    kl_place: Literal["loss", "reward"] | None = Field(
        None, description="Where it is added; empty: the loss"
    )
    mask_truncated: bool = Field(
        False, description="Keep trajectories that hit a limit out of the loss, not of the baseline"
    )
    prompts_per_step: int = Field(24, ge=1)
    group_size: int = Field(8, ge=1, description="Trajectories of one prompt")
    dynamic_sampling: bool | None = Field(
        None,
        description="Sample on in place of groups whose rewards are all equal; empty: where the "
        "advantage compares a group's trajectories, to which such groups teach nothing",
    )
    refill_rounds: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="Batches that dynamic sampling may sample for one step before the run ends; "
        "empty: 100",
    )
    steps: int = Field(70, ge=1)
    optimizer: OptimizerSpec = OptimizerSpec(betas=(0.9, 0.98), clip_norm=0.5, weight_decay=0.0)

    @property
    def updates_per_step(self) -> int:
        return self.epochs * self.minibatches

    @property
    def kl_estimate(self) -> algorithms.KlKind:
        """The estimate of the KL term, where there is one."""
        return self.kl_kind or ("k1" if self.kl_place == "reward" else "k3_unbiased")

    def resolved(self) -> algorithms.Algorithm:
        """The algorithm with what this stage says of its own."""
        preset = algorithms.PRESETS[self.algorithm]
        loss, correction = self.loss or preset.loss, self.correction or preset.correction
        if loss != preset.loss and self.correction is None:
            correction = "none"
        bounds = dict(algorithms.LOSS_BOUNDS.get(loss, {}))
        if loss == preset.loss:
            bounds |= preset.bounds
        if loss == "cispo" and self.eps_high is not None:
            bounds["weight_max"] = 1 + self.eps_high
        elif loss != "cispo" or correction == "none":  # else weight_max is the correction's
            bounds = self._own(bounds)
        return algorithms.Algorithm(
            self.advantage or preset.advantage,
            loss,
            self.aggregation or preset.aggregation,
            correction,
            bounds,
            self._own(algorithms.CORRECTION_BOUNDS[correction]),
        )

    def _own(self, bounds: Mapping[algorithms.Bound, float]) -> dict[algorithms.Bound, float]:
        """The same bounds with this stage's own values."""
        given = ((name, getattr(self, name)) for name in bounds)
        return {**bounds, **{name: value for name, value in given if value is not None}}

    def needs_spread(self) -> bool:
        if self.dynamic_sampling is not None:
            return self.dynamic_sampling
        return self.resolved().advantage in algorithms.GROUP_RELATIVE

    def needs_reward(self) -> bool:
        return True

    def sampling_rounds(self) -> int | None:
        return (self.refill_rounds or REFILL_ROUNDS) if self.needs_spread() else None

    def notice(self) -> str:
        """What is honoured and yet does nothing, in a sentence for the log; else empty."""
        loss = self.resolved().loss
        if self.anchor == "old" and self.updates_per_step == 1 and loss != "reinforce":
            return (
                f"anchor old with one update a step: the ratio is 1 wherever {loss} looks, so that "
                "its bounds are inert. Take the anchor rollout, or more epochs or minibatches."
            )
        return ""


def disagreements_of(stage: RlStage, path: str, *, trained_before: bool) -> Iterator[Disagreement]:
    """Of the algorithm's fields. trained_before: a stage before this one trains the policy."""
    yield from _of_parts(stage, path)
    yield from _of_bounds(stage, path)
    yield from _of_kl(stage, path, trained_before)
    yield from _of_advantage(stage, path)


def _of_parts(stage: RlStage, path: str) -> Iterator[Disagreement]:
    how = stage.resolved()
    loss = f"{path}.loss" if stage.loss else f"{path}.algorithm"
    if how.correction != "none" and how.loss != "reinforce" and stage.anchor == "rollout":
        yield Disagreement(
            f"The loss {how.loss} already weighs against the behaviour policy: the correction "
            f"{how.correction} would count it twice. Take the anchor old, the loss reinforce, or "
            "no correction.",
            (f"{path}.correction", f"{path}.anchor", loss),
        )
    if how.loss == "gspo" and how.aggregation != "seq-mean-token-mean":
        yield Disagreement(
            f"The loss gspo clips whole trajectories, which {how.aggregation} would weigh by their "
            "length: its aggregation is seq-mean-token-mean.",
            (f"{path}.aggregation", loss),
        )
    if stage.minibatches > stage.prompts_per_step:
        yield Disagreement(
            f"{stage.prompts_per_step} groups cannot be dealt to {stage.minibatches} minibatches.",
            (f"{path}.minibatches", f"{path}.prompts_per_step"),
        )


def _of_bounds(stage: RlStage, path: str) -> Iterator[Disagreement]:
    how = stage.resolved()
    loss = f"{path}.loss" if stage.loss else f"{path}.algorithm"
    alone = how.loss == "cispo" and how.correction == "none"
    if alone and stage.eps_high is not None and stage.weight_max is not None:
        yield Disagreement(
            f"eps_high {stage.eps_high:g} caps the weight at {1 + stage.eps_high:g}, weight_max at "
            f"{stage.weight_max:g}: keep one of them.",
            (f"{path}.eps_high", f"{path}.weight_max"),
        )
    read = {*how.bounds, *how.correction_bounds, *(["eps_high"] if how.loss == "cispo" else [])}
    for bound in algorithms.BOUNDS:
        if getattr(stage, bound) is not None and bound not in read:
            yield Disagreement(
                f"The loss {how.loss} with the correction {how.correction} does not read {bound}: "
                "leave it empty.",
                (f"{path}.{bound}", loss),
            )
    weights = how.correction_bounds
    low, high = weights.get("weight_min", 0.0), weights.get("weight_max", 1.0)
    if low > high:
        yield Disagreement(
            f"No weight lies between weight_min {low:g} and weight_max {high:g}.",
            (f"{path}.weight_min", f"{path}.weight_max"),
        )


def _of_kl(stage: RlStage, path: str, trained_before: bool) -> Iterator[Disagreement]:
    if not stage.kl_weight:
        for name in ("kl_kind", "kl_place"):
            if getattr(stage, name) is not None:
                yield Disagreement(
                    f"{name} is of a KL term, and its weight is 0: leave it empty, or give "
                    "kl_weight.",
                    (f"{path}.{name}", f"{path}.kl_weight"),
                )
        return
    if not trained_before:
        yield Disagreement(
            "The reference of the KL term is the policy at this stage's start, and no stage before "
            "it trains one: a random policy is no reference. Leave kl_weight at 0.",
            (f"{path}.kl_weight",),
        )
    advantage = stage.resolved().advantage
    if stage.kl_place != "reward":
        if stage.kl_kind == "k1":
            yield Disagreement(
                "k1 in the loss has no gradient on average: take k2, k3 or k3_unbiased, or put it "
                "into the reward.",
                (f"{path}.kl_kind", f"{path}.kl_place"),
            )
    elif advantage not in algorithms.KL_BY_TOKEN | algorithms.KL_BY_OUTCOME:
        yield Disagreement(
            f"The advantage {advantage} has no place for a KL term in the reward: put it into the "
            "loss.",
            (f"{path}.kl_place", f"{path}.advantage" if stage.advantage else f"{path}.algorithm"),
        )


def _of_advantage(stage: RlStage, path: str) -> Iterator[Disagreement]:
    advantage = stage.resolved().advantage
    where = f"{path}.advantage" if stage.advantage else f"{path}.algorithm"
    if stage.group_size == 1 and advantage in algorithms.GROUP_RELATIVE:
        yield Disagreement(
            f"The advantage {advantage} compares the trajectories of a group, and a group of one "
            "has none to compare: take group_size 2 or more.",
            (f"{path}.group_size", where),
        )
    read = {
        "gamma": {"gae", "turn_reward_to_go", "gigpo"},
        "gae_lambda": {"gae"},
        "critic": {"gae"},
        "step_weight": {"gigpo"},
    }
    for name, readers in read.items():
        default = RlStage.model_fields[name].default
        if getattr(stage, name) != default and advantage not in readers:
            yield Disagreement(
                f"The advantage {advantage} does not read {name}: leave it as it is.",
                (f"{path}.{name}", where),
            )
    if advantage == "gae" and stage.critic.warmup_steps >= stage.steps:
        yield Disagreement(
            f"The critic alone learns for {stage.critic.warmup_steps} steps, and the stage has "
            f"{stage.steps}: the policy would never learn.",
            (f"{path}.critic.warmup_steps", f"{path}.steps"),
        )
