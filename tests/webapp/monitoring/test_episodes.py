"""Running episodes: from the worker's words to lists, pages and the live topics."""

import json
import time
from datetime import timedelta
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.test import Client
from django.utils import timezone

from engine.records.shards import write_shard
from tests.webapp.monitoring.sockets import Open, store
from tests.webapp.reviews.samples import put, trajectory
from tests.webapp.support import Api, Driver
from webapp.accounts.models import User
from webapp.experiments import services
from webapp.monitoring.ingest import parsing, storing
from webapp.monitoring.live_reads import read
from webapp.pruning import prune
from webapp.reviews import episodes
from webapp.reviews.models import Episode, EpisodeTurn, Playing

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = "<script>alert(1)</script>\x00\ud800"


def about(name: str = "t-1", **fields: Any) -> dict[str, Any]:
    return {
        "trajectory": name, "task": "task-1", "category": "3 hops", "purpose": "train",
        "prompt": "Where?", "started_at": time.time() - 9, "turns": 1, "tokens": 4,
        "followed": True, **fields,
    }  # fmt: skip


def playing(seq: int, *rows: dict[str, Any], source: str = "rollout-0", **fields: Any) -> Any:
    item = {"kind": "playing", "source": source, "seq": seq, "at": time.time()}
    return {**item, "running": len(rows), "rows": list(rows), **fields}


def turns(seq: int, first: int, *texts: str, name: str = "t-1", end: Any = None) -> Any:
    item = {"kind": "turns", "source": "rollout-0", "seq": seq, "at": time.time(), "first": first}
    episode = about(name, turns=first + len(texts))
    return {**item, "episode": episode, "turns": [{"text": text} for text in texts], "end": end}


def send(driver: Driver, *items: Any) -> Any:
    batch = parsing.parse(json.dumps({"items": items}).encode())
    outcome = storing.store(driver.token, batch)
    assert not outcome.rejected, outcome.rejected
    driver.run.refresh_from_db()
    return outcome


END = {"reason": "answered", "reward": 1.0, "success": True}


def texts(run: Any, name: str = "t-1") -> list[tuple[int, str]]:
    episode = episodes.find(run, name)
    assert episode is not None
    return [(turn["index"], turn["text"]) for turn in episodes.turns(episode)]


def test_a_worker_is_known_by_its_newest_list(driver: Driver) -> None:
    send(driver, playing(1, about("a"), about("b")), playing(2, about("b"), running=7))
    send(driver, playing(1, about("c"), source="rollout-1"))
    found = episodes.playing(driver.run)
    assert [(one["worker"], one["running"]) for one in found] == [
        ("rollout-0", 7),
        ("rollout-1", 1),
    ]
    assert [row["trajectory"] for row in found[0]["episodes"]] == ["b"]
    send(driver, playing(3))
    assert [one["worker"] for one in episodes.playing(driver.run)] == ["rollout-1"]


def test_an_older_word_that_comes_late_changes_nothing(driver: Driver) -> None:
    send(driver, playing(5, about("new")), turns(6, 1, "b", end=END))
    send(driver, playing(3, about("old")), turns(4, 0, "a"))
    (worker,) = episodes.playing(driver.run)
    assert [row["trajectory"] for row in worker["episodes"]] == ["new"]
    assert texts(driver.run) == [(0, "a"), (1, "b")]
    assert Episode.objects.get().end == END and Episode.objects.get().turns == 2


def test_turns_are_stored_once(driver: Driver) -> None:
    items = [turns(1, 0, "a"), turns(2, 1, "b", "c")]
    send(driver, *items)
    send(driver, *items)
    send(driver, turns(3, 2, "again"))
    assert texts(driver.run) == [(0, "a"), (1, "b"), (2, "c")]


def test_a_dead_run_plays_nothing_and_its_episodes_were_cut_off(driver: Driver) -> None:
    send(driver, playing(1, about()), turns(2, 0, "a"))
    driver.run.refresh_from_db()
    services.finish(driver.run, driver.attempt, "failed", "", {})
    driver.run.refresh_from_db()
    assert episodes.playing(driver.run) == []
    episode = episodes.find(driver.run, "t-1")
    assert episode is not None
    assert episodes.state(driver.run, episode)["end"]["reason"] == "cut_off"


def test_a_silent_worker_is_said_to_be_silent(driver: Driver) -> None:
    send(driver, playing(1, about()))
    assert not episodes.playing(driver.run)[0]["silent"]
    Playing.objects.update(told_at=timezone.now() - timedelta(minutes=1))
    assert episodes.playing(driver.run)[0]["silent"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"first": -1}, "first"),
        ({"turns": [{"text": "x" * 3000}]}, "turns.0.text"),
        ({"episode": {**about(), "trajectory": "../x"}}, "episode.trajectory"),
        ({"turns": [{"text": "x"}] * 21}, "turns"),
    ],
)
def test_a_bad_item_is_named(driver: Driver, change: Any, field: str) -> None:
    batch = parsing.parse(json.dumps({"items": [{**turns(1, 0, "a"), **change}]}).encode())
    (rejected,) = storing.store(driver.token, batch).rejected
    assert rejected.field == field
    assert not Episode.objects.exists()


def test_hostile_text_is_stored_as_text(driver: Driver, viewer: User) -> None:
    send(driver, turns(1, 0, HOSTILE))
    client = Client()
    client.force_login(viewer)
    page = client.get(f"/runs/{driver.run.pk}/live/t-1/").content.decode()
    assert "<script>alert(1)" not in page
    assert texts(driver.run) == [(0, "<script>alert(1)</script>\ufffd?")]


