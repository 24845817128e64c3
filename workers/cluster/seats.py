"""The rollout workers of an attempt: each sits in a seat, and another replaces one that dies.

A worker is lost to want of memory, to a machine that is taken away or breaks. What it was at goes
back to the pool, where whoever asks next gets it; the one in its place loads the model, takes the
newest weights, and is asked again what the one before had not answered. Meanwhile the others go
on. What a worker raises is no death: it would raise it again, and ends the run.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.exceptions import (
    NodeDiedError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from workers.cluster import limits
from workers.cluster.pool_actor import Released
from workers.cluster.rollout_actor import worker_name

DEATHS = (RayActorError, OutOfMemoryError, NodeDiedError, WorkerCrashedError)
MAX_DEATHS = 3  # in a row in one seat, all without any use; or that cut the same group short
NO_ANSWER = object()  # in place of a reference: nobody waits for this seat
_MAX_CAUSE = 400  # characters


class LostWorkersError(Exception):
    """Workers died one after the other, and another would be of no use."""


@dataclass
class Call:
    """What every worker is asked. `refs`, by seat, changes while it is waited for: None where
    nobody sits who can be asked."""

    method: str
    arguments: list[tuple[Any, ...]]  # by seat
    refs: list[Any]
    repeated: bool  # who replaces a worker that died is asked again

    def is_done(self) -> bool:
        asked = [ref for ref in self.refs if ref is not NO_ANSWER]
        if any(ref is None for ref in asked):
            return False
        ready, _ = ray.wait(asked, num_returns=len(asked), timeout=0)
        return len(ready) == len(asked)


@dataclass
class _Seat:
    index: int
    actor: Any = None
    life: int = 0
    hired_at: float = 0.0  # monotonic
    settling: Any = None  # the call after which it can be asked; None: it can
    loop: Any = None  # an endless call: its end is the actor's
    produces: tuple[int, Any] | None = None  # what it was told while it settled
    useless: int = 0  # deaths since a worker of this seat was of use

    @property
    def name(self) -> str:
        return f"rollout-{self.index}"


class Seats:
    """Not for several threads."""

    def __init__(
        self,
        hire: Callable[[int, int], Any],
        tell: Callable[[str, Literal["info", "warning"]], None],
    ) -> None:
        """`hire` starts the actor of a seat and a life, and `tell` writes into the run's log."""
        self._hire, self._tell = hire, tell
        self._storage = ""
        self._pool: Any = None
        self._produces: tuple[int, Any] | None = None  # index of a stage, and its pool
        self._calls: list[Call] = []  # that not everybody has answered
        self._seats: list[_Seat] = []

    def open(self, count: int, storage: str, pool: Any) -> None:
        """Have so many workers load. `storage`: the run's; `pool`: who is told of the dead."""
        self._storage, self._pool = storage, pool
        self._seats = [_Seat(index) for index in range(count)]
        for seat in self._seats:
            self._fill(seat)

    @property
    def watched(self) -> list[Any]:
        """Calls that nobody waits for. Have `look` look at one that has ended."""
        both = (ref for seat in self._seats for ref in (seat.loop, seat.settling))
        return [ref for ref in both if ref is not None]

    def look(self, ref: Any) -> None:
        """Go on after a watched call has ended.

        Raises what the actor raised, and LostWorkersError.
        """
        seat = next((one for one in self._seats if ref in (one.loop, one.settling)), None)
        if seat is None:  # it was replaced meanwhile
            return
        try:
            ray.get(ref, timeout=limits.CALL_S)
        except DEATHS as error:
            if not is_death(error):
                raise
            self._bury(seat, error)
            return
        if ref == seat.loop:
            raise RuntimeError(f"{seat.name} ended although the run goes on.")
        self._settle(seat)

    def mourn(self, ref: Any, error: Exception) -> bool:
        """Whether the call failed since its worker has died. Raises LostWorkersError."""
        if not is_death(error):
            return False
        for call in self._calls:
            if ref in call.refs:
                self._bury(self._seats[call.refs.index(ref)], error)
                return True
        return False

    def ask(self, method: str, arguments: Callable[[int, int], tuple[Any, ...]]) -> Call:
        """Ask every worker. `arguments` are those of a part and of how many parts there are.

        Call `forget` once nobody waits for it any more.
        """
        count = len(self._seats)
        each = [arguments(part, count) for part in range(count)]
        call = Call(method, each, [None] * count, repeated=True)
        self._issue(call)
        return call

    def switch(self, produces: tuple[int, Any] | None) -> Call:
        """Have all produce groups for a stage's pool, or none. Who comes later is told then."""
        self._produces = produces
        method, arguments = _to_switch(produces)
        call = Call(method, [arguments] * len(self._seats), [NO_ANSWER] * len(self._seats), False)
        self._issue(call)
        return call

    def forget(self, call: Call, of_use: bool) -> None:
        self._calls.remove(call)
        if of_use:
            for seat in self._seats:
                seat.useless = 0

    def played(self) -> int:
        """Episodes with frozen weights that are behind the workers, of those they play now."""
        calls = [one.actor.played.remote() for one in self._seats if one.settling is None]
        if not calls:
            return 0
        ready, _ = ray.wait(calls, num_returns=len(calls), timeout=limits.CALL_S)
        found = 0
        for ref in ready:
            try:
                found += ray.get(ref, timeout=limits.CALL_S)
            except DEATHS:  # its loop says so too
                continue
        return found

    def dismiss(self) -> list[Any]:
        """Tell all to stop, end those that nobody can ask yet; the others, which nobody watches
        any more."""
        seats, self._seats = self._seats, []
        for seat in seats:
            if seat.settling is None:
                seat.actor.stop.remote()
            else:
                ray.kill(seat.actor)
        return [seat.actor for seat in seats if seat.settling is None]

    def _fill(self, seat: _Seat) -> None:
        seat.life += 1
        seat.hired_at = time.monotonic()
        seat.actor = self._hire(seat.index, seat.life)
        seat.loop, seat.produces = None, None
        seat.settling = seat.actor.load.remote(self._storage)

    def _settle(self, seat: _Seat) -> None:
        """Its call is answered: make the next before it can be asked, or ask it."""
        if seat.loop is None:
            seat.loop = seat.actor.run.remote()
        if seat.produces is not self._produces:
            seat.produces = self._produces
            method, arguments = _to_switch(seat.produces)
            seat.settling = getattr(seat.actor, method).remote(*arguments)
            return
        seat.settling = None
        if seat.life > 1:
            took_s = time.monotonic() - seat.hired_at
            self._tell(f"Another {seat.name} is at work, after {took_s:.0f} s.", "info")
        for call in self._calls:
            if call.refs[seat.index] is None:
                call.refs[seat.index] = _asked(seat, call)

    def _issue(self, call: Call) -> None:
        self._calls.append(call)
        for seat in self._seats:
            if seat.settling is None:
                call.refs[seat.index] = _asked(seat, call)

    def _bury(self, seat: _Seat, error: Exception) -> None:
        """Have another worker take the seat of one that died, unless too many did."""
        ray.kill(seat.actor)  # where it cannot be reached: it shall not come back
        left: Released = ray.get(
            self._pool.release.remote(worker_name(seat.index, seat.life)), timeout=limits.SAVE_S
        )
        if left.finished:
            seat.useless = 0
        seat.useless += 1
        why = cause(error)
        goes_on = "The log has more; resume goes on from the last checkpoint."
        if seat.useless > MAX_DEATHS:
            raise LostWorkersError(
                f"{seat.name} died {seat.useless} times in a row without having finished a group "
                f"or an evaluation, the last time because {why} {goes_on}"
            )
        ticket, times = max(left.tickets.items(), key=lambda one: one[1], default=(0, 0))
        if times > MAX_DEATHS:
            raise LostWorkersError(
                f"{times} rollout workers died at the group of ticket {ticket}, which may be what "
                f"they died of, the last one ({seat.name}) because {why} {goes_on}"
            )
        again = ", ".join(map(str, left.tickets))
        self._tell(
            f"{seat.name} died and is replaced: {why} "
            + (
                f"The groups of tickets {again} are given again." if again else "It held no groups."
            ),
            "warning",
        )
        for call in self._calls:
            if not _is_answered(call.refs[seat.index]):
                call.refs[seat.index] = None if call.repeated else NO_ANSWER
        self._fill(seat)


