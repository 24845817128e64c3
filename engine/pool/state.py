"""The state of a pool and the records that change it. The same records make the write-ahead log.

The law, at every instant: produced = consumed + waiting + leased + discarded, in groups.
"""

from collections import Counter
from dataclasses import dataclass, field

from engine.pool.group import Group


@dataclass(frozen=True)
class Admitted:
    """A finished group that now waits to be trained on."""

    group: Group


@dataclass(frozen=True)
class Refused:
    """A finished group that was never admitted."""

    ticket: int
    reason: str


@dataclass(frozen=True)
class Discarded:
    """A waiting group that will not be trained on."""

    ticket: int
    reason: str


@dataclass(frozen=True)
class Leased:
    """Groups handed to the trainer for one of its steps."""

    step: int
    tickets: tuple[int, ...]


@dataclass(frozen=True)
class Committed:
    """A checkpoint that covers all steps up to this one is complete: consumption is final."""

    step: int


@dataclass(frozen=True)
class Returned:
    """The steps after this one are void: what they were trained on waits again."""

    step: int


@dataclass(frozen=True)
class Published:
    """The trainer published this policy version."""

    version: int


Record = Admitted | Refused | Discarded | Leased | Committed | Returned | Published


@dataclass
class PoolState:
    """What a pool holds. Changed by `apply` alone."""

    produced: int = 0
    consumed: int = 0
    discarded: Counter[str] = field(default_factory=Counter)
    next_ticket: int = 1
    unfinished: set[int] = field(default_factory=set)  # tickets before it that came to nothing yet
    version: int = 0  # newest published policy version
    waiting: dict[int, Group] = field(default_factory=dict)  # by ticket
    leased: dict[int, list[Group]] = field(default_factory=dict)  # by trainer step

    @property
    def leased_count(self) -> int:
        return sum(len(groups) for groups in self.leased.values())

    def conserves(self) -> bool:
        gone = self.consumed + sum(self.discarded.values())
        return self.produced == gone + len(self.waiting) + self.leased_count

    def apply(self, record: Record) -> None:
        """Raises ValueError on a record that contradicts the state, and changes nothing then."""
        match record:
            case Admitted(group):
                self._count(group.ticket)
                self.waiting[group.ticket] = group
            case Refused(ticket, reason):
                self._count(ticket)
                self.discarded[reason] += 1
            case Discarded(ticket, reason):
                self._require_waiting((ticket,))
                del self.waiting[ticket]
                self.discarded[reason] += 1
            case Leased(step, tickets):
                self._require_waiting(tickets)
                if step in self.leased:
                    raise ValueError(f"Step {step} has its groups already.")
                self.leased[step] = [self.waiting.pop(ticket) for ticket in tickets]
            case Committed(step):
                for covered in [s for s in self.leased if s <= step]:
                    self.consumed += len(self.leased.pop(covered))
            case Returned(step):
                for void in [s for s in self.leased if s > step]:
                    self.waiting.update({group.ticket: group for group in self.leased.pop(void)})
            case Published(version):
                if version < self.version:
                    raise ValueError(f"Version {version} came after {self.version}.")
                self.version = version

    def _count(self, ticket: int) -> None:
        held = (group.ticket for groups in self.leased.values() for group in groups)
        if ticket in self.waiting or ticket in held:
            raise ValueError(f"The group of ticket {ticket} is in the pool already.")
        self.produced += 1
        self.unfinished.update(range(self.next_ticket, ticket))
        self.unfinished.discard(ticket)
        self.next_ticket = max(self.next_ticket, ticket + 1)

    def _require_waiting(self, tickets: tuple[int, ...]) -> None:
        if missing := [ticket for ticket in tickets if ticket not in self.waiting]:
            raise ValueError(f"No group waits under the tickets {missing}.")
