"""The optimizer of a stage as fields of its spec."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from engine.spec.base import Beta, Disagreement, Share, SpecModel

ORIGINAL_LR = 0.02  # the rate that goes with Muon's original scale


class OptimizerSpec(SpecModel):
    """Muon for matrices and AdamW for the rest, or AdamW alone; warm-up, then linear decay."""

    kind: Literal["muon", "adamw"] = "adamw"
    lr: float = Field(4e-4, gt=0, description="AdamW learning rate")
    muon_lr: float | None = Field(
        None,
        gt=0,
        description="Learning rate of the matrices under muon; empty: 0.02 with the original "
        "scale, lr with match_rms_adamw",
    )
    muon_scale: Literal["original", "match_rms_adamw"] = Field(
        "original",
        description="Size of muon's updates: sqrt(max(1, rows / columns)), or Moonlight's "
        "0.2 sqrt(max(rows, columns)), which is as large as AdamW's",
    )
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: float = Field(0.01, ge=0)
    warmup_steps: int = Field(10, ge=0)
    decay_share: Share = Field(0.5, description="Last share of the steps with linear decay")
    clip_norm: float = Field(1.0, gt=0)

    @property
    def matrix_lr(self) -> float:
        """The learning rate of matrices under muon."""
        if self.muon_lr is not None:
            return self.muon_lr
        return ORIGINAL_LR if self.muon_scale == "original" else self.lr


def disagreements_of(optimizer: OptimizerSpec, path: str) -> Iterator[Disagreement]:
    """Of the optimizer at `path`."""
    if optimizer.kind == "adamw" and optimizer.muon_scale != "original":
        yield Disagreement(
            f"muon_scale {optimizer.muon_scale!r} is of muon, and adamw updates every parameter: "
            "leave it out, or take the kind muon.",
            (f"{path}.muon_scale", f"{path}.kind"),
        )
