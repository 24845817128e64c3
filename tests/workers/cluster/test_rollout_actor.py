"""How a rollout worker talks to the pool, without Ray: what was granted for one stage is never
taken for another."""

import json
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from engine.environments.protocol import Task
from engine.pool.pool import Ticket
from engine.spec import ExperimentSpec, OpdStage, SftStage, SynthesiseStage, TeacherSpec
from tests.workers.cluster.running import spec
from workers.cluster import rollout_actor, synthesised
from workers.cluster.played import Play
from workers.cluster.pool_actor import Offer
from workers.cluster.rollout_actor import RolloutActor, _Production
from workers.cluster.storage import RunStorage


class Calls:
    """The methods of an actor; `remote` returns a reference whose answer a test gives."""

    def __init__(self) -> None:
        self.made: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> str:
            self.made.append((name, arguments))
            return f"{name} {len(self.made)}"

        return SimpleNamespace(remote=remote)


@pytest.fixture
def answers(monkeypatch) -> dict[str, Any]:
    """What is there of what was asked, by reference."""
    there: dict[str, Any] = {}
    ray = SimpleNamespace(
        wait=lambda refs, timeout: ([ref for ref in refs if ref in there], []),
        get=lambda ref, timeout: there.pop(ref, None),
    )
    monkeypatch.setattr(rollout_actor, "ray", ray)
    return there


@pytest.fixture
def worker() -> RolloutActor:
    reporter = SimpleNamespace(spool=SimpleNamespace(full=False), send_phases=lambda busy: None)
    address: Any = SimpleNamespace(reporter=lambda name, life: reporter)
    worker = RolloutActor(json.dumps(spec()), 0, 1, 1, address)
    worker._loop = SimpleNamespace(
        free=16, cancel=lambda: None, sampler=SimpleNamespace(version=0), submit=None
    )
    return worker


def production(index: int, pool: Calls) -> _Production:
    stage: Any = SimpleNamespace(group_size=4)
    return _Production(index, stage, pool, {None: []})


def test_it_leaves_a_stage_only_when_the_pool_has_answered_of_it(worker, answers):
    pool = Calls()
    worker._wanted = worker._production = first = production(1, pool)
    worker._talk_to_pool()
    assert [name for name, _ in pool.made] == ["start"]
    worker._wanted = second = production(2, pool)
    worker._talk_to_pool()
    assert worker._production is first, "what the pool is about to grant is of this stage"
    answers["start 1"] = Offer([Ticket(7, None)], 0, [], None)
    worker._talk_to_pool()
    assert worker._production is second
    assert [call for call in pool.made if call[0] == "abandon"] == [
        ("abandon", ("rollout-0.1", [7]))
    ]
    assert not worker._started


def test_a_switch_is_not_confirmed_by_the_stage_before(worker, answers):
    """Whatever `run` does in between the two statements of a switch."""
    pool = Calls()
    worker._wanted = worker._production = production(1, pool)
    cleared = worker._switched.clear
    done: list[bool] = []

    def clear() -> None:
        cleared()
        worker._talk_to_pool()
        done.append(worker._switched.is_set())

    worker._switched.clear = clear  # type: ignore[method-assign]
    worker._switched.wait = lambda seconds: True  # type: ignore[method-assign, assignment]
    worker.cease()
    assert done == [worker._production is None]


def test_what_its_loop_is_at_is_reported_before_it_closes(worker):
    done: list[str] = []
    worker._reporter.close = lambda timeout_s: done.append("closed")
    worker._reporter.tick = lambda busy: None
    worker._loop.active = 1
    closing = threading.Thread(target=worker.close, args=(20.0,))

    def step() -> None:
        worker.stop()
        closing.start()
        closing.join(0.1)  # it has time to close too early
        done.append("step")

    worker._step = step
    worker.run()
    closing.join(20)
    assert done == ["step", "closed"]


VERSION = "ver_0123456789abcdef"


def test_it_practises_and_produces_on_the_tasks_of_a_dataset(worker, tmp_path, monkeypatch):
    drawn = Task("d", "3 hops", "drawn?", "x", 3)
    own = [Task(str(n), name, f"{name}?", "x", 0) for n, name in enumerate(("city", "none"))]
    worker._storage, worker._tasks = RunStorage(str(tmp_path)), {"practice": [drawn]}
    synthesised.write_tasks(worker._storage.path(f"tasks/{VERSION}").parent, VERSION, own)

    frozen: list[Any] = []
    monkeypatch.setattr(worker, "_wait_for", frozen.append)
    wish = Play("played", VERSION, None, 5, 2, 1.0, "s")
    for part in range(2):
        worker.play(wish, part, 2, 0, [])
    worker.play(replace(wish, tasks="practice", hops=(3,)), 0, 1, 0, [])
    played = [[task.id for task, copies in one.tasks if copies == 2] for one in frozen]
    assert sorted(played[0] + played[1]) == ["0", "1"]
    assert played[2] == ["d"]
    assert {one.purpose for one in frozen} == {"train"}

    switched: list[_Production] = []
    monkeypatch.setattr(worker, "_switch", switched.append)
    teachers = [TeacherSpec(stage=1)]
    for stage in (OpdStage(dataset=VERSION, teachers=teachers), OpdStage(teachers=teachers)):
        stages = [SynthesiseStage(), SftStage(), stage]
        worker._spec = ExperimentSpec(name="x", stages=stages)
        worker.produce(2, None)
    assert [one.tasks for one in switched] == [
        {"city": own[:1], "none": own[1:], None: own}, {"3 hops": [drawn], None: [drawn]},
    ]  # fmt: skip
