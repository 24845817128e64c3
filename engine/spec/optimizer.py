"""The optimizer of a stage as fields of its spec."""

from typing import Literal

from pydantic import Field

from engine.spec.base import Beta, Share, SpecModel


class OptimizerSpec(SpecModel):
    """Muon for matrices and AdamW for the rest, or AdamW alone; warm-up, then linear decay."""

    kind: Literal["muon", "adamw"] = "adamw"
    lr: float = Field(4e-4, gt=0, description="AdamW learning rate")
    muon_lr: float = Field(0.02, gt=0, description="Learning rate of the matrices under muon")
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: float = Field(0.01, ge=0)
    warmup_steps: int = Field(10, ge=0)
    decay_share: Share = Field(0.5, description="Last share of the steps with linear decay")
    clip_norm: float = Field(1.0, gt=0)
