"""A reward scheme: named, weighted terms. Immutable once a run was launched with it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

TermKind = Literal["exact_answer", "format", "length", "tool_errors"]


class RewardTerm(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: TermKind
    weight: float = 1.0


class RewardScheme(BaseModel):
    """The reward of a trajectory is the weighted sum of its terms; each is logged raw."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("exact-answer", min_length=1, max_length=80)
    terms: list[RewardTerm] = Field(
        default=[RewardTerm(kind="exact_answer", weight=1.0)], min_length=1
    )
