"""The pool conserves, at every instant and after every crash: a random life against plain sets."""

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from engine.pool import wal as wal_module
from engine.pool.admission import Wanted
from engine.pool.gate import Gate
from engine.pool.group import Group
from engine.pool.pool import Pool
from engine.pool.state import Admitted, Committed, Leased, PoolState, Published, Refused
from engine.pool.wal import FolderStore, Wal, WalDamagedError
from tests.engine.pool.samples import group

LIMITS = {"batch": 2, "max_staleness": 2, "capacity": 8}
CATEGORIES = ("3 hops", "4 hops")


def small(ticket: int, version: int = 0, category: str = CATEGORIES[0], rewards=(0.0, 1.0)):
    return Group(ticket, f"g{ticket}", category, version, tuple(rewards), 2, 1.0, b"payload")


class PoolLife(RuleBasedStateMachine):
    """`admitted`, `leased`, `consumed` and `gone` are kept here, by hand, beside the pool."""

    @initialize(gated=st.booleans(), wanted=st.builds(Wanted, st.booleans(), st.booleans()))
    def begin(self, gated: bool, wanted: Wanted) -> None:
        self.wanted = wanted
        self.folder = tempfile.TemporaryDirectory()
        self.shares = {CATEGORIES[0]: 0.5, CATEGORIES[1]: 0.5} if gated else {}
        self.epoch = 0
        self.checkpoint = 0  # step that the newest complete checkpoint covers
        self.step = 0
        self.flying: dict[int, int] = {}  # ticket -> version of the worker
        self.finished: set[int] = set()
        self.admitted: set[int] = set()
        self.leased: dict[int, int] = {}  # ticket -> step
        self.consumed: set[int] = set()
        self.gone = 0
        self.now = 0.0
        self.reopen()

    def reopen(self) -> None:
        self.epoch += 1
        self.wal = Wal(FolderStore(Path(self.folder.name)), self.epoch)
        state = self.wal.recover(self.checkpoint)
        self.wal.compact(state)
        self.pool = Pool(**LIMITS, gate=Gate(self.shares, 5), wanted=self.wanted, state=state)
        self.worker_version = state.version

    def keep(self, *records) -> None:
        self.wal.append(*records)
        for record in records:
            self.pool.apply(record)

    @rule(at_most=st.integers(1, 6))
    def start(self, at_most: int) -> None:
        for ticket in self.pool.start("w", self.worker_version, at_most):
            given = self.flying.keys() | self.finished
            assert ticket.number == min(set(range(1, len(given) + 2)) - given), "none is left out"
            self.flying[ticket.number] = self.worker_version

    @precondition(lambda self: self.flying)
    @rule(
        data=st.data(),
        category=st.sampled_from(CATEGORIES),
        rewards=st.lists(st.sampled_from([0.0, 1.0, None]), min_size=2, max_size=3),
    )
    def finish(self, data, category, rewards) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.flying)))
        version = self.flying.pop(ticket)
        record = self.pool.finish(small(ticket, version, category, rewards))
        self.keep(record)
        self.finished.add(ticket)
        if isinstance(record, Refused):
            self.gone += 1
        else:
            assert self.pool.state.version - version <= LIMITS["max_staleness"]
            self.admitted.add(ticket)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def abandon(self, data) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.flying)))
        del self.flying[ticket]
        self.pool.abandon([ticket])

    @rule(seconds=st.floats(0, 4))
    def take(self, seconds: float) -> None:
        self.now += seconds
        taken = self.pool.take(self.step + 1, self.now)
        self.keep(*taken.records)
        for record in taken.records:
            if not isinstance(record, Leased):
                self.admitted.remove(record.ticket)
                self.gone += 1
        assert len(taken.groups) in (0, LIMITS["batch"])
        for trained, lag in zip(taken.groups, taken.staleness, strict=True):
            assert lag == self.pool.state.version - trained.version
            assert 0 <= lag <= LIMITS["max_staleness"]
            self.admitted.remove(trained.ticket)
            self.leased[trained.ticket] = self.step + 1
        if taken.groups:
            self.step += 1
            self.keep(Published(self.pool.state.version + 1))

    @rule()
    def load_weights(self) -> None:
        self.worker_version = self.pool.state.version

    @rule(told=st.booleans())
    def save_checkpoint(self, told: bool) -> None:
        """`told` is false where the crash comes between the checkpoint and the log."""
        self.checkpoint = self.step
        if told:
            self.keep(Committed(self.step))
            self.settle()
        else:
            self.crash()

    def settle(self) -> None:
        self.consumed.update(self.leased)
        self.leased.clear()

    @rule()
    def compact(self) -> None:
        self.wal.compact(self.pool.state)

    @rule()
    def crash(self) -> None:
        covered = {t for t, step in self.leased.items() if step <= self.checkpoint}
        self.consumed |= covered
        self.admitted |= self.leased.keys() - covered
        self.leased.clear()
        self.flying.clear()
        self.step = self.checkpoint
        self.reopen()

    @invariant()
    def it_conserves(self) -> None:
        state = self.pool.state
        assert state.conserves()
        assert set(state.waiting) == self.admitted
        assert {g.ticket: s for s, gs in state.leased.items() for g in gs} == self.leased
        assert state.consumed == len(self.consumed)
        assert sum(state.discarded.values()) == self.gone
        assert self.pool.in_flight == len(self.flying)

    def teardown(self) -> None:
        self.folder.cleanup()


