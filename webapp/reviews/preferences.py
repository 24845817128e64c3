"""Pairs of turns to learn a preference from: where a better and a worse trajectory part. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from engine.records.rows import LOST
from engine.records.trajectory import Step, StopReason, Trajectory

CUT_SHORT = (StopReason.MAX_TURN_TOKENS, StopReason.MAX_TOKENS)


class NoPairError(ValueError):
    """Two trajectories from which no preference can be learned; the message is the reason."""


@dataclass(frozen=True)
class Fork:
    """The same question and the same `steps`, then two different turns of the policy."""

    steps: list[dict[str, Any]]
    chosen: str
    rejected: str

    @property
    def step(self) -> int:
        """The index of the two turns."""
        return len(self.steps)


def fork_of(better: Trajectory, worse: Trajectory) -> Fork:
    """Where two trajectories of one task part, as a row of `engine.records.rows.PairRow`.

    Only the turn at which they part is compared: what follows was said to different contexts.
    Raises NoPairError.
    """
    if better.prompt != worse.prompt:
        raise NoPairError("another question")
    shared: list[dict[str, Any]] = []
    for one, two in zip(better.steps, worse.steps, strict=False):
        if one.segment or two.segment:
            raise NoPairError("the context was edited before they part")
        if one.text != two.text:
            _check_turn(better, one)
            _check_turn(worse, two)
            return Fork(shared, one.text, two.text)
        if one.call is None or two.call is None:
            break
        if one.call.result != two.call.result:
            raise NoPairError("the same call had different results")
        if LOST in one.text or LOST in one.call.result:
            raise NoPairError("text with broken characters")
        call = {
            "name": one.call.name,
            "arguments": one.call.arguments,
            "result": one.call.result,
            "error": one.call.error,
        }
        shared.append({"text": one.text, "call": call, "detour": one.detour})
    raise NoPairError("the same turns")


def _check_turn(trajectory: Trajectory, step: Step) -> None:
    if step.detour:
        raise NoPairError("a forced turn, which the policy did not choose")
    if LOST in step.text:
        raise NoPairError("text with broken characters")
    last = step.index == trajectory.steps[-1].index
    if last and trajectory.stop_reason in CUT_SHORT:
        raise NoPairError("a turn that was cut short")


@dataclass
class Preferences:
    """Pairs without repetition and without contradiction; `left_out` counts by reason."""

    left_out: dict[str, int] = field(default_factory=dict)
    _rows: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)

    def add(self, better: Trajectory, worse: Trajectory, review: dict[str, Any]) -> None:
        """`review`: who preferred it, kept with the row."""
        try:
            fork = fork_of(better, worse)
        except NoPairError as error:
            self.count(str(error))
            return
        context = repr((better.prompt, [(s["text"], s["call"]["result"]) for s in fork.steps]))
        key = (context, fork.chosen, fork.rejected)
        if key in self._rows:
            self.count("the same pair again")
            return
        self._rows[key] = {
            "prompt": better.prompt,
            "category": better.category,
            "steps": fork.steps,
            "chosen": fork.chosen,
            "rejected": fork.rejected,
            "review": {
                **review,
                "chosen_trajectory": better.id,
                "rejected_trajectory": worse.id,
                "step": fork.step,
            },
        }

    def count(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def rows(self) -> Iterable[dict[str, Any]]:
        """Where people preferred one turn here and the other there, neither is kept."""
        for (context, chosen, rejected), row in self._rows.items():
            if (context, rejected, chosen) in self._rows:
                self.count("preferred the other way round elsewhere")
            else:
                yield row
