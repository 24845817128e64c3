"""Small parts: settings that fail loudly, bodies that are limited, storage that knows no paths."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from webapp import storage
from webapp.asgi_parts import limit_bodies, with_lifespan
from webapp.queue import broker_url

GOOD = {
    "DATABASE_URL": "postgresql://u:p%40ss@db.example:6432/caravan?sslmode=require",
    "REDIS_URL": "redis://valkey.example:6379/1",
    "CARAVAN_SECRET_KEY": "k" * 40,
}


def settings_with(**changes: str | None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in {**GOOD, **changes}.items() if v is not None}
    code = (
        "from django.conf import settings as s; d = s.DATABASES['default']\n"
        "print(d['HOST'], d['PORT'], d['NAME'], d['USER'], d['PASSWORD'], d['OPTIONS']['sslmode'],"
        " s.SESSION_COOKIE_SECURE, s.DEBUG)"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "DJANGO_SETTINGS_MODULE": "webapp.settings", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )


def test_settings_come_from_the_environment() -> None:
    done = settings_with(CARAVAN_URL="https://caravan.example")
    assert done.stdout.split() == [
        "db.example", "6432", "caravan", "u", "p@ss", "require", "True", "False",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"DATABASE_URL": None}, "DATABASE_URL is not set"),
        ({"DATABASE_URL": "sqlite:///x"}, "postgresql://"),
        ({"REDIS_URL": None}, "REDIS_URL is not set"),
        ({"CARAVAN_SECRET_KEY": None}, "CARAVAN_SECRET_KEY is not set"),
        ({"CARAVAN_SECRET_KEY": "short"}, "at least 32 characters"),
        ({"CARAVAN_SECRET_KEY_FILE": "/nowhere"}, "cannot be read"),
        ({"CARAVAN_DEBUG": "maybe"}, "is no boolean"),
        ({"CARAVAN_DB_POOL": "many"}, "is no whole number"),
    ],
)
def test_a_wrong_environment_is_told(changes: dict[str, str | None], says: str) -> None:
    done = settings_with(**changes)
    assert done.returncode != 0
    assert says in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://h:6379/1", "redis://h:6379/1"),
        ("unix://:pw@/run/v.sock?db=2", "redis+socket://:pw@/run/v.sock?virtual_host=2"),
        ("unix:///run/v.sock", "redis+socket:///run/v.sock?virtual_host=0"),
    ],
)
def test_celery_reaches_the_same_valkey(url: str, broker: str) -> None:
    assert broker_url(url) == broker


async def echo(scope: Any, receive: Any, send: Any) -> None:
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


def answer(pieces: list[bytes], length: int | None) -> int:
    sent: list[dict[str, Any]] = []
    waiting = [
        {"type": "http.request", "body": piece, "more_body": index + 1 < len(pieces)}
        for index, piece in enumerate(pieces)
    ]

    async def receive() -> Any:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [] if length is None else [(b"content-length", str(length).encode())]
    scope = {"type": "http", "headers": headers}
    asyncio.run(limit_bodies(echo, 10)(scope, receive, send))
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("pieces", "length", "status"),
    [
        ([b"12345", b"67890"], 10, 200),
        ([b"12345"], None, 200),
        ([b"x"], 11, 413),
        ([b"12345", b"678901"], None, 413),
        ([b"12345", b"678901"], 5, 413),
    ],
)
def test_a_body_is_refused_before_it_is_too_large(
    pieces: list[bytes], length: int | None, status: int
) -> None:
    assert answer(pieces, length) == status


async def test_work_lives_as_long_as_the_server() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    events: asyncio.Queue[Any] = asyncio.Queue()
    sent: list[str] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    app = with_lifespan(echo, work)
    server = asyncio.create_task(app({"type": "lifespan"}, events.get, send))
    await events.put({"type": "lifespan.startup"})
    await asyncio.wait_for(began.wait(), 2)
    await events.put({"type": "lifespan.shutdown"})
    await asyncio.wait_for(server, 2)
    assert ended.is_set()
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.mark.parametrize(
    "path",
    ["..", ".", "", "a/..", "/a", "a/", "a//b", ".hidden", "a/.b", "~", "a\\b", "a\0", "a\n", "é",
     "%2e%2e", "a;b", "a?b", "file:x", "http://x"],
)  # fmt: skip
def test_only_plain_names_lie_below_a_folder(path: str) -> None:
    assert not storage.is_safe(path)


@pytest.mark.parametrize("path", ["a", "a/b-c_d.json", "checkpoints/1-40/model.safetensors"])
def test_plain_names_do(path: str) -> None:
    assert storage.is_safe(path)


@pytest.mark.parametrize("name", ["", "x" * 64, "A" * 64, "0" * 63, "../" + "0" * 61])
def test_a_blob_has_no_other_name_than_its_hash(name: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        storage.has_blob(name)


def test_a_wrong_run_has_no_folder() -> None:
    with pytest.raises(ValueError, match="no id of a run"):
        storage.run_folder("../run_0000000000000000")
    with pytest.raises(ValueError, match="does not name"):
        storage.remove_run("run_0000000000000000", "..")
