"""The tool-call funnel: how far attempted calls came."""

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from engine.records.trajectory import ToolCall

MALFORMED = frozenset({"invalid_json", "not_an_object"})
UNKNOWN = frozenset({"unknown_tool"})
INVALID = frozenset({"invalid_arguments"})


@dataclass(frozen=True)
class CallFunnel:
    """Each stage counts calls that passed those before. Two funnels add up.

    `useful` calls changed what is known: they did not fail, and their result is none that the
    trajectory had seen before.
    """

    attempted: int = 0
    parseable: int = 0
    known_tool: int = 0
    valid_arguments: int = 0
    executed: int = 0
    useful: int = 0

    def __add__(self, other: "CallFunnel") -> "CallFunnel":
        return CallFunnel(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def format_error_rate(self) -> float | None:
        """Calls that are no JSON, name no tool or break its schema, over all; None without any."""
        if not self.attempted:
            return None
        return 1 - self.valid_arguments / self.attempted


def call_funnel(calls: Iterable[ToolCall]) -> CallFunnel:
    """The funnel of one trajectory's calls, in their order."""
    counts = [0] * 6
    seen: set[str] = set()
    for call in calls:
        fresh = call.error is None and call.result not in seen
        seen.add(call.result)
        reached = (
            1 if call.error in MALFORMED
            else 2 if call.error in UNKNOWN
            else 3 if call.error in INVALID
            else 4 if call.error is not None
            else 6 if fresh
            else 5
        )  # fmt: skip
        for stage in range(reached):
            counts[stage] += 1
    return CallFunnel(*counts)
