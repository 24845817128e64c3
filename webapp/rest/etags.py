"""Entity tags: who edits says which version they saw, and is told when it changed meanwhile."""

import hashlib
import json
from typing import Any

from django.http import HttpRequest, HttpResponse

from webapp.problems import RefusedError


def etag_of(*editable: Any) -> str:
    """A weak tag of the values that people edit."""
    text = json.dumps(editable, sort_keys=True, default=str)
    return f'W/"{hashlib.sha256(text.encode()).hexdigest()[:20]}"'


def check_match(request: HttpRequest, current: str) -> None:
    """Raises RefusedError (412) where If-Match names another version. Call it under the lock."""
    given = request.headers.get("If-Match", "*")
    if given != "*" and current not in [tag.strip() for tag in given.split(",")]:
        raise RefusedError(
            f"Somebody changed this since you read it; its tag is now {current}.", status=412
        )


def tagged(response: HttpResponse, tag: str) -> None:
    response["ETag"] = tag
