"""Hostile ids, queries, bodies and forms, for every call and page: refused with a sentence.

Drawn from the API's own schema with a seed, so that a call that is added is tried here too.
CARAVAN_FUZZ_ROUNDS draws more than the default of each call.
"""

import json
import os
import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.db import transaction

from tests.webapp.law10 import MARK, fill
from tests.webapp.support import Api, downloaded
from tests.webapp.test_outsiders import (
    OPERATIONS,
    PAGES,
    PUBLIC,
    body_of,
    outsider,
    owner,
    people,
    signed_in,
    viewer,
    world,
)
from webapp.accounts.models import User
from webapp.api import api as rest

__all__ = ["outsider", "owner", "people", "viewer", "world"]
CHECKOUT = Path(__file__).resolve().parents[2]
ROUNDS = int(os.environ.get("CARAVAN_FUZZ_ROUNDS", "6"))
SCHEMAS = rest.get_openapi_schema()["components"]["schemas"]

TEXTS = [
    "", " ", "x", "\0", "a\0b", "\ud800", "../../etc/passwd", "%00", "{}", "[]", "null", "'\"`;--",
    "<script>alert(1)</script>", "\U0001f43f", "\u202e", "١", "½", "A" * 300, "long " * 2000,
    "run_0000000000000000", "-1", "0", "1e400", "9" * 30, "true", "${jndi:x}", "{{7*7}}", "%s%n",
    "a:b", "status:", "success>", ">", "(", "*", "\\", "a" * 41, "stages.0.kind", "__class__",
    "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00", "2026-01-01", "1970-01-01T00Z",
    "W10", "bnVsbA", "eyJ0IjoxfQ", "W3sidCI6Ing6In0sICJ4Il0", "WzFlNDAwXQ", "WyIiLCAiIl0",
    "WzEsIDFd",
    "W3RydWUsIHRydWVd", "W3sidCI6ICI5OTk5LTEyLTMxVDIzOjU5OjU5LTIzOjU5In0sICJ4Il0",
]  # fmt: skip
NUMBERS: list[Any] = [
    0, 1, -1, 2, 7, 2**31, -(2**31) - 1, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 10**400,
    0.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf"), "NaN", "Infinity", True,
]  # fmt: skip
SHAPES: list[Any] = [
    None, [], {}, [None], [[]], {"": ""}, {"a": {"b": [1]}}, ["\0"], [{}], ["x"] * 2000, [10**400],
    {"kind": "x"}, {"name": "\0"}, {"\0": 1}, {"\ud800": "\ud800"},
]  # fmt: skip
RAW = [
    b"", b"null", b"[]", b'"x"', b"3", b"{", b"\xff\xfe", b"{}" * 2, b"[" * 3000, b"NaN",
    b'{"a":' * 900 + b"1" + b"}" * 900, b'{"name": "\xed\xa0\x80"}', b"\xef\xbb\xbf{}",
    "{}".encode("utf-16"), b'{"a": 1e999}', b'{"a": ' + b"9" * 5000 + b"}",
]  # fmt: skip
KINDS = ["application/json", "text/plain", "multipart/form-data", "application/xml", ""]


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rsplit("/", 1)[1]]
    return schema


def hostile(draw: random.Random, schema: dict[str, Any], depth: int = 0) -> Any:
    """A value that is near what a schema asks for, or nothing like it."""
    if draw.random() < 0.25 or depth > 4:
        return draw.choice(draw.choice([TEXTS, NUMBERS, SHAPES]))
    schema = resolved(schema)
    if one_of := schema.get("anyOf") or schema.get("oneOf"):
        return hostile(draw, draw.choice(one_of), depth)
    if "enum" in schema and draw.random() < 0.7:
        return draw.choice(schema["enum"])
    kind = schema.get("type")
    if kind == "object":
        fields = schema.get("properties", {})
        if not fields:
            return draw.choice(SHAPES)
        return {
            name: hostile(draw, of, depth + 1) for name, of in fields.items() if draw.random() < 0.6
        }
    if kind == "array":
        count = draw.choice([0, 1, 2, 3])
        return [hostile(draw, schema.get("items", {}), depth + 1) for _ in range(count)]
    if kind in ("integer", "number"):
        return draw.choice(NUMBERS)
    if kind == "boolean":
        return draw.choice([True, False, "x", 2])
    return draw.choice(TEXTS)


def in_url(value: Any) -> str:
    return quote(str(value).encode("utf-8", "surrogatepass"), safe="")


def address(
    draw: random.Random, path: str, operation: dict[str, Any], world: dict[str, str]
) -> str:
    """The path with hostile ids now and then, and a hostile query."""
    parts = fill(path, {**world, "recipes": "kg-search"}).split("/")
    if draw.random() < 0.3:
        for index, part in enumerate(path.split("/")):
            if part.startswith("{"):
                parts[index] = in_url(draw.choice(TEXTS)) or "x"
    query = []
    for given in operation.get("parameters", []):
        if given["in"] == "query" and draw.random() < (0.7 if given.get("required") else 0.4):
            value = hostile(draw, given["schema"])
            if draw.random() < 0.3:
                value = world.get(given["name"], world.get(given["name"] + "s", value))
            query.append(f"{given['name']}={in_url(value)}")
    return "/".join(parts) + ("?" + "&".join(query) if query else "")


