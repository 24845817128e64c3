"""The pool: decides by its rules and changes its state through records, which a log may keep.

A caller persists the records that `finish` and `take` return before it applies them: what the log
lost was never visible. Durations come from a monotonic clock.
"""

import heapq
from collections import Counter
from dataclasses import dataclass
from typing import Any

from engine.pool.admission import NoBatchError, Wanted, no_batch, refusal, room, staleness
from engine.pool.gate import Decision, Gate
from engine.pool.group import Group
from engine.pool.state import (
    Admitted,
    Discarded,
    Leased,
    PoolState,
    Published,
    Record,
    Refused,
)


@dataclass(frozen=True)
class Ticket:
    """Leave to start one group. `category` is what the pool lacks most; None: any."""

    number: int
    category: str | None


@dataclass(frozen=True)
class Taken:
    """The groups of one training step, or why there are none yet."""

    records: list[Record]
    groups: list[Group]
    staleness: list[int]  # of each group, at this consumption
    decision: Decision | None
    sampled: dict[str, int]  # groups finished since the batch before: admitted, or why not


class Pool:
    def __init__(
        self,
        *,
        batch: int,
        max_staleness: int,
        capacity: int,
        gate: Gate,
        wanted: Wanted,
        state: PoolState | None = None,
    ) -> None:
        self.batch = batch
        self.max_staleness = max_staleness
        self.capacity = capacity
        self.gate = gate
        self.wanted = wanted
        self.state = state or PoolState()
        self.pause_rollouts = False
        self.pause_training = False
        self._next_ticket = self.state.next_ticket
        self._again = sorted(self.state.unfinished)  # a heap: tickets to be given once more
        self._in_flight: dict[int, tuple[str, str | None]] = {}  # ticket -> worker, category
        self._training = 0  # groups of the step that is not published yet
        self._sampled: Counter[str] = Counter()

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def start(self, worker: str, worker_version: int, at_most: int) -> list[Ticket]:
        """Tickets for groups that this worker may start now; few or none while there is no room."""
        if self.pause_rollouts:
            return []
        free = room(
            batch=self.batch,
            max_staleness=self.max_staleness,
            capacity=self.capacity,
            lag=staleness(self.state.version, worker_version),
            training=self._training,
            waiting=len(self.state.waiting),
            in_flight=self.in_flight,
        )
        tickets = []
        on_the_way = Counter(group.category for group in self.state.waiting.values())
        on_the_way.update(c for _, c in self._in_flight.values() if c is not None)
        for _ in range(min(free, at_most)):
            ticket = Ticket(self._number(), self.gate.next_category(on_the_way))
            self._in_flight[ticket.number] = (worker, ticket.category)
            if ticket.category is not None:
                on_the_way[ticket.category] += 1
            tickets.append(ticket)
        return tickets

    def abandon(self, tickets: list[int]) -> None:
        """Forget groups that were started and will never finish; they were not produced, and
        their tickets are given again."""
        for ticket in tickets:
            if self._in_flight.pop(ticket, None) is not None:
                heapq.heappush(self._again, ticket)

    def release(self, worker: str) -> list[int]:
        """Abandon all that a worker was at, which died; the tickets."""
        held = [ticket for ticket, (holder, _) in self._in_flight.items() if holder == worker]
        self.abandon(held)
        return held

    def _number(self) -> int:
        """The smallest number of a ticket that is not in flight and came to nothing before: were
        those that a crash or an evaluation cut short left out, long episodes would be missing."""
        if self._again:
            return heapq.heappop(self._again)
        self._next_ticket += 1
        return self._next_ticket - 1

    def finish(self, group: Group) -> Admitted | Refused:
        """What becomes of a finished group. Raises ValueError without a ticket."""
        if group.ticket not in self._in_flight:
            raise ValueError(f"Group {group.id} has no ticket in flight ({group.ticket}).")
        lag = staleness(self.state.version, group.version)
        reason = refusal(group.rewards, group.solved, lag, self.max_staleness, self.wanted)
        return Admitted(group) if reason is None else Refused(group.ticket, reason)

    def take(self, step: int, now: float) -> Taken:
        """The groups of training step `step`, oldest start first, within window and shares.

        No more than the window after the oldest group in flight is overtaken, so that quick
        episodes do not crowd out long ones (windowed FIFO). Raises NoBatchError where the rounds
        are used up.
        """
        sampled = dict(self._sampled)
        if self.pause_training:
            self.gate.forget_wait(now)
            return Taken([], [], [], None, sampled)
        lags = {t: staleness(self.state.version, g.version) for t, g in self.state.waiting.items()}
        stale = [ticket for ticket, lag in lags.items() if lag > self.max_staleness]
        records: list[Record] = [Discarded(ticket, "stale") for ticket in stale]
        window = (self.max_staleness + 1) * self.batch
        end = min(self._in_flight, default=self._next_ticket) + window
        fresh = sorted(t for t in self.state.waiting if lags[t] <= self.max_staleness and t < end)
        groups = [self.state.waiting[ticket] for ticket in fresh]
        decision = self.gate.decide([group.category for group in groups], self.batch, now)
        if decision.take is None:
            rounds = self.wanted.rounds
            if (
                rounds is not None
                and sum(sampled.values()) >= rounds * self.batch
                and len(self.state.waiting) < self.batch
            ):
                raise NoBatchError(no_batch(step, self.batch, rounds, sampled))
            return Taken(records, [], [], decision, sampled)
        chosen = [groups[index] for index in decision.take]
        records.append(Leased(step, tuple(group.ticket for group in chosen)))
        return Taken(records, chosen, [lags[group.ticket] for group in chosen], decision, sampled)

    def apply(self, record: Record) -> None:
        """Change the state by a record that was decided here and persisted."""
        self.state.apply(record)
        match record:
            case Admitted(group):
                self._in_flight.pop(group.ticket, None)
                self._sampled["admitted"] += 1
            case Refused(ticket, reason):
                self._in_flight.pop(ticket, None)
                self._sampled[reason] += 1
            case Leased(_, tickets):
                self._training = len(tickets)
                self._sampled.clear()
            case Published(_):
                self._training = 0

    def snapshot(self, now: float) -> dict[str, Any]:
        """The fields of `engine.records.events.PoolSnapshot`; `now` in seconds since 1970."""
        state = self.state
        groups = state.waiting.values()
        ages = Counter(str(staleness(state.version, group.version)) for group in groups)
        return {
            "trainer_version": state.version,
            "produced": state.produced,
            "consumed": state.consumed,
            "waiting": len(state.waiting),
            "leased": state.leased_count,
            "discarded": dict(state.discarded),
            "categories": dict(Counter(group.category for group in groups)),
            "target": self.gate.shares,
            "staleness": dict(ages),
            "oldest_s": max((now - group.arrived_at for group in groups), default=0.0),
        }
