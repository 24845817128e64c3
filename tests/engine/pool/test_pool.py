"""What the pool promises, one sentence a test; the law of conservation is in test_conservation."""

from collections import Counter

import pytest

from engine.pool.admission import NoBatchError, Wanted
from engine.pool.gate import Gate
from engine.pool.pool import Pool
from engine.pool.state import Admitted, Committed, Leased, PoolState, Published, Refused
from engine.records.events import PoolSnapshot
from tests.engine.pool.samples import group

SPREAD = Wanted()


def make_pool(batch=2, max_staleness=1, capacity=100, gate=None, state=None, wanted=SPREAD) -> Pool:
    return Pool(
        batch=batch,
        max_staleness=max_staleness,
        capacity=capacity,
        gate=gate or Gate({}, 30),
        wanted=wanted,
        state=state,
    )


def fill(pool: Pool, count: int, version: int | None = None, **facts) -> list[int]:
    """Start and finish this many groups, whatever the rules of admission say."""
    pool.capacity, capacity = 10**6, pool.capacity
    pool.max_staleness, limit = 10**6, pool.max_staleness
    tickets = [ticket.number for ticket in pool.start("w", pool.state.version, count)]
    pool.capacity, pool.max_staleness = capacity, limit
    for ticket in tickets:
        at = pool.state.version if version is None else version
        pool.apply(pool.finish(group(ticket, at, **facts)))
    return tickets


def take(pool: Pool, step: int, now: float = 0.0):
    taken = pool.take(step, now)
    for record in taken.records:
        pool.apply(record)
    return taken


def test_it_records_exactly_how_many_versions_a_group_waited():
    pool = make_pool(max_staleness=4)
    fill(pool, 2)
    for version in (1, 2, 3):
        pool.apply(Published(version))
    assert take(pool, 1).staleness == [3, 3]


def test_it_discards_what_went_stale_while_it_waited():
    pool = make_pool(max_staleness=1)
    stale = fill(pool, 2)
    pool.apply(Published(1))
    fresh = fill(pool, 2)
    pool.apply(Published(2))
    assert [g.ticket for g in take(pool, 1).groups] == fresh
    assert pool.state.discarded == {"stale": len(stale)}


def test_it_refuses_what_teaches_nothing_and_counts_why():
    pool = make_pool()
    fill(pool, 1, rewards=(1.0, 1.0))
    fill(pool, 2, rewards=(0.0, None, 0.0))
    fill(pool, 1, rewards=(None, 1.0))
    assert pool.state.discarded == {"all_solved": 1, "all_failed": 2, "no_valid_reward": 1}
    assert pool.state.produced == 4


def test_it_takes_equal_rewards_where_they_teach():
    pool = make_pool(wanted=Wanted(needs_spread=False))
    fill(pool, 1, rewards=(1.0, 1.0))
    fill(pool, 1, rewards=(None, 0.0))
    fill(pool, 1, rewards=(None, None))
    assert len(take(pool, 1).groups) == 2
    assert pool.state.discarded == {"no_valid_reward": 1}


def test_it_tells_what_a_batch_took_to_sample():
    pool = make_pool(batch=2, wanted=Wanted(rounds=9))
    fill(pool, 3, rewards=(1.0, 1.0))
    fill(pool, 1, rewards=(0.0, 0.0))
    assert take(pool, 1).groups == []
    fill(pool, 3)
    sampled = {"all_solved": 3, "all_failed": 1, "admitted": 3}
    assert take(pool, 1).sampled == sampled
    assert take(pool, 2).sampled == {}


def test_a_step_ends_the_run_when_its_rounds_are_used_up():
    pool = make_pool(batch=2, wanted=Wanted(rounds=3))
    fill(pool, 1)
    fill(pool, 4, rewards=(1.0, 1.0))
    assert take(pool, 7).groups == []
    fill(pool, 1, rewards=(0.0, 0.0))
    with pytest.raises(NoBatchError) as raised:
        pool.take(7, 0.0)
    assert str(raised.value) == (
        "Step 7 found no 2 groups that teach in 3 rounds of sampling: of 6 groups 4 were all "
        "solved, 1 all failed, 0 were refused otherwise and 1 admitted. Take harder tasks (hops), "
        "larger groups (group_size), more rounds (refill_rounds), or turn dynamic_sampling off."
    )
    assert pool.state.conserves()