def body(
    draw: random.Random, method: str, path: str, operation: dict[str, Any], world: dict[str, str]
) -> tuple[bytes, str]:
    """Bytes and their content type: noise, a hostile body, or a valid one with hostile fields."""
    given = operation.get("requestBody", {}).get("content", {})
    if method == "GET" or draw.random() < 0.1 or "application/json" not in given:
        return draw.choice(RAW), draw.choice(KINDS)
    made = hostile(draw, given["application/json"]["schema"])
    if draw.random() < 0.7:
        schema = resolved(given["application/json"]["schema"])
        made = body_of(method, path, world)
        for name, of in schema.get("properties", {}).items():
            if draw.random() < 1.5 / (1 + len(schema["properties"])):
                made[name] = hostile(draw, of)
    return json.dumps(made).encode(), "application/json"


def content(response: Any) -> str:
    if response.streaming:
        return downloaded(response).decode("utf-8", "replace")
    return str(response.content.decode("utf-8", "replace"))


def answer(api: Api, method: str, url: str, data: bytes, kind: str) -> tuple[int, str]:
    """Status and text of a call whose effects are taken back."""
    headers = {"Authorization": f"Bearer {api.token}"} if api.token else {}
    with transaction.atomic():
        response = api.client.generic(
            method, f"/api/v1/{url}", data=data, content_type=kind, headers=headers
        )
        text = content(response)
        transaction.set_rollback(True)
    if response.status_code >= 400:
        assert response["Content-Type"] == "application/problem+json", (url, text)
        problem = json.loads(text)
        detail = problem.get("detail", "") or ""
        assert re.search(r"\w \w", detail) and "Traceback" not in detail, (url, data[:200], problem)
    return response.status_code, text


@pytest.mark.django_db
@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_a_hostile_call_is_answered_or_refused_with_a_sentence(
    world: dict[str, str], owner: User, viewer: User, outsider: User,
    method: str, path: str, operation: dict[str, Any],
) -> None:  # fmt: skip
    draw = random.Random(f"{method} {path} {os.environ.get('CARAVAN_FUZZ_SEED', '')}")
    callers = {"owner": Api(owner), "viewer": Api(viewer), "outsider": Api(outsider)}
    for turn in range(ROUNDS):
        url = address(draw, path, operation, world)
        data, kind = body(draw, method, path, operation, world)
        who = draw.choice(["owner", "owner", "owner", "viewer", "outsider"])
        said = f"{turn}: {who} {method} {url[:300]} {data[:600]!r}"
        try:
            status, text = answer(callers[who], method, url, data, kind)
        except Exception as error:
            raise AssertionError(said) from error
        assert status < 500, (said, text)
        if who == "outsider":
            assert MARK not in text, said
        if who == "viewer" and method != "GET":
            assert status >= 400 or "tokens" in path or "inbox" in path or "valid" in path, said


READ = re.compile(r"(GET|POST)(?:\.get|\.getlist)?[\[(]\"([a-z_.]+)\"")
SOURCES = "\n".join(path.read_text() for path in (CHECKOUT / "webapp").rglob("*.py"))
NAMES = {
    kind: sorted({name for by, name in READ.findall(SOURCES) if by == kind})
    for kind in ("GET", "POST")
}


def form(draw: random.Random, kind: str, world: dict[str, str]) -> list[tuple[str, str]]:
    """Some fields that pages read, hostile or with ids of the world, now and then twice."""
    names = [name for name in NAMES[kind] for _ in range(2) if draw.random() < 0.15]
    values = [*TEXTS, *(str(number) for number in NUMBERS), *world.values()]
    return [(name, draw.choice(values)) for name in names]


@pytest.mark.django_db
@pytest.mark.parametrize(("route", "name"), PAGES)
def test_a_hostile_address_or_form_gets_a_page(
    world: dict[str, str], owner: User, outsider: User, route: str, name: str
) -> None:
    draw = random.Random(f"{route} {os.environ.get('CARAVAN_FUZZ_SEED', '')}")
    callers = {"owner": signed_in(owner), "outsider": signed_in(outsider)}
    for turn in range(ROUNDS):
        parts = fill(route, {**world, "login": "guess", "invitation": "guess"}).split("/")
        if draw.random() < 0.2:
            for index, part in enumerate(route.split("/")):
                if part.startswith("<"):
                    parts[index] = in_url(draw.choice(TEXTS)) or "x"
        url, who = "/" + "/".join(parts), draw.choice(["owner", "owner", "outsider"])
        query = "&".join(f"{name}={in_url(value)}" for name, value in form(draw, "GET", world))
        headers = {"HX-Request": "true"} if draw.random() < 0.3 else {}
        said = f"{turn}: {who} {url}?{query[:300]}"
        client = callers[who]
        try:
            with transaction.atomic():
                response = client.get(f"{url}?{query}", headers=headers)
                text = content(response)
                fields = form(draw, "POST", world)
                said += f" {fields}"
                body = "&".join(f"{name}={in_url(value)}" for name, value in fields)
                kind = "application/x-www-form-urlencoded"
                sent = client.post(url, body, content_type=kind, headers=headers)
                text += content(sent)
                transaction.set_rollback(True)
        except Exception as error:
            raise AssertionError(said) from error
        finally:
            client.force_login(owner if who == "owner" else outsider)
        assert response.status_code < 500 and sent.status_code < 500, said
        if who == "outsider" and name not in PUBLIC:
            assert MARK not in text, said
