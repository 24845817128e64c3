"""Who sits where, without Ray: the dead are replaced, asked again, and counted."""

from typing import Any

import pytest
from ray.core.generated.common_pb2 import ActorDiedErrorContext, NodeDeathInfo
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayTaskError

from workers.cluster import seats
from workers.cluster.pool_actor import Released
from workers.cluster.seats import MAX_DEATHS, NO_ANSWER, LostWorkersError, Seats, cause


class Ref:
    """A call of an actor's; a test answers it."""

    def __init__(self, method: str, arguments: tuple[Any, ...]) -> None:
        self.method, self.arguments = method, arguments
        self.answers: list[Any] = []

    def __repr__(self) -> str:
        return f"{self.method}{self.arguments}"


class Actor:
    def __init__(self, index: int, life: int) -> None:
        self.index, self.life = index, life
        self.calls: list[Ref] = []
        self.killed = False

    def __getattr__(self, name: str) -> Any:
        actor = self

        class Method:
            @staticmethod
            def remote(*arguments: Any) -> Ref:
                actor.calls.append(Ref(name, arguments))
                return actor.calls[-1]

        return Method

    def open(self, method: str) -> Ref:
        (found,) = [ref for ref in self.calls if ref.method == method and not ref.answers]
        return found


class Pool:
    """Answers at once. `finished`: groups that came of each worker."""

    def __init__(self) -> None:
        self.released: list[str] = []
        self.finished: dict[str, int] = {}
        self.held = {5: 1, 7: 2}
        self.release = self

    def remote(self, worker: str) -> Ref:
        self.released.append(worker)
        ref = Ref("release", (worker,))
        ref.answers.append(Released(self.held, self.finished.get(worker, 0)))
        return ref


class Room:
    """Seats, with the actors that came to sit in them and the run's log."""

    def __init__(self, count: int) -> None:
        self.actors: list[Actor] = []
        self.log: list[tuple[str, str]] = []
        self.pool = Pool()
        self.seats = Seats(self._hire, lambda text, level: self.log.append((level, text)))
        self.seats.open(count, "storage", self.pool)

    def _hire(self, index: int, life: int) -> Actor:
        self.actors.append(Actor(index, life))
        return self.actors[-1]

    def at(self, index: int) -> Actor:
        return [actor for actor in self.actors if actor.index == index][-1]

    def answer(self, ref: Ref, value: Any = None) -> None:
        ref.answers.append(value)
        if ref in self.seats.watched:
            self.seats.look(ref)

    def settle(self, index: int) -> None:
        self.answer(self.at(index).open("load"))

    def die(self, index: int, error: Exception | None = None) -> None:
        actor = self.at(index)
        for ref in actor.calls:
            if not ref.answers:
                ref.answers.append(error or ActorDiedError())
        (watched,) = [ref for ref in actor.calls if ref in self.seats.watched][:1]
        self.seats.look(watched)


@pytest.fixture(autouse=True)
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ray:
        @staticmethod
        def wait(refs: list[Ref], num_returns: int = 1, timeout: float = 0) -> Any:
            return [ref for ref in refs if ref.answers], []

        @staticmethod
        def get(ref: Any, timeout: float) -> Any:
            if isinstance(ref, list):
                return [Ray.get(one, timeout) for one in ref]
            if isinstance(ref.answers[0], Exception):
                raise ref.answers[0]
            return ref.answers[0]

        @staticmethod
        def kill(actor: Actor) -> None:
            actor.killed = True

    monkeypatch.setattr(seats, "ray", Ray)


def settled(count: int) -> Room:
    room = Room(count)
    for index in range(count):
        room.settle(index)
    return room


def test_who_replaces_a_dead_worker_is_asked_what_that_had_not_answered() -> None:
    room = settled(2)
    call = room.seats.ask("evaluate", lambda part, parts: ("plan", part, parts))
    room.answer(room.at(0).open("evaluate"), "of 0")
    room.die(0)
    assert room.at(0).life == 2
    assert [ref.method for ref in room.at(0).calls] == ["load"], "it answered before it died"
    room.die(1)
    assert call.refs[1] is None
    assert not call.is_done()
    room.settle(1)
    assert room.at(1).open("evaluate").arguments == ("plan", 1, 2)
    room.answer(room.at(1).open("evaluate"), "of 1")
    assert call.is_done()
    assert [ref.answers for ref in call.refs] == [["of 0"], ["of 1"]]
    assert room.pool.released == ["rollout-0.1", "rollout-1.1"]


def test_one_that_comes_in_the_middle_of_a_stage_produces_for_it_before_it_is_asked() -> None:
    room = settled(2)
    switched = room.seats.switch((3, "pool"))
    for actor in room.actors:
        assert room.at(actor.index).open("produce").arguments == (3, "pool")
        room.answer(actor.open("produce"))
    room.seats.forget(switched, of_use=False)
    room.die(0)
    call = room.seats.ask("evaluate", lambda part, parts: (part,))
    room.settle(0)
    assert [ref.method for ref in room.at(0).calls] == ["load", "run", "produce"]
    assert call.refs[0] is None, "it would play until it is over, and change no stage meanwhile"
    room.answer(room.at(0).open("produce"))
    assert call.refs[0] is room.at(0).open("evaluate")


def test_nobody_waits_for_an_empty_seat_to_change_stage() -> None:
    room = settled(2)
    room.answer(room.seats.switch((3, "pool")).refs[0])
    room.die(1)
    ceased = room.seats.switch(None)
    assert ceased.refs == [room.at(0).open("cease"), NO_ANSWER]
    room.die(0)
    assert ceased.refs == [NO_ANSWER, NO_ANSWER]
    assert ceased.is_done()
    for index in (0, 1):
        room.settle(index)
        assert [ref.method for ref in room.at(index).calls] == ["load", "run"]


