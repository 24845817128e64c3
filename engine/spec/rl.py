"""The stage of reinforcement learning: its algorithm, its batch and its optimizer."""

from typing import Literal

from pydantic import Field

from engine.spec import algorithms
from engine.spec.base import Hops
from engine.spec.optimizer import OptimizerSpec
from engine.spec.sampled import SampledStage


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
        None, description="Weight against the age of the batch, where the loss has none of its own"
    )
    eps_low: float | None = Field(None, ge=0, le=1, description="Ratios stay above 1 - eps_low")
    eps_high: float | None = Field(
        None, ge=0, description="Ratios, and CISPO's weights, stay below 1 + eps_high"
    )
    weight_min: float | None = Field(None, ge=0, description="Smallest weight of icepop")
    weight_max: float | None = Field(None, gt=0, description="Largest importance weight, absolute")
    anchor: Literal["rollout"] = Field(
        "rollout", description="Ratios and weights are taken against the behaviour policy"
    )
    hops: list[Hops] = Field(
        default=[3, 4], min_length=1, description="Numbers of hops of the training tasks"
    )
    prompts_per_step: int = Field(24, ge=1)
    group_size: int = Field(8, ge=2)
    steps: int = Field(70, ge=1)
    optimizer: OptimizerSpec = OptimizerSpec(betas=(0.9, 0.98), clip_norm=0.5, weight_decay=0.0)

    def resolved(self) -> algorithms.Algorithm:
        """The algorithm with what this stage says of its own."""
        preset = algorithms.PRESETS[self.algorithm]
        loss, correction = self.loss or preset.loss, self.correction or preset.correction
        if self.loss and self.loss != preset.loss and self.correction is None:
            correction = "none"
        bounds = algorithms.CORRECTION_BOUNDS[correction] | algorithms.LOSS_BOUNDS[loss]
        given = {name: getattr(self, name) for name in algorithms.BOUNDS}
        bounds = {
            name: value if given[name] is None else given[name] for name, value in bounds.items()
        }
        if loss == "cispo" and self.eps_high is not None:
            bounds["weight_max"] = 1 + self.eps_high
        return algorithms.Algorithm(
            self.advantage or preset.advantage,
            loss,
            self.aggregation or preset.aggregation,
            correction,
            bounds,
        )
