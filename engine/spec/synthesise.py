"""The first stage of a run: what all others learn from and are judged by."""

from typing import Literal

from pydantic import Field

from engine.spec.base import Count, HopsKey, Share, SpecModel


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
