"""What all parts of a spec are made of: the strict base class, frequent types, disagreements."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Hops = Annotated[int, Field(ge=1, le=9)]
HopsKey = Annotated[str, Field(pattern=r"^[1-9]$")]  # a number of hops as a key of a mapping
Count = Annotated[int, Field(ge=0, le=1_000_000)]
# As the web tier names versions of datasets.
DatasetVersionId = Annotated[str, Field(pattern=r"^ver_[0-9a-z]{16}$")]


def hop_category(hops: int) -> str:
    """The category of tasks with this many hops, by which the pool's gate knows them."""
    return "1 hop" if hops == 1 else f"{hops} hops"


class SpecModel(BaseModel):
    """Base of all parts of a spec: unknown keys are refused and nothing is coerced."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Disagreement:
    """Fields that cannot all be honoured; the message stands at each of them."""

    message: str
    paths: tuple[str, ...]
