"""A reward scheme: named, weighted terms. Immutable once a run was launched with it."""

from typing import Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

TermKind = Literal[
    "exact_answer",
    "format",
    "length",
    "overlong",
    "repetition",
    "step_efficiency",
    "tool_error_count",
    "tool_errors",
]
TermField = Literal["budget", "cache", "ngram"]

# What a kind reads besides its weight; all of it must be given, and nothing else may be.
TERM_FIELDS: dict[TermKind, tuple[TermField, ...]] = {
    "overlong": ("budget", "cache"),
    "repetition": ("ngram",),
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

    ngram: int | None = Field(
        None, ge=1, le=32, description="Of repetition: consecutive words that count as a repeat"
    )

    @model_validator(mode="after")
    def _reads_its_fields(self) -> Self:
        read = TERM_FIELDS.get(self.kind, ())
        fields: tuple[TermField, ...] = get_args(TermField)
        if strange := [one for one in fields if getattr(self, one) is not None and one not in read]:
            raise ValueError(f"{self.kind} does not read {' or '.join(strange)}: leave it out")
        if missing := [one for one in read if getattr(self, one) is None]:
            raise ValueError(f"{self.kind} needs {' and '.join(missing)}")
        if self.budget is not None and self.cache is not None and self.cache > self.budget:
            raise ValueError(f"a cache of {self.cache} tokens is no part of {self.budget}")
        return self


class RewardCurriculum(BaseModel):
    """Outcome alone until it is learnt, then process terms with a growing weight.

    How it moves is in `engine.rewards.curriculum`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    process: list[TermKind] = Field(
        min_length=1, description="Terms that come in once the outcome alone is learnt"
    )
    success_above: float = Field(
        0.6, ge=0, lt=1, description="Running success rate from which they may come in"
    )
    steady_steps: int = Field(
        5, ge=3, le=1000, description="Trainer steps over which it must not move beyond its noise"
    )
    ramp_steps: int = Field(
        20, ge=1, le=100_000, description="Trainer steps from a weight of 0 to the largest"
    )
    weight_max: float = Field(0.3, gt=0, le=1, description="Largest factor of the process terms")
    cap: float = Field(
        0.4,
        gt=0,
        lt=0.5,
        description="Process terms of a trajectory together, at most, as a share of exact_answer's "
        "weight; below a half no failure is worth more than a success",
    )
    smoothing: float = Field(
        0.3, gt=0, le=1, description="Share of the newest step in the running success rate"
    )


class RewardScheme(BaseModel):
    """The reward of a trajectory is the weighted sum of its terms; each is logged raw."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str = Field("exact-answer", min_length=1, max_length=80)
    terms: list[RewardTerm] = Field(
        default=[RewardTerm(kind="exact_answer", weight=1.0)], min_length=1
    )
    curriculum: RewardCurriculum | None = Field(
        None, description="When process terms come in; empty: all terms from the start"
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        kinds = [term.kind for term in self.terms]
        if twice := sorted({kind for kind in kinds if kinds.count(kind) > 1}):
            raise ValueError(f"given twice: {', '.join(twice)}; each term occurs once")
        return self

    @model_validator(mode="after")
    def _has_what_the_curriculum_names(self) -> Self:
        if self.curriculum is None:
            return self
        named, kinds = self.curriculum.process, [term.kind for term in self.terms]
        if twice := sorted({kind for kind in named if named.count(kind) > 1}):
            raise ValueError(f"curriculum.process names {', '.join(twice)} twice")
        if missing := [kind for kind in named if kind not in kinds]:
            raise ValueError(f"curriculum.process names {', '.join(missing)}, which is no term")
        if "exact_answer" in named:
            raise ValueError("exact_answer is the outcome: curriculum.process cannot name it")
        if self.outcome_weight <= 0:
            raise ValueError(
                "a curriculum starts from the outcome: exact_answer needs a weight above 0"
            )
        return self

    @property
    def outcome_weight(self) -> float:
        """What a solved task is worth by itself; 0 without the term exact_answer."""
        return sum(term.weight for term in self.terms if term.kind == "exact_answer")