def test_it_advises_easier_tasks_where_most_groups_fail():
    pool = make_pool(batch=2, wanted=Wanted(rounds=1))
    fill(pool, 2, rewards=(0.0, 0.0))
    with pytest.raises(NoBatchError, match="Take easier tasks"):
        pool.take(1, 0.0)


def test_rounds_count_anew_for_every_step_and_never_against_a_full_batch():
    pool = make_pool(batch=2, max_staleness=9, wanted=Wanted(rounds=2))
    for step in (1, 2, 3):
        fill(pool, 3, rewards=(0.0, 0.0))
        assert take(pool, step).groups == []
        fill(pool, 2)
        assert len(take(pool, step).groups) == 2
        pool.apply(Published(step))


def test_a_pause_of_training_spends_no_rounds():
    pool = make_pool(batch=2, wanted=Wanted(rounds=1))
    fill(pool, 4, rewards=(0.0, 0.0))
    pool.pause_training = True
    assert take(pool, 1).groups == []


def test_groups_over_the_batch_stay_for_the_next_step():
    pool = make_pool(batch=2)
    tickets = fill(pool, 5)
    assert [g.ticket for g in take(pool, 1).groups] == tickets[:2]
    assert sorted(pool.state.waiting) == tickets[2:]


def test_a_paused_latch_starts_and_trains_nothing():
    pool = make_pool(batch=2, max_staleness=1)
    fill(pool, 2)
    pool.pause_rollouts = pool.pause_training = True
    assert pool.start("w", 0, 5) == []
    assert take(pool, 1).groups == []
    pool.pause_rollouts = pool.pause_training = False
    assert len(pool.start("w", 0, 5)) == 2, "there was room all along"
    assert len(take(pool, 1).groups) == 2


def test_quick_episodes_overtake_a_slow_one_by_no_more_than_the_window():
    pool = make_pool(batch=2, max_staleness=1)
    slow = pool.start("w", 0, 1)[0]
    quick = fill(pool, 8)
    window = (pool.max_staleness + 1) * pool.batch
    assert [g.ticket for g in take(pool, 1).groups] == quick[:2]
    assert take(pool, 2).groups == [], f"only {quick[2]} is within {window} of {slow.number}"
    pool.apply(pool.finish(group(slow.number)))
    assert [g.ticket for g in take(pool, 2).groups] == [slow.number, quick[2]]


def test_an_abandoned_group_was_never_produced_and_frees_its_room():
    pool = make_pool(batch=1, max_staleness=0)
    tickets = pool.start("w", 0, 9)
    assert len(tickets) == 1
    pool.abandon([tickets[0].number])
    assert pool.state.produced == 0
    assert len(pool.start("w", 0, 9)) == 1


def test_what_a_dead_worker_was_at_is_given_to_who_asks_next_and_nothing_else_is():
    pool = make_pool(batch=2, max_staleness=3)
    done, *lost = [ticket.number for ticket in pool.start("dead", 0, 3)]
    kept = [ticket.number for ticket in pool.start("other", 0, 2)]
    pool.apply(pool.finish(group(done)))
    assert pool.release("dead") == lost
    assert pool.release("dead") == []
    assert [ticket.number for ticket in pool.start("other", 0, 3)] == [*lost, max(kept) + 1]
    assert pool.state.produced == 1


def test_it_has_a_group_started_where_its_category_is_short():
    pool = make_pool(batch=4, max_staleness=0, gate=Gate({"3 hops": 0.5, "4 hops": 0.5}, 30))
    assert Counter(t.category for t in pool.start("w", 0, 4)) == {"3 hops": 2, "4 hops": 2}


