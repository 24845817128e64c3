"""Repair pairs: what the policy sampled in error beside its nearest repair, token by token.

The sides share every token up to the first that differs, as it was sampled; what follows alone is
compared. Nothing that was sampled is decoded and encoded again: the repair goes on from the
sampled tokens with the fewest new ones.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.records.trajectory import Step, Trajectory


class PairError(ValueError):
    """Two token sequences that are no pair; the message says why."""


class Repairer(Protocol):
    def fault(self, text: str) -> str | None:
        """The environment's class of the error in a turn, None where there is none."""
        ...

    def repaired(self, text: str, context: str) -> str | None:
        """The nearest turn without a fault, None where there is none.

        context: the question and what the tools have said before.
        """
        ...


class PairTokenizer(Protocol):
    @property
    def end_id(self) -> int: ...

    def encode_text(self, text: str) -> list[int]: ...

    def token_bytes(self, ids: Sequence[int]) -> list[bytes]: ...


@dataclass(frozen=True)
class Pair:
    """`prefix` is what both sides share; `chosen` and `rejected` begin with tokens that differ."""

    fault: str
    task_id: str
    prefix: list[int]
    chosen: list[int]
    rejected: list[int]


def pair_of(fault: str, task_id: str, chosen: Sequence[int], rejected: Sequence[int]) -> Pair:
    """The pair of two sequences of token ids. Raises PairError where they are none."""
    if list(chosen) == list(rejected):
        raise PairError(
            f"Both sides are the same {len(chosen)} tokens: there is nothing to prefer."
        )
    both = zip(chosen, rejected, strict=False)
    shared = next((n for n, (a, b) in enumerate(both) if a != b), min(len(chosen), len(rejected)))
    if shared == 0:
        raise PairError(
            "The sides share no prefix: they differ from the first token on, so that they are "
            "turns of different contexts."
        )
    if shared in (len(chosen), len(rejected)):
        short = "chosen" if shared == len(chosen) else "rejected"
        raise PairError(
            f"The {short} side ends after {shared} tokens, where the other goes on: it has no "
            "token of its own to compare."
        )
    return Pair(
        fault, task_id, list(chosen[:shared]), list(chosen[shared:]), list(rejected[shared:])
    )


def continued(turn: Sequence[int], repaired: str, tokenizer: PairTokenizer) -> list[int]:
    """The tokens of a repaired turn that go on from the sampled ones, with the fewest new tokens;
    of several such places, the first.

    turn: the sampled tokens. Going back a little can spare new tokens, where what was sampled is
    spelt in smaller pieces than the text has. At the first of several places the whole turn is
    shortest, as the policy spells it itself: where it ended a call on `"` instead of on `"}`, that
    choice is compared, and not whether a lone `}` may follow, which it never samples.
    """
    text, read = repaired.encode(), b""
    best: tuple[int, list[int]] | None = None
    for kept, piece in enumerate([*tokenizer.token_bytes(turn), b""]):
        try:
            new = [*tokenizer.encode_text(text[len(read) :].decode()), tokenizer.end_id]
        except UnicodeDecodeError:  # inside a character
            new = None
        if new is not None and (best is None or len(new) < len(best[1])):
            best = kept, new
        read += piece
        if not text.startswith(read):
            break
    assert best is not None  # the whole text can be encoded
    return [*turn[: best[0]], *best[1]]


@dataclass
class PairCollector:
    """Pairs from trajectories, without duplicates and at most `per_class` of a class of errors.

    counts: by class, how many errors there were and what became of them.
    """

    repairer: Repairer
    tokenizer: PairTokenizer
    per_class: int
    pairs: list[Pair] = field(default_factory=list)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    _seen: set[tuple[int, ...]] = field(default_factory=set)

    def add(self, trajectory: Trajectory) -> None:
        """The pairs of one trajectory."""
        context = [trajectory.prompt]
        for step in trajectory.steps:
            if step.call is None:
                continue
            error = step.call.error  # a valid call that was refused has one too, and no fault
            if error is not None and self.repairer.fault(step.text) == error:
                self._add(trajectory, step, error, "\n".join(context))
            context.append(step.call.result)

    def _add(self, trajectory: Trajectory, step: Step, fault: str, context: str) -> None:
        counts = self.counts.setdefault(fault, Counter())
        counts["errors"] += 1
        ids = trajectory.segments[step.segment].ids
        rejected = ids[: step.stop]
        if tuple(rejected) in self._seen:
            counts["duplicates"] += 1
            return
        self._seen.add(tuple(rejected))
        repaired = self.repairer.repaired(step.text, context)
        if repaired is None or self.repairer.fault(repaired) is not None:
            counts["without repair"] += 1
            return
        if counts["pairs"] == self.per_class:
            counts["over the cap"] += 1
            return
        turn = continued(ids[step.start : step.stop], repaired, self.tokenizer)
        try:
            pair = pair_of(fault, trajectory.task_id, [*ids[: step.start], *turn], rejected)
        except PairError:
            counts["without repair"] += 1
            return
        self.pairs.append(pair)
        counts["pairs"] += 1


@dataclass(frozen=True)
class Faults:
    """How often tool calls fail, of all that were tried."""

    calls: int
    by_class: Counter[str]
    successes: int
    trajectories: int

    def rate(self, fault: str) -> float:
        return self.by_class[fault] / self.calls if self.calls else 0.0


def faults_of(trajectories: Iterable[Trajectory]) -> Faults:
    """Counts over the episodes that the policy itself ended."""
    calls, successes, played = 0, 0, 0
    by_class: Counter[str] = Counter()
    for one in trajectories:
        if not one.stop_reason.is_policy:
            continue
        played += 1
        successes += one.success
        made = [step.call for step in one.steps if step.call is not None]
        calls += len(made)
        by_class.update(call.error for call in made if call.error is not None)
    return Faults(calls, by_class, successes, played)
