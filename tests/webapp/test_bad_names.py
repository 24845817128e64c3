"""Any text in any field of any call: it is kept as it was given or refused with a sentence."""

import json
from typing import Any

import pytest

from tests.webapp.calls import BODIES, REFERENCES, call
from tests.webapp.law10 import build_world
from tests.webapp.support import Api
from webapp.accounts.models import Project, User

NAMES = {
    "emoji": "\U0001f43f️ family 👨\u200d👩\u200d👧",
    "right to left": "עברית \u202egnp.exe",
    "Chinese": "强化学习",
    "255 bytes": "ü" * 127 + "x",
    "leading <": "<b>bold</b>",
    "a quotation": 'it\'s "so"; DROP TABLE runs; --',
    "only spaces": "   ",
    "line breaks": "a\nb\r\nc\t",
    "NUL": "a\0b",
    "half a surrogate pair": "a\ud800b",
    "escape codes": "\x1b[31mred",
    "very long": "long " * 3000,
}
TEXT = {"name", "text", "notes", "note", "experiment", "display_name", "instructions", "subject"}


def fields() -> list[tuple[str, str, str]]:
    """(method, path, field) of every field of a call that takes a text which people write."""
    found = []
    for (method, path), body in BODIES.items():
        for name, value in body.items():
            if name in TEXT and isinstance(value, str) and name not in REFERENCES:
                found.append((method, path, name))
        for extra in ("note", "notes"):
            if extra not in body and path in ("runs", "experiments", "external-runs"):
                found.append((method, path, extra))
    return found


@pytest.mark.parametrize(("method", "path", "field"), fields())
def test_it_is_kept_or_refused_with_a_sentence(
    project: Project, owner: User, api: Api, monkeypatch: Any, method: str, path: str, field: str
) -> None:
    project.max_running = 5
    project.save()
    world = build_world(project, owner)
    body = BODIES[method, path]
    for label, text in NAMES.items():
        monkeypatch.setitem(BODIES, (method, path), {**body, field: text})
        answer = call(api, method, path, world)
        assert answer.status_code < 500, f"{label}: {answer.content!r}"
        if answer.status_code >= 400:
            problem = json.loads(answer.content)
            assert answer.status_code in (409, 413, 422), f"{label}: {problem}"
            assert problem["detail"].strip(), label
        elif answer.content:
            made = json.loads(answer.content)
            if isinstance(made, dict) and isinstance(made.get(field), str) and path != "presets":
                kept = {text, text.strip(), text.replace("\0", "�").strip()}
                whole = {one.encode("utf-8", "replace").decode() for one in kept} | kept
                assert made[field] in whole | {text[:400]}, f"{label} became {made[field]!r}"