def is_death(error: Exception) -> bool:
    """Whether the process that was called is gone: not where it told of another's death, or its
    constructor raised."""
    raised = isinstance(error, RayTaskError) or getattr(error, "actor_init_failed", False)
    return isinstance(error, DEATHS) and not raised


def cause(error: Exception) -> str:
    """Why Ray says that an actor died, as the end of a sentence."""
    if isinstance(error, OutOfMemoryError):
        return f"its machine ran out of memory: {_one_line(str(error))}"
    if isinstance(error, RayActorError) and error.preempted:
        return "its machine was taken away (preempted)."
    lines = [one for one in str(error).splitlines() if not one.startswith("\t")]
    return f"Ray says: {_one_line(' '.join(lines[1:] or lines))}"


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    text = text if len(text) <= _MAX_CAUSE else f"{text[: _MAX_CAUSE - 1]}…"
    return text if text.endswith((".", "…")) else f"{text}."


def _to_switch(produces: tuple[int, Any] | None) -> tuple[str, tuple[Any, ...]]:
    return ("cease", ()) if produces is None else ("produce", produces)


def _asked(seat: _Seat, call: Call) -> Any:
    return getattr(seat.actor, call.method).remote(*call.arguments[seat.index])


def _is_answered(ref: Any) -> bool:
    """Whether there is an answer that can still be had: its worker's machine may hold it."""
    if ref is None or ref is NO_ANSWER:
        return ref is NO_ANSWER
    ready, _ = ray.wait([ref], timeout=0)
    try:
        return bool(ready) and bool(ray.get(ready, timeout=limits.CALL_S))
    except RayTaskError:  # who waits for it hears of it
        return True
    except RayError:
        return False