def test_a_stage_that_changes_while_a_worker_takes_up_the_one_before_is_taken_up_next() -> None:
    room = settled(1)
    room.seats.switch((3, "pool"))
    room.die(0)
    room.settle(0)
    room.seats.switch((4, "pool"))
    room.answer(room.at(0).open("produce"))
    assert room.at(0).open("produce").arguments == (4, "pool")
    room.seats.switch(None)
    room.answer(room.at(0).open("produce"))
    room.answer(room.at(0).open("cease"))
    assert room.seats.watched == [room.at(0).open("run")]


def test_workers_of_a_seat_that_die_without_any_use_end_the_run_with_the_reason() -> None:
    room = settled(2)
    for _ in range(MAX_DEATHS):
        room.die(1)
        room.die(0, OutOfMemoryError("Task was killed due to the node running low on memory."))
        room.pool.finished[f"rollout-0.{room.at(0).life}"] = 1
    room.die(0)
    with pytest.raises(LostWorkersError, match=r"^rollout-1 died 4 times in a row .* because Ray"):
        room.die(1)
    assert room.at(1).life == MAX_DEATHS + 1
    level, text = room.log[1]
    assert level == "warning"
    assert text == (
        "rollout-0 died and is replaced: its machine ran out of memory: Task was killed due to the "
        "node running low on memory. The groups of tickets 5, 7 are given again."
    )


def test_a_group_at_which_one_worker_after_the_other_dies_ends_the_run_and_is_named() -> None:
    room = settled(2)
    for times in range(1, MAX_DEATHS + 2):
        index = times % 2
        room.pool.finished[f"rollout-{index}.{room.at(index).life}"] = 9
        room.pool.held = {3: 1, 57: times}
        if times <= MAX_DEATHS:
            room.die(index)
    with pytest.raises(
        LostWorkersError, match=r"^4 rollout workers died at the group of ticket 57"
    ):
        room.die(0)


def test_an_evaluation_that_all_have_answered_shows_that_they_are_of_use() -> None:
    room = settled(1)
    for _ in range(3):
        for _ in range(MAX_DEATHS):
            room.die(0)
        room.settle(0)
        room.seats.forget(room.seats.ask("evaluate", lambda part, parts: ()), of_use=True)
    with pytest.raises(LostWorkersError):
        for _ in range(MAX_DEATHS + 1):
            room.die(0)


def test_what_a_worker_raises_is_raised_though_it_tells_of_a_death() -> None:
    room = settled(1)
    seen = RayTaskError("run", "Traceback", ActorDiedError()).as_instanceof_cause()
    assert isinstance(seen, ActorDiedError)
    with pytest.raises(ActorDiedError):
        room.die(0, seen)
    assert not room.seats.mourn(room.at(0).calls[-1], seen)
    assert not room.pool.released
    with pytest.raises(ActorDiedError, match="in its creation task"):
        Room(1).die(0, ActorDiedError(RayTaskError("__init__", "Traceback", ValueError("broken"))))
    with pytest.raises(RuntimeError, match="rollout-0 ended although the run goes on"):
        other = settled(1)
        other.answer(other.at(0).open("run"))


def test_a_death_is_known_by_any_call_and_mourned_once() -> None:
    room = settled(1)
    call = room.seats.ask("evaluate", lambda part, parts: ())
    first = room.at(0)
    asked, loop = first.open("evaluate"), first.open("run")
    assert room.seats.mourn(asked, ActorDiedError())
    assert first.killed, "it may be out of reach alone"
    assert call.refs == [None]
    assert not room.seats.mourn(asked, ActorDiedError())
    loop.answers.append(ActorDiedError())
    room.seats.look(loop)
    assert room.pool.released == ["rollout-0.1"]
    assert not room.seats.mourn(Ref("save", ()), ActorDiedError()), "a trainer's"


def test_an_answer_that_went_with_its_machine_is_asked_for_again() -> None:
    room = settled(1)
    call = room.seats.ask("evaluate", lambda part, parts: ())
    room.answer(room.at(0).open("evaluate"), "answer")
    call.refs[0].answers = [seats.NodeDiedError("gone")]
    room.die(0)
    assert call.refs == [None]


def test_at_the_end_those_that_cannot_be_asked_are_killed_and_the_others_told_to_stop() -> None:
    room = settled(2)
    room.die(1)
    assert room.seats.dismiss() == [room.at(0)]
    assert room.at(0).open("stop")
    assert room.at(1).killed
    assert room.seats.watched == []


def test_the_cause_is_what_ray_says_in_one_line() -> None:
    died = ActorDiedErrorContext(
        class_name="RolloutActor",
        actor_id=b"a" * 16,
        pid=12,
        node_ip_address="10.0.0.1",
        error_message="The worker died.\nExit type: SYSTEM_ERROR",
    )
    assert cause(ActorDiedError(died)) == "Ray says: The worker died. Exit type: SYSTEM_ERROR."
    died.node_death_info.reason = NodeDeathInfo.AUTOSCALER_DRAIN_PREEMPTED
    assert cause(ActorDiedError(died)) == "its machine was taken away (preempted)."
    assert cause(ActorDiedError()).startswith("Ray says: The actor died unexpectedly")
    assert len(cause(OutOfMemoryError("memory " * 999))) < 500
