"""What every environment offers: tasks, episodes, and what comes back for one policy turn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.records.trajectory import StopReason, ToolCall


@dataclass(frozen=True)
class Task:
    """One question with its only right answer.

    `prompt` is all the agent sees; `meta` is for people and for the checks (never shown to it).
    """

    id: str
    category: str
    prompt: str
    answer: str
    hops: int
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """What an episode returns for one policy turn.

    `text` goes into the context verbatim (as ordinary text); it is empty where the episode ended.
    `stop` is set exactly when the episode ended; `answer` only when it ended with an answer.
    """

    text: str
    call: ToolCall | None = None
    answer: str | None = None
    stop: StopReason | None = None


class Episode(Protocol):
    """One attempt at one task. Keeps its own state: episodes never see each other."""

    def act(self, text: str) -> Observation:
        """Takes a decoded policy turn, without special tokens.

        Whatever the policy wrote, this returns; RuntimeError only when the episode is over.
        """
        ...


class Environment(Protocol):
    def tools(self) -> list[dict[str, Any]]:
        """The tools as OpenAI function schemas."""
        ...

    def start(self, task: Task) -> Episode:
        """A fresh episode of this task."""
        ...
