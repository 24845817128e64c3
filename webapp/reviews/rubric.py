"""What a queue asks of a reviewer, and what several verdicts on one item come to. Pure."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[^\x00]+$")]
Style = Literal["single", "pairwise"]
Choice = Literal["accepted", "rejected", "first", "second", "same"]
Outcome = Literal["open", "disputed", "accepted", "rejected", "first", "second", "same"]
CHOICES: dict[Style, tuple[Choice, ...]] = {
    "single": ("accepted", "rejected"),
    "pairwise": ("first", "second", "same"),
}


class Scale(BaseModel):
    """A whole number from `low` to `high`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    low: int = Field(1, ge=0, le=100)
    high: int = Field(5, ge=1, le=100)

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"{self.name}: low {self.low} must be less than high {self.high}")
        return self


class Rubric(BaseModel):
    """Every verdict accepts or rejects, or prefers one of two; labels and scales say more."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    labels: list[Name] = Field([], max_length=9, description="Any of them may be chosen")
    scales: list[Scale] = Field([], max_length=5, description="Each must be given")
    note_on_reject: bool = Field(False, description="A rejection needs a note")

    @model_validator(mode="after")
    def _names_once(self) -> Self:
        for names in (self.labels, [scale.name for scale in self.scales]):
            if len(set(names)) < len(names):
                raise ValueError("labels and scales must have different names")
        return self

    def problems(
        self, choice: Choice, labels: Sequence[str], scores: dict[str, int], note: str
    ) -> list[tuple[str, str]]:
        """What is wrong with a verdict: (field path, message)."""
        found = [
            ("labels", f"{label!r} is no label of this queue.")
            for label in labels
            if label not in self.labels
        ]
        scales = {scale.name: scale for scale in self.scales}
        for name in scores:
            if name not in scales:
                found.append((f"scores.{name}", "This queue has no such scale."))
        for name, scale in scales.items():
            value = scores.get(name)
            if value is None or not scale.low <= value <= scale.high:
                message = f"Give a whole number from {scale.low} to {scale.high}."
                found.append((f"scores.{name}", message))
        if self.note_on_reject and choice == "rejected" and not note.strip():
            found.append(("note", "Say why it is rejected."))
        return found


def outcome(choices: Sequence[Choice], needed: int, ruling: Choice | None = None) -> Outcome:
    """Of one item: open until `needed` verdicts are there, then unanimous or disputed, until a
    third person rules."""
    if ruling is not None:
        return ruling
    if len(choices) < needed:
        return "open"
    return choices[0] if len(set(choices)) == 1 else "disputed"
