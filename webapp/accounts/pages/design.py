"""The living page of the design language: its tokens, read from their file, and every component."""

import re
from pathlib import Path

from django.contrib.auth.decorators import login_required
from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

TOKEN = re.compile(r"/\* (?P<group>[^*]+?) \*/|--(?P<name>[\w-]+):\s*(?P<value>[^;]+);")


@login_required
def design(request: HttpRequest) -> HttpResponse:
    """Every component in every state; what the pages may use."""
    context = {
        "states": [
            "queued", "starting", "running", "unreachable", "stopping",
            "succeeded", "stopped", "failed", "interrupted", "lost",
        ],
        "tokens": _tokens(),
        "series": range(8),
        "phases": ["generate", "tool", "queue", "train", "sync", "evaluate", "idle"],
        "numbers": [None, 0, 0.0, float("nan"), float("inf"), 0.9132, 12.5, 1234, 1234567, 3.2e-5],
        "curve": [0.1, 0.2, 0.15, 0.4, None, 0.5, 0.7, 0.72, 0.8, 0.83, 0.91],
        "panel": {"id": "example", "title": "Completion rate"},
    }  # fmt: skip
    return render(request, "design.html", context)


def _tokens() -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """The groups of tokens.css: what each is for, and its names, values and which are colours."""
    path = finders.find("css/tokens.css")
    assert isinstance(path, str)
    groups: list[tuple[str, list[tuple[str, str, bool]]]] = []
    for found in TOKEN.finditer(Path(path).read_text()):
        if found["group"]:
            groups.append((found["group"], []))
        else:
            value = " ".join(found["value"].split())
            colour = value.startswith("light-dark(") or "var(--series" in value
            groups[-1][1].append((found["name"], value, colour))
    return [group for group in groups if group[1]]