def test_what_is_in_flight_counts_among_its_category():
    pool = make_pool(batch=4, max_staleness=0, gate=Gate({"3 hops": 0.5, "4 hops": 0.5}, 30))
    one_by_one = [ticket.category for _ in range(4) for ticket in pool.start("w", 0, 1)]
    assert Counter(one_by_one) == {"3 hops": 2, "4 hops": 2}


def test_it_takes_a_group_only_for_a_ticket_and_only_once():
    pool = make_pool()
    with pytest.raises(ValueError, match="no ticket"):
        pool.finish(group(99))
    (ticket,) = fill(pool, 1)
    with pytest.raises(ValueError, match="no ticket"):
        pool.finish(group(ticket))


def test_a_worker_cannot_be_ahead_of_the_trainer():
    with pytest.raises(ValueError, match="never go back"):
        make_pool().start("w", worker_version=1, at_most=1)
    pool = make_pool()
    pool.apply(Published(3))
    with pytest.raises(ValueError, match="came after"):
        pool.apply(Published(2))


def test_a_checkpoint_of_steps_that_took_nothing_consumes_nothing():
    state = PoolState()
    state.apply(Refused(1, "stale"))
    for step in (1, 2):
        state.apply(Committed(step))
    assert state.conserves() and state.consumed == 0


def test_a_group_comes_once_and_a_step_gets_its_groups_once():
    state = PoolState()
    for ticket in (1, 2, 3):
        state.apply(Admitted(group(ticket)))
    state.apply(Leased(5, (1,)))
    for record in (Admitted(group(1)), Admitted(group(2)), Leased(5, (2,))):
        with pytest.raises(ValueError, match="already"):
            state.apply(record)
    assert (state.produced, list(state.waiting)) == (3, [2, 3])
    assert [one.ticket for one in state.leased[5]] == [1]


def test_a_lease_of_what_does_not_wait_is_refused_whole():
    state = PoolState()
    state.apply(Admitted(group(1)))
    with pytest.raises(ValueError, match=r"under the tickets \[9\]"):
        state.apply(Leased(1, (1, 9)))
    assert list(state.waiting) == [1] and state.conserves()


def test_nothing_waits_in_an_empty_pool():
    assert make_pool().snapshot(now=1010.0)["oldest_s"] == 0.0


def test_its_snapshot_is_an_event():
    pool = make_pool(batch=2, max_staleness=3, gate=Gate({"3 hops": 1.0}, 30))
    fill(pool, 3)
    take(pool, 1)
    pool.apply(Published(1))
    event = PoolSnapshot(source="pool", seq=1, at=0.0, **pool.snapshot(now=1010.0))
    assert (event.produced, event.waiting, event.leased, event.consumed) == (3, 1, 2, 0)
    assert event.staleness == {"1": 1}
    assert event.categories == {"3 hops": 1}
    assert event.oldest_s == pytest.approx(7.0)


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("max_staleness", [0, 1, 4])
def test_every_step_is_reached_when_episodes_are_instant(steps, max_staleness):
    """Nothing waits for a version that will never be published."""
    pool = make_pool(batch=3, max_staleness=max_staleness)
    for step in range(1, steps + 1):
        for _ in range(50):
            version = pool.state.version
            for ticket in pool.start("w", version, 2):
                pool.apply(pool.finish(group(ticket.number, version)))
            taken = take(pool, step)
            if taken.groups:
                break
        assert len(taken.groups) == 3
        assert max(taken.staleness) <= max_staleness
        pool.apply(Published(step))


def test_tickets_that_came_to_nothing_are_given_again_before_new_ones():
    pool = make_pool(max_staleness=9)
    first, second, third = (ticket.number for ticket in pool.start("w", 0, 3))
    pool.apply(pool.finish(group(third)))
    pool.abandon([first])
    assert [ticket.number for ticket in pool.start("w", 0, 2)] == [first, third + 1]
    after_a_crash = make_pool(max_staleness=9, state=pool.state)
    given = [ticket.number for ticket in after_a_crash.start("w", 0, 4)]
    assert given == [first, second, third + 1, third + 2]
