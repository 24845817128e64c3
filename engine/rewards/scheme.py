"""A reward scheme: named, weighted terms. Immutable once a run was launched with it."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

TermKind = Literal["exact_answer", "format", "length", "tool_errors"]


class RewardTerm(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    kind: TermKind
    weight: float = 1.0


class RewardScheme(BaseModel):
    """The reward of a trajectory is the weighted sum of its terms; each is logged raw."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str = Field("exact-answer", min_length=1, max_length=80)
    terms: list[RewardTerm] = Field(
        default=[RewardTerm(kind="exact_answer", weight=1.0)], min_length=1
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        kinds = [term.kind for term in self.terms]
        if twice := sorted({kind for kind in kinds if kinds.count(kind) > 1}):
            raise ValueError(f"given twice: {', '.join(twice)}; each term occurs once")
        return self