def test_the_page_turns_to_the_replay_once_only_that_is_left(driver: Driver, viewer: User) -> None:
    send(driver, turns(1, 0, "a", end=END))
    client = Client()
    client.force_login(viewer)
    assert client.get(f"/runs/{driver.run.pk}/live/t-1/").status_code == 200
    assert client.get(f"/runs/{driver.run.pk}/live/t-2/").status_code == 404
    put(driver.run, [trajectory(name="t-1")])
    Episode.objects.all().delete()
    answer = client.get(f"/runs/{driver.run.pk}/live/t-1/")
    assert (answer.status_code, answer["Location"]) == (302, "/trajectories/t-1/")


def test_the_api_tells_what_the_page_shows(driver: Driver, viewer: User) -> None:
    send(driver, playing(1, about()), turns(2, 0, "a"), turns(3, 4, "e", end=END))
    api = Api(viewer)
    (worker,) = api("GET", f"runs/{driver.run.pk}/episodes").json()["workers"]
    assert worker["episodes"][0]["trajectory"] == "t-1"
    found = api("GET", f"runs/{driver.run.pk}/episodes/t-1").json()
    assert [turn["index"] for turn in found["turns"]] == [0, 4]  # what is missing shows
    assert found["episode"]["end"] == END and found["episode"]["stored"] is False
    assert api("GET", f"runs/{driver.run.pk}/episodes/t-9").status_code == 404


def test_old_ones_are_forgotten(driver: Driver) -> None:
    send(driver, playing(1, about()), turns(2, 0, "a", end=END), turns(3, 0, "b", name="t-2"))
    Episode.objects.filter(trajectory_id="t-1").update(told_at=timezone.now() - timedelta(hours=1))
    prune()
    assert list(Episode.objects.values_list("trajectory_id", flat=True)) == ["t-2"]
    assert EpisodeTurn.objects.count() == 1


@pytest.mark.parametrize("count", [1, 20])
def test_queries_do_not_grow_with_what_runs(
    driver: Driver, viewer: User, django_assert_num_queries: Any, count: int
) -> None:
    rows = [about(f"t-{n}") for n in range(count)]
    send(driver, *(playing(1, *rows, source=f"rollout-{n}") for n in range(count)))
    with django_assert_num_queries(2):
        assert len(episodes.playing(driver.run)) == count
    send(driver, turns(2, 0, *(["x"] * count)))
    episode = episodes.find(driver.run, "t-1")
    assert episode is not None
    with django_assert_num_queries(3):
        episodes.detail(driver.run, episode)


def test_what_comes_live_is_what_a_reload_reads(driver: Driver) -> None:
    cursor, came = 0, []
    for seq in range(1, 8):
        send(driver, turns(seq, seq - 1, f"turn {seq}", end=END if seq == 7 else None))
        if seq % 2:
            update = read(f"episode.{driver.run.pk}.t-1", cursor)
            came += [row for m in update.messages if m["kind"] == "turns" for row in m["rows"]]
            cursor = update.cursor
            state = update.messages[-1]["episode"]
    episode = episodes.find(driver.run, "t-1")
    assert episode is not None
    assert came == episodes.turns(episode) and len(came) == 7
    assert state == episodes.state(driver.run, episode) and state["end"] == END


async def test_a_page_hears_of_turns_and_of_the_replay(
    opened: Open, driver: Driver, viewer: User
) -> None:
    await store(driver, turns(1, 0, "a"))
    socket = await opened(viewer)
    topic = f"episode.{driver.run.pk}.t-1"
    await socket.subscribe(topic)
    assert (await socket.until("turns"))["rows"][0]["text"] == "a"
    await socket.subscribe(f"episodes.{driver.run.pk}")
    cursor = await store(driver, turns(2, 1, "b", end=END), playing(3, about()))
    assert (await socket.until("episodes", cursor))["workers"][0]["running"] == 1
    while not any(m.get("episode", {}).get("end") for m in socket.messages):
        await socket.next()
    heard = [r["text"] for m in socket.messages if m["kind"] == "turns" for r in m["rows"]]
    assert heard == ["a", "b"]
    blob, shard, rows = write_shard([trajectory(name="t-1")])
    await database_sync_to_async(services.put_upload)(driver.run.pk, blob, shard)
    item = {"kind": "trajectories", "source": "rollout-0", "seq": 4, "at": 1.0, "shard": shard}
    await store(driver, {**item, "rows": rows})
    while not any(m.get("episode", {}).get("stored") for m in socket.messages):
        await socket.next()


@pytest.mark.parametrize("topic", ["episodes.{run}", "episode.{run}.t-1"])
async def test_an_outsider_hears_nothing_of_episodes(
    opened: Open, driver: Driver, outsider: User, topic: str
) -> None:
    await store(driver, turns(1, 0, "a"), playing(2, about()))
    socket = await opened(outsider)
    await socket.subscribe(topic.format(run=driver.run.pk))
    message = await socket.next()
    assert (message["kind"], message["status"]) == ("problem", 404)


@pytest.mark.parametrize(
    "topic", ["episode.{run}.nothing", "episode.{run}", "episode.", "episodes."]
)
async def test_what_is_not_there_cannot_be_followed(
    opened: Open, driver: Driver, viewer: User, topic: str
) -> None:
    socket = await opened(viewer)
    await socket.subscribe(topic.format(run=driver.run.pk))
    assert (await socket.next())["status"] == 404
