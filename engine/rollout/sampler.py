"""What the agent loop asks of whatever samples tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class SampledTurn:
    """One finished turn of one sequence; the lists have one entry per sampled token.

    ids: up to and including the end token, where the policy reached it (`ended`); logprobs: under
    the distribution that sampled the token, temperature included; versions: the policy version
    that did. problem: why no turn came, after which the sequence can only be closed.
    """

    sequence: int
    ids: list[int]
    logprobs: list[float]
    versions: list[int]
    ended: bool
    problem: str = ""


class Sampler(Protocol):
    """Holds sequences that grow by turns. A sequence keeps its state while tools run."""

    @property
    def capacity(self) -> int:
        """Sequences that can be open at once."""
        ...

    @property
    def version(self) -> int:
        """The policy version that samples now."""
        ...

    def open(
        self, ids: Sequence[int], copies: int, max_tokens: int, temperature: float
    ) -> list[int]:
        """Opens `copies` sequences with one prompt, computed once, each sampling its first turn.

        temperature 0 takes the likeliest token; its log-prob is then the one at temperature 1.
        Raises RuntimeError beyond the capacity, ValueError for ids or lengths that cannot be.
        """
        ...

    def extend(self, sequence: int, ids: Sequence[int], max_tokens: int) -> None:
        """Appends what the environment wrote and starts the next turn, of at most `max_tokens`.

        As all that takes a sequence or a mark, raises RuntimeError where it is not there, or the
        sequence is inside a turn.
        """
        ...

    def mark(self, sequence: int) -> int:
        """Remembers the context that a sequence has now, between two turns.

        The mark lasts until it is released or its sequence is closed.
        """
        ...

    def rewind(self, sequence: int, mark: int, ids: Sequence[int], max_tokens: int) -> None:
        """Sets a sequence back to a mark of its own, appends ids and starts the next turn.

        So goes on what a context edit has cut off; marks that lie behind stay valid.
        """
        ...

    def fork(
        self, sequence: int, mark: int, ids: Sequence[int], max_tokens: int, temperature: float
    ) -> int:
        """Opens a sequence that goes on from a mark of another, which may be anywhere by now."""
        ...

    def release(self, mark: int) -> None:
        """Forgets a mark."""
        ...

    def step(self) -> list[SampledTurn]:
        """A little progress for all sequences; returns the turns that it finished."""
        ...

    def close(self, sequence: int) -> None:
        """Forgets a sequence, whatever it is doing."""
        ...

    def load_weights(self, version: int, weights: Mapping[str, Any]) -> None:
        """From now on tokens are sampled by these weights, also in turns that are under way."""
        ...