TestPoolLife = PoolLife.TestCase
TestPoolLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class KilledError(Exception):
    pass


class MortalStore(FolderStore):
    """A store whose process dies after so many bytes, in the middle of an object if need be."""

    def __init__(self, folder: Path, bytes_to_live: int) -> None:
        super().__init__(folder)
        self._folder = folder
        self.left = bytes_to_live

    def put(self, name: str, data: bytes) -> None:
        if len(data) > self.left:
            (self._folder / name).write_bytes(data[: self.left])
            raise KilledError
        self.left -= len(data)
        (self._folder / name).write_bytes(data)


def live(wal: Wal, told: list[str]) -> None:
    """A short life. `told` grows by what the pool had promised when it died."""
    for ticket in (1, 2, 3, 4):
        wal.append(Admitted(small(ticket)))
        told.append(f"admitted {ticket}")
    wal.append(Refused(5, "zero_variance"))
    wal.append(Leased(1, (1, 2)), Published(1))
    state = wal_state(wal)
    wal.compact(state)
    wal.append(Leased(2, (3,)))
    told.append("checkpoint 1")
    wal.append(Committed(1))
    wal.append(Admitted(small(6, 1)))
    told.append("admitted 6")


def wal_state(wal: Wal) -> PoolState:
    """What the pool holds in memory at the point where `live` compacts."""
    state = PoolState()
    for record in [
        *(Admitted(small(ticket)) for ticket in (1, 2, 3, 4)),
        Refused(5, "zero_variance"),
        Leased(1, (1, 2)),
        Published(1),
    ]:
        state.apply(record)
    return state


def test_killed_at_any_byte_it_has_again_what_it_promised(tmp_path):
    whole = MortalStore(tmp_path / "whole", 10**9)
    live(Wal(whole, 1), [])
    total = 10**9 - whole.left
    for lifetime in range(total + 1):
        folder = tmp_path / str(lifetime)
        told: list[str] = []
        with contextlib.suppress(KilledError):
            live(Wal(MortalStore(folder, lifetime), 1), told)
        checkpoint = 1 if "checkpoint 1" in told else 0
        again = Wal(FolderStore(folder), 2)
        state = again.recover(checkpoint)
        assert state.conserves()
        assert not state.leased
        promised = {int(what.split()[1]) for what in told if what.startswith("admitted")}
        consumed = {1, 2} if checkpoint else set()
        assert promised - consumed <= set(state.waiting), f"killed after {lifetime} bytes"
        assert not consumed & set(state.waiting), f"killed after {lifetime} bytes"
        assert state.consumed == len(consumed)
        again.compact(state)
        assert Wal(FolderStore(folder), 3).recover(checkpoint).waiting == state.waiting


def test_damage_before_the_end_is_an_error_not_a_loss(tmp_path):
    store = FolderStore(tmp_path)
    wal = Wal(store, 1)
    wal.append(Admitted(small(1)))
    wal.append(Admitted(small(2)))
    first = min(store.names())
    store.put(first, store.get(first)[:-3])
    with pytest.raises(WalDamagedError, match=first):
        Wal(store, 2).recover(0)


def test_an_older_attempt_that_still_runs_cannot_touch_a_newer_ones_log(tmp_path):
    store = FolderStore(tmp_path)
    zombie = Wal(store, 1)
    zombie.append(Admitted(small(1)))
    newer = Wal(store, 2)
    newer.compact(newer.recover(0))
    newer.append(Admitted(small(2)))
    zombie.append(Leased(1, (1,)))
    zombie.append(Committed(1))
    zombie.compact(PoolState(produced=9, consumed=9))
    assert sorted(Wal(store, 3).recover(0).waiting) == [1, 2]


def test_it_keeps_the_trajectories_themselves(tmp_path):
    packed = group(1, version=2)
    Wal(FolderStore(tmp_path), 1).append(Admitted(packed))
    (found,) = Wal(FolderStore(tmp_path), 2).recover(0).waiting.values()
    assert found.trajectories() == packed.trajectories()


def test_what_others_leave_in_its_folder_is_no_part_of_the_log(tmp_path):
    store = FolderStore(tmp_path)
    Wal(store, 1).append(Admitted(small(1)))
    (tmp_path / ".nfs0001").write_bytes(b"of a network folder")
    (tmp_path / "cut short.partial").write_bytes(b"of a crash")
    assert list(Wal(store, 2).recover(0).waiting) == [1]


def test_compaction_leaves_one_object(tmp_path):
    store = FolderStore(tmp_path)
    wal = Wal(store, 1)
    for ticket in range(1, 30):
        wal.append(Admitted(small(ticket)))
    wal.compact(wal.recover(0))
    assert len(store.names()) == 1
    assert len(Wal(store, 2).recover(0).waiting) == 29


def test_it_reads_a_snapshot_that_does_not_say_which_tickets_came_to_nothing(tmp_path, monkeypatch):
    wal = Wal(FolderStore(tmp_path), 1)
    frame = wal_module._frame_bytes
    monkeypatch.setattr(
        wal_module,
        "_frame_bytes",
        lambda facts, payload: frame({k: facts[k] for k in facts if k != "unfinished"}, payload),
    )
    wal.append(Admitted(small(2)))
    wal.compact(wal.recover(0))
    assert Wal(FolderStore(tmp_path), 2).recover(0).next_ticket == 3
