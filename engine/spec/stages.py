"""The stages that need no algorithm: synthesis and the supervised cold start."""

from typing import Literal

from pydantic import Field

from engine.spec.base import Count, HopsKey, Share, SpecModel
from engine.spec.lineage import TrainedStage
from engine.spec.optimizer import OptimizerSpec


class SynthesiseStage(SpecModel):
    """Draw tasks from the graph, demonstrate them, keep what the verifier accepts."""

    kind: Literal["synthesise"] = "synthesise"
    tasks: dict[HopsKey, Count] = Field(
        default={"1": 3000, "2": 6000, "3": 3000, "4": 3000},
        description="Training tasks to draw for each number of hops",
    )
    demonstrations: dict[HopsKey, Count] = Field(
        default={"1": 6000, "2": 13_600, "3": 200, "4": 200},
        description="Demonstrations for each number of hops",
    )
    detour_share: Share = Field(0.1, description="Demonstrations with a forced, masked detour")
    made_up_share: Share = Field(0.3, description="Demonstrations with names of random pieces")


class SftStage(TrainedStage):
    """Supervised cold start on the accepted demonstrations."""

    kind: Literal["sft"] = "sft"
    steps: int = Field(300, ge=1)
    batch_size: int = Field(64, ge=1)
    optimizer: OptimizerSpec = OptimizerSpec(
        kind="muon", lr=2e-3, warmup_steps=50, decay_share=0.4, clip_norm=1.0
    )
