"""The data pool as a Ray actor: durable before it is visible, and never blocked by a caller.

All methods are coroutines of one event loop. Those that wait, wait without holding anything, so
that latches, publishing and snapshots are answered at once however many workers ask for work.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.pool.admission import Wanted
from engine.pool.gate import Gate
from engine.pool.group import Group
from engine.pool.pool import Pool, Taken, Ticket
from engine.pool.state import Committed, Published, Record
from engine.pool.wal import Wal
from engine.records.events import Clock, GateDecision, PoolSnapshot
from engine.telemetry.reporter import Reporter
from workers.cluster import rehearsal
from workers.cluster.reporting import Address
from workers.cluster.rollout_stats import Tally, Window
from workers.cluster.storage import RunStorage

REPORT_S = 1.0
ROLLOUT_REPORT_S = 2.0
QUIET_REPORT_S = 10.0


@dataclass
class Totals:
    """How far each axis has come, over all stages and attempts."""

    trainer_step: int = 0
    rollout_step: int = 0  # finished groups
    environment_step: int = 0  # turns
    tokens: int = 0  # sampled


@dataclass(frozen=True)
class PoolPlan:
    """What one sampled stage asks of its pool."""

    stage: int
    batch: int
    max_staleness: int
    capacity: int
    shares: dict[str, float]
    max_wait_s: float
    attempt: int
    committed_step: int  # of this stage, by the checkpoint that the attempt starts from
    totals: Totals  # by that checkpoint
    wanted: Wanted
    rehearses: bool = False  # the trainers get stand-ins for the rewards


@dataclass(frozen=True)
class Offer:
    """What a rollout worker gets: leave to start groups, and the newest weights."""

    tickets: list[Ticket]
    version: int
    weights: list[Any]  # one object reference, in a list so that Ray does not resolve it
    process_weight: float | None  # of the reward's process terms, came with the weights


@dataclass(frozen=True)
class Batch:
    """The groups of one training step, without their trajectories."""

    staleness: list[int]
    waited_s: float  # for the shares
    tokens: int
    sampled: dict[str, int]  # groups since the batch before: admitted, or why not
    completed: Tally  # all that was completed since then


@dataclass(frozen=True)
class Released:
    """What a worker that died leaves behind."""

    tickets: dict[int, int]  # given again: how often a death has cut the group short by now
    finished: int  # groups that came of it


@dataclass
class _Stage:
    pool: Pool
    wal: Wal
    rehearses: bool
    batches: dict[int, list[Group]] = field(default_factory=dict)  # by step, until committed
    cut_short: Counter[int] = field(default_factory=Counter)  # by ticket: deaths of its workers


class PoolActor:
    def __init__(self, storage: str, address: Address) -> None:
        self._storage = RunStorage(storage)
        self._reporter: Reporter = address.reporter("pool")
        self._totals = Totals()
        self._stage: _Stage | None = None
        self._published: tuple[int, list[Any], float | None] = (0, [], None)
        self._writing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._window = Window(time.monotonic())
        self._completed = Tally()  # since the last batch
        self._finished: Counter[str] = Counter()  # groups, by worker
        self._released: set[str] = set()  # workers of which nothing is taken any more
        self._reporting: asyncio.Task[None] | None = None
        self._busy: dict[str, float] = {}
        self._told: dict[str, Any] = {}
        self._told_at = float("-inf")

    async def open(self, plan: PoolPlan) -> int:
        """Begin a stage with what its log holds; the newest version that was ever published."""
        wal = Wal(self._storage.store(f"pool/stage-{plan.stage}"), plan.attempt)
        state = await asyncio.to_thread(wal.recover, plan.committed_step)
        await asyncio.to_thread(wal.compact, state)
        pool = Pool(
            batch=plan.batch,
            max_staleness=plan.max_staleness,
            capacity=plan.capacity,
            gate=Gate(plan.shares, plan.max_wait_s),
            wanted=plan.wanted,
            state=state,
        )
        if self._stage is not None:
            pool.pause_rollouts = self._stage.pool.pause_rollouts
            pool.pause_training = self._stage.pool.pause_training
        self._stage = _Stage(pool, wal, plan.rehearses)
        self._totals = plan.totals
        self._completed = Tally()
        if self._reporting is None:
            self._reporting = asyncio.create_task(self._report())
        return state.version

    async def latch(self, rollouts: bool, training: bool) -> None:
        """Pause or go on; takes effect before it returns."""
        pool = self._open().pool
        pool.pause_rollouts, pool.pause_training = rollouts, training
        self._notify()

    async def publish(
        self, version: int, weights: list[Any], trainer_step: int, process_weight: float | None
    ) -> None:
        """From now on rollouts use these weights, and rewards this weight of process terms."""
        await self._apply(lambda: [Published(version)])
        self._published = (version, weights, process_weight)
        self._totals.trainer_step = trainer_step
        self._clock()
        self._notify()

    async def start(self, worker: str, version: int, at_most: int, wait_s: float) -> Offer:
        """Tickets for a worker whose weights have this version; waits for the first one."""
        deadline = time.monotonic() + wait_s
        while True:
            self._refuse_released(worker)
            tickets = self._open().pool.start(worker, version, at_most) if at_most else []
            newest, weights, process_weight = self._published
            left = deadline - time.monotonic()
            if tickets or newest > version or left <= 0:
                return Offer(tickets, newest, weights, process_weight)
            await self._wait(left)

    async def busy(self, worker: str, share: float) -> None:
        """The share of the last seconds in which a rollout worker was busy."""
        self._busy[worker] = share

    async def abandon(self, worker: str, tickets: list[int]) -> None:
        self._refuse_released(worker)
        self._open().pool.abandon(tickets)
        self._notify()

    async def release(self, worker: str) -> Released:
        """Give again what a worker that died was at. What it had sent before is taken first;
        what still comes of it is refused, since others may be at the same groups by then."""
        self._released.add(worker)
        tickets = {}
        async with self._writing:
            if (stage := self._stage) is not None:
                stage.cut_short.update(held := stage.pool.release(worker))
                tickets = {ticket: stage.cut_short[ticket] for ticket in sorted(held)}
        lost = {"rollout/workers_lost": float(len(self._released))}
        self._reporter.metrics(self._totals.rollout_step, lost, axis="rollout_step")
        self._notify()
        return Released(tickets, self._finished[worker])

    async def finish(self, worker: str, group: Group, tally: Tally) -> None:
        """Take in a finished group; it is durable on return, or refused with a reason."""
        self._refuse_released(worker)
        pool = self._open().pool
        await self._apply(lambda: [pool.finish(group)])
        self._finished[worker] += 1
        self._window.gathered.add(tally)
        self._completed.add(tally)
        self._totals.rollout_step += tally.groups
        self._totals.environment_step += tally.turns
        self._totals.tokens += tally.sampled_tokens
        self._notify()

    async def take(self, step: int, wait_s: float) -> Batch | None:
        """Set the groups of a training step aside; None when they were not there in time.

        Raises NoBatchError where the rounds of sampling are used up.
        """
        stage = self._open()
        deadline = time.monotonic() + wait_s
        while True:
            taken = await self._take(stage, step)
            if taken.decision is not None and taken.decision.text:
                decision = taken.decision
                self._reporter.spool.add(
                    GateDecision, text=decision.text, waited_s=decision.waited_s
                )
            if taken.groups:
                stage.batches[step] = taken.groups
                self._notify()
                waited = taken.decision.waited_s if taken.decision else 0.0
                tokens = sum(group.tokens for group in taken.groups)
                completed, self._completed = self._completed, Tally()
                return Batch(taken.staleness, waited, tokens, taken.sampled, completed)
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            await self._wait(min(left, 0.25))

    async def batch(self, step: int) -> list[Group]:
        """The groups that `take` set aside for a step, for every trainer rank."""
        stage = self._open()
        return rehearsal.spread(stage.batches[step]) if stage.rehearses else stage.batches[step]

    async def commit(self, step: int) -> None:
        """A checkpoint that covers the steps up to this one is complete."""
        stage = self._open()
        await self._apply(lambda: [Committed(step)])
        stage.batches = {s: groups for s, groups in stage.batches.items() if s > step}
        async with self._writing:
            await asyncio.to_thread(stage.wal.compact, stage.pool.state)

    async def totals(self) -> Totals:
        return self._totals

    async def snapshot(self) -> dict[str, Any]:
        return self._open().pool.snapshot(time.time())

    async def close(self, timeout_s: float) -> bool:
        """Report what is left; True when all of it arrived."""
        if self._reporting is not None and not self._reporting.done():
            self._reporting.cancel()
            self._report_rollouts()
            self._report_pool()
            self._clock()
        return await asyncio.to_thread(self._reporter.close, timeout_s)

    def _open(self) -> _Stage:
        if self._stage is None:
            raise RuntimeError("No stage has been opened in this pool.")
        if self._reporting is not None and self._reporting.done():
            self._reporting.result()  # raises what ended it
        return self._stage

    def _refuse_released(self, worker: str) -> None:
        if worker in self._released:
            raise RuntimeError(f"{worker} was taken for dead, and another works in its place.")

    async def _take(self, stage: _Stage, step: int) -> Taken:
        taken: Taken | None = None

        def decide() -> list[Record]:
            nonlocal taken
            taken = stage.pool.take(step, time.monotonic())
            return taken.records

        await self._apply(decide)
        assert taken is not None
        return taken

    async def _apply(self, decide: Callable[[], list[Record]]) -> None:
        """Decide, make durable, change the state: nobody decides on a state in between."""
        stage = self._open()
        async with self._writing:
            records = decide()
            if records:
                await asyncio.to_thread(stage.wal.append, *records)
                for record in records:
                    stage.pool.apply(record)

    async def _wait(self, seconds: float) -> None:
        """Until anything has changed since this call, or so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def _notify(self) -> None:
        """Wake all who wait; those who come later wait for the next change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _report(self) -> None:
        rollouts_at = time.monotonic()
        while True:
            await asyncio.sleep(REPORT_S)
            self._report_pool()
            if time.monotonic() - rollouts_at >= ROLLOUT_REPORT_S:
                rollouts_at = time.monotonic()
                self._report_rollouts()
                self._clock()

    def _report_pool(self) -> None:
        """What a quiet pool has to say is said every few seconds: its age goes on growing."""
        now = time.monotonic()
        snapshot = self._open().pool.snapshot(time.time())
        told = {key: value for key, value in snapshot.items() if key != "oldest_s"}
        if told != self._told or now - self._told_at >= QUIET_REPORT_S:
            self._told, self._told_at = told, now
            self._reporter.spool.add(PoolSnapshot, **snapshot)

    def _report_rollouts(self) -> None:
        metrics = self._window.drain(time.monotonic())
        if self._busy:
            metrics["time/busy_share_rollout"] = sum(self._busy.values()) / len(self._busy)
            self._busy.clear()
        if metrics:
            self._reporter.metrics(self._totals.rollout_step, metrics, axis="rollout_step")

    def _clock(self) -> None:
        self._reporter.spool.add(Clock, **asdict(self._totals))
