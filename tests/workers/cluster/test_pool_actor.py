"""The pool under many callers at once, without Ray: nothing is lost, doubled or left waiting."""

import asyncio
import contextlib
import random
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.pool.admission import Wanted
from engine.pool.group import Group
from engine.pool.wal import FolderStore, Wal
from workers.cluster.pool_actor import PoolActor, PoolPlan, Released, Totals
from workers.cluster.rollout_stats import Tally

BATCH, LIMIT = 3, 2
PLAN = PoolPlan(
    stage=2,
    batch=BATCH,
    max_staleness=LIMIT,
    capacity=12,
    shares={},
    max_wait_s=1.0,
    attempt=1,
    committed_step=0,
    totals=Totals(),
    wanted=Wanted(needs_spread=False),
)


def actor_in(folder: Path) -> PoolActor:
    spool = SimpleNamespace(add=lambda *kind, **fields: True)
    reporter = SimpleNamespace(spool=spool, metrics=lambda *values, **axis: None)
    address: Any = SimpleNamespace(reporter=lambda name: reporter)
    return PoolActor(str(folder), address)


def group_of(ticket: int, version: int = 0) -> Group:
    return Group(ticket, "g", "c", version, (1.0, 0.0), 2, 1.0, b"x")


def soon(waited: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.wait_for(waited, 20)


def test_whoever_waits_for_room_hears_of_it_at_once(tmp_path):
    async def life() -> None:
        actor = actor_in(tmp_path)
        await actor.open(PLAN)
        await actor.publish(0, ["weights"], 0, None)
        await actor.latch(rollouts=True, training=False)
        waiting = [asyncio.create_task(actor.start(f"w{n}", 0, 1, 600.0)) for n in range(5)]
        await asyncio.sleep(0)
        await actor.latch(rollouts=False, training=False)
        offers = await soon(asyncio.gather(*waiting))
        assert sorted(ticket.number for offer in offers for ticket in offer.tickets) == [
            *range(1, 6)
        ]

    asyncio.run(life())


def test_a_group_given_up_and_new_weights_are_heard_of_at_once(tmp_path):
    async def life() -> None:
        actor = actor_in(tmp_path)
        await actor.open(PLAN)
        await actor.publish(0, ["old"], 0, None)
        given = await soon(actor.start("w", 0, 100, 0.0))
        assert len(given.tickets) == BATCH * (LIMIT + 1), "no room for more"
        waiting = asyncio.create_task(actor.start("other", 0, 1, 600.0))
        await asyncio.sleep(0)
        await actor.abandon("w", [given.tickets[0].number])
        assert [ticket.number for ticket in (await soon(waiting)).tickets] == [1]
        waiting = asyncio.create_task(actor.start("other", 0, 0, 600.0))
        await asyncio.sleep(0)
        await actor.publish(1, ["new"], 1, 0.5)
        offer = await soon(waiting)
        assert (offer.version, offer.weights, offer.process_weight) == (1, ["new"], 0.5)

    asyncio.run(life())


def test_every_axis_goes_on_from_the_checkpoint_and_a_batch_tells_what_it_took(tmp_path):
    async def life() -> None:
        actor = actor_in(tmp_path)
        await actor.open(replace(PLAN, totals=Totals(1, 10, 20, 30)))
        await actor.publish(0, ["weights"], 2, None)
        for step in (1, 2):
            given = await soon(actor.start("w", 0, BATCH, 1.0))
            for ticket in given.tickets:
                group = Group(ticket.number, "g", "c", 0, (1.0, 0.0), 7, 1.0, b"x")
                await actor.finish("w", group, Tally(groups=1, turns=2, sampled_tokens=5))
            batch = await soon(actor.take(step, 1.0))
            assert batch is not None and batch.tokens == 7 * BATCH
            assert batch.completed == Tally(groups=BATCH, turns=2 * BATCH, sampled_tokens=5 * BATCH)
        await actor.commit(1)
        assert [group.ticket for group in await actor.batch(2)] == [4, 5, 6]
        assert await actor.totals() == Totals(2, 10 + 6, 20 + 12, 30 + 30)

    asyncio.run(life())


def test_callers_that_go_away_leave_nobody_waiting(tmp_path):
    """However their end meets the end of their own wait."""

    async def life() -> None:
        actor = actor_in(tmp_path)
        await actor.open(PLAN)
        await actor.publish(0, ["weights"], 0, None)
        for seconds in (0.0, 0.001, 0.002, 0.003) * 10:
            gone = [asyncio.create_task(actor.take(1, 0.002)) for _ in range(4)]
            await asyncio.sleep(seconds)
            for one in gone:
                one.cancel()
            await soon(asyncio.gather(*gone, return_exceptions=True))
        (ticket,) = (await soon(actor.start("w", 0, 1, 1.0))).tickets
        assert ticket.number == 1
        await soon(actor.abandon("w", [1]))

    asyncio.run(life())


def test_many_at_once_lose_and_double_nothing_through_a_crash(tmp_path):
    rng = random.Random(0)
    consumed: set[int] = set()
    finished: set[int] = set()  # what the pool has promised
    committed, crashed = 0, False

    async def worker(actor: PoolActor, seat: str, version: int) -> None:
        name, lives, attempt_version = f"{seat}.1", 1, version
        while not crashed:  # an end that meets the end of a wait is lost, as wait_for says
            offer = await actor.start(name, version, rng.randint(0, 3), 0.05)
            version = max(version, offer.version)
            for ticket in offer.tickets:
                assert ticket.number not in finished | consumed, "given twice"
                await asyncio.sleep(rng.random() * 0.005)
                if rng.random() < 0.1:
                    await actor.abandon(name, [ticket.number])
                    continue
                group = group_of(ticket.number, version)
                sent = asyncio.create_task(actor.finish(name, group, Tally(groups=1)))
                if rng.random() < 0.1:  # it dies; of what it sent last nobody knows what became
                    await asyncio.sleep(rng.random() * 0.001)
                    released = await actor.release(name)
                    with contextlib.suppress(RuntimeError):
                        await sent
                        finished.add(ticket.number)
                    assert (ticket.number in released.tickets) == (ticket.number not in finished)
                    lives += 1
                    name, version = f"{seat}.{lives}", attempt_version
                    break
                await sent
                finished.add(ticket.number)

    async def train(actor: PoolActor, version: int, steps: int) -> None:
        nonlocal committed
        step, last, taken = committed, committed + steps, dict[int, set[int]]()
        while step < last or step % 4 != 2:  # it dies between two checkpoints
            batch = await actor.take(step + 1, 0.5)
            if batch is None:
                continue
            step += 1
            assert max(batch.staleness) <= LIMIT
            taken[step] = {group.ticket for group in await actor.batch(step)}
            version += 1
            await actor.publish(version, ["weights"], step, None)
            if step % 4 == 0:
                await actor.commit(step)
                committed = step
                for one in taken.values():
                    assert not consumed & one, "trained on twice"
                    consumed.update(one)
                taken.clear()

    async def life(attempt: int) -> None:
        nonlocal crashed
        crashed = False
        actor = actor_in(tmp_path)
        plan = PoolPlan(**{**vars(PLAN), "attempt": attempt, "committed_step": committed})
        version = await actor.open(plan) + 1
        await actor.publish(version, ["weights"], committed, None)
        working = [asyncio.create_task(worker(actor, f"w{n}", version)) for n in range(4)]
        try:
            await soon(train(actor, version, 10))
        finally:
            crashed = True
            for one in working:
                one.cancel()
        for one in await soon(asyncio.gather(*working, return_exceptions=True)):
            assert one is None or isinstance(one, asyncio.CancelledError), one

    for attempt in (1, 2, 3):
        asyncio.run(life(attempt))
        state = Wal(FolderStore(tmp_path / "pool/stage-2"), 99).recover(committed)
        assert state.conserves()
        assert state.consumed == len(consumed) == BATCH * committed
        gone = finished - consumed - set(state.waiting)
        assert len(gone) <= state.discarded["stale"], gone
        assert state.unfinished.isdisjoint(finished)


def test_what_still_comes_of_a_worker_that_was_taken_for_dead_counts_for_nothing(tmp_path):
    """Words that it sent before its death and that arrive after it; or it lives, cut off."""

    async def life() -> None:
        actor = actor_in(tmp_path)
        await actor.open(PLAN)
        await actor.publish(0, ["weights"], 0, None)
        tickets = (await soon(actor.start("rollout-0.1", 0, 2, 1.0))).tickets
        first, second = (ticket.number for ticket in tickets)
        await actor.finish("rollout-0.1", group_of(first), Tally(groups=1))
        waiting = asyncio.create_task(actor.start("rollout-0.1", 0, 0, 600.0))
        await asyncio.sleep(0)
        assert await actor.release("rollout-0.1") == Released({second: 1}, finished=1)
        assert await actor.release("rollout-7.1") == Released({}, finished=0)
        late = (
            waiting,
            actor.start("rollout-0.1", 0, 1, 1.0),
            actor.abandon("rollout-0.1", [second]),
            actor.finish("rollout-0.1", group_of(second), Tally(groups=1)),
        )
        (again,) = (await soon(actor.start("rollout-0.2", 0, 1, 1.0))).tickets
        assert again.number == second
        for word in late:
            with pytest.raises(RuntimeError, match=r"rollout-0\.1 was taken for dead"):
                await soon(word)
        assert await actor.release("rollout-0.2") == Released({second: 2}, finished=0)
        await soon(actor.start("rollout-0.3", 0, 1, 1.0))
        await actor.finish("rollout-0.3", group_of(second), Tally(groups=1))
        assert (await actor.snapshot())["produced"] == 2

    asyncio.run(life())


def test_a_worker_that_dies_before_a_stage_is_open_was_at_nothing(tmp_path):
    assert asyncio.run(actor_in(tmp_path).release("rollout-0.1")) == Released({}, finished=0)
