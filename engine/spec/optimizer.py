"""The optimizer of a stage as fields of its spec, and MuonClip as the fields that it stands for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from engine.spec.base import Beta, Disagreement, Share, SpecModel

ORIGINAL_LR = 0.02  # the rate that goes with Muon's original scale
MUONCLIP: dict[str, Any] = {  # 2502.16982 and 2507.20534: the scale is what makes it MuonClip
    "muon_scale": "match_rms_adamw",
    "qk_clip": 100.0,
    "weight_decay": 0.1,
}


class OptimizerSpec(SpecModel):
    """Muon for matrices and AdamW for the rest, or AdamW alone; warm-up, then linear decay.

    MuonClip is muon with match_rms_adamw and qk_clip; `kind: muonclip` is read as these fields.
    """

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
    qk_clip: float | None = Field(
        None,
        gt=0,
        description="Largest attention logit of a head (tau): after a step that saw a larger one "
        "its queries and keys are scaled down; empty: off. MuonClip: 100",
    )
    qk_clip_shared_keys: bool = Field(
        False,
        description="QK-Clip scales keys that several queries share as well, by the head that "
        "needs it least; off: only the queries of heads above tau",
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


def optimizers_in_full(stage: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stage with `kind: muonclip` of its optimizer, or of its critic's, written
    out. Raises ValueError where another field says that it is no MuonClip.
    """
    full = dict(stage)
    if isinstance(full.get("optimizer"), dict):
        full["optimizer"] = _in_full(full["optimizer"])
    if isinstance(full.get("critic"), dict):
        full["critic"] = optimizers_in_full(full["critic"])
    return full


def _in_full(optimizer: dict[str, Any]) -> dict[str, Any]:
    if optimizer.get("kind") != "muonclip":
        return optimizer
    full = {**MUONCLIP, **optimizer, "kind": "muon"}
    if full["muon_scale"] != MUONCLIP["muon_scale"]:
        raise ValueError(
            f"muonclip means muon_scale {MUONCLIP['muon_scale']!r}, and muon_scale says "
            f"{full['muon_scale']!r}: keep one of them, or take the kind muon."
        )
    if full["qk_clip"] is None:
        raise ValueError(
            "muonclip means a qk_clip, and qk_clip is empty: leave it out (100), or take the kind "
            "muon."
        )
    return full


def disagreements_of(
    optimizer: OptimizerSpec, layers: Sequence[str], path: str
) -> Iterator[Disagreement]:
    """Of the optimizer at `path` with itself and with the model's layers."""
    if optimizer.kind == "adamw" and optimizer.muon_scale != "original":
        yield Disagreement(
            f"muon_scale {optimizer.muon_scale!r} is of muon, and adamw updates every parameter: "
            "leave it out, or take the kind muon.",
            (f"{path}.muon_scale", f"{path}.kind"),
        )
    if optimizer.qk_clip is not None and "softmax" not in layers:
        yield Disagreement(
            "qk_clip bounds the logits of softmax attention, and no layer is softmax: lightning "
            "layers have none. Leave it empty, or make a layer softmax.",
            (f"{path}.qk_clip", "model.layers"),
        )
    if optimizer.qk_clip_shared_keys and optimizer.qk_clip is None:
        yield Disagreement(
            "qk_clip_shared_keys says how qk_clip scales, and qk_clip is empty: give a bound, or "
            "leave it out.",
            (f"{path}.qk_clip_shared_keys", f"{path}.qk_clip"),
        )
