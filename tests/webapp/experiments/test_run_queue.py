"""Queued runs start by priority, then by age, and a move changes one run's place and no other's."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from tests.webapp.support import SPEC, Api, start
from webapp.accounts.models import AuditEntry, Project, User
from webapp.experiments import services, states
from webapp.experiments.models import Run
from webapp.experiments.run_queue import Waiting, reordered
from webapp.problems import RefusedError

QUEUE = st.lists(st.integers(-5, 5), min_size=1, max_size=9)


def ordered(priorities: dict[str, int]) -> list[str]:
    """Runs in the order in which they start; a name's letter is its age."""
    return sorted(priorities, key=lambda pk: (-priorities[pk], pk))


@given(QUEUE, st.data())
def test_a_move_changes_one_place_and_keeps_the_order_of_the_others(
    given_: list[int], data: st.DataObject
) -> None:
    priorities = {chr(97 + at): priority for at, priority in enumerate(given_)}
    before = ordered(priorities)
    pk = data.draw(st.sampled_from(before))
    place = data.draw(st.sampled_from(["up", "down", "front"]))
    at = before.index(pk)
    goal = {"up": max(at - 1, 0), "down": min(at + 1, len(before) - 1), "front": 0}[place]
    wished = [other for other in before if other != pk]
    wished.insert(goal, pk)
    changed = reordered([Waiting(one, priorities[one], one) for one in before], pk, place)
    assert ordered(priorities | changed) == wished
    assert all(new > priorities[one] for one, new in changed.items())


@pytest.fixture
def queued(launch: Callable[..., Run], project: Project) -> list[Run]:
    """Three that wait while the project's only place is taken."""
    project.max_running = 1
    project.save()
    start(launch(name="at work"))
    return [launch(name=name) for name in "abc"]


def names(api: Api) -> list[str]:
    return [one["name"] for one in api("GET", "run-queue").json()]


def test_the_older_of_equals_starts_first_and_a_higher_priority_before_it(
    queued: list[Run], owner: User
) -> None:
    first, _, last = (run.attempts.get().pk for run in queued)
    Project.objects.update(max_running=2)
    assert states.due(queued[0].project_id) == [first]
    services.set_priority(queued[2].pk, owner, 5)
    assert states.due(queued[0].project_id) == [last]
    assert services.claim(first) is None
    assert services.claim(last) is not None


def test_a_launch_says_its_priority(api: Api, queued: list[Run]) -> None:
    made = api("POST", "runs", {"spec": SPEC, "name": "urgent", "priority": 7})
    assert made.json()["priority"] == 7
    assert names(api)[0] == "urgent"
    refused = api("POST", "runs", {"spec": SPEC, "priority": 1001})
    assert refused.status_code == 422
    assert [one["path"] for one in refused.json()["errors"]] == ["priority"]


def test_a_run_is_moved_and_the_log_says_so(api: Api, queued: list[Run], owner: User) -> None:
    assert names(api) == ["a-1", "b-1", "c-1"]
    answer = api("POST", f"runs/{queued[2].pk}/queue", {"place": "up"})
    assert answer.status_code == 200
    assert names(api) == ["a-1", "c-1", "b-1"]
    api("POST", f"runs/{queued[1].pk}/queue", {"place": "front"})
    assert names(api) == ["b-1", "a-1", "c-1"]
    api("POST", f"runs/{queued[1].pk}/queue", {"place": "down"})
    assert names(api) == ["a-1", "b-1", "c-1"]
    entries = AuditEntry.objects.filter(action="run.priority", target=queued[1].pk)
    assert entries.count() == 1
    assert entries.get().user == owner


def test_the_queue_says_how_many_must_end_first(api: Api, queued: list[Run]) -> None:
    assert [one["frees"] for one in api("GET", "run-queue").json()] == [1, 2, 3]
    Project.objects.update(max_running=3)
    assert [one["frees"] for one in api("GET", "run-queue").json()] == [0, 0, 1]
    Project.objects.update(max_running=0)  # lowered while one is at work
    assert [one["frees"] for one in api("GET", "run-queue").json()] == [2, 3, 4]


@pytest.mark.parametrize("body", [{}, {"place": "up", "priority": 1}, {"place": "sideways"}])
def test_a_move_needs_one_place(api: Api, queued: list[Run], body: dict[str, Any]) -> None:
    assert api("POST", f"runs/{queued[0].pk}/queue", body).status_code == 422


def test_only_what_waits_has_a_place(owner: User, queued: list[Run]) -> None:
    started = Run.objects.get(name="at work-1")
    for change in (
        lambda: services.set_priority(started.pk, owner, 1),
        lambda: services.move_in_queue(started.pk, owner, "front"),
    ):
        with pytest.raises(RefusedError) as refused:
            change()
        assert refused.value.status == 409


def test_no_priority_rises_above_the_highest(owner: User, queued: list[Run]) -> None:
    services.set_priority(queued[0].pk, owner, 1000)
    with pytest.raises(RefusedError, match="No priority is above 1000"):
        services.move_in_queue(queued[2].pk, owner, "front")
    assert Run.objects.get(pk=queued[2].pk).priority == 0


def test_the_cluster_page_shows_the_queue_and_moves_a_run(page: Client, queued: list[Run]) -> None:
    address = reverse("cluster", args=[queued[0].project_id])
    assert page.get(address).content.decode().count("Priority of") == 3
    answer = page.post(reverse("run_queue_move", args=[queued[2].pk]), {"place": "front"})
    assert answer.status_code == 302
    text = page.get(address).content.decode()
    assert text.index("Priority of c-1") < text.index("Priority of a-1")
    page.post(reverse("run_queue_move", args=[queued[2].pk]), {"priority": "many"})
    assert "is no whole number" in page.get(address).content.decode()


def test_the_cluster_page_asks_the_same_number_of_questions_for_more_runs(
    page: Client, launch: Callable[..., Run], queued: list[Run]
) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            page.get(reverse("cluster", args=[queued[0].project_id]))
        return len(queries)

    asked()
    before = asked()
    for _ in range(8):
        launch()
    assert asked() == before
