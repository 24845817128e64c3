"""A reward scheme: named, weighted terms. Immutable once a run was launched with it."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

TermKind = Literal[
    "exact_answer",
    "format",
    "length",
    "overlong",
    "step_efficiency",
    "tool_error_count",
    "tool_errors",
]
TermField = Literal["budget", "cache"]

# What a kind reads besides its weight; all of it must be given, and nothing else may be.
TERM_FIELDS: dict[TermKind, tuple[TermField, ...]] = {
    "overlong": ("budget", "cache"),
    "step_efficiency": ("budget",),
}


class RewardTerm(BaseModel):
    """One term. Its kind says what it measures, see `engine.rewards.terms`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    kind: TermKind
    weight: float = 1.0
    budget: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Of overlong: sampled tokens from which the penalty is whole; of "
        "step_efficiency: turns that count as none saved",
    )
    cache: int | None = Field(
        None,
        ge=0,
        description="Of overlong: last tokens of the budget, over which the penalty grows",
    )

    @model_validator(mode="after")
    def _reads_its_fields(self) -> Self:
        read = TERM_FIELDS.get(self.kind, ())
        fields: tuple[TermField, ...] = ("budget", "cache")
        if strange := [one for one in fields if getattr(self, one) is not None and one not in read]:
            raise ValueError(f"{self.kind} does not read {' or '.join(strange)}: leave it out")
        if missing := [one for one in read if getattr(self, one) is None]:
            raise ValueError(f"{self.kind} needs {' and '.join(missing)}")
        if self.budget is not None and self.cache is not None and self.cache > self.budget:
            raise ValueError(f"a cache of {self.cache} tokens is no part of {self.budget}")
        return self


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
