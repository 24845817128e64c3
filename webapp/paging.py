"""Keyset paging: a page starts after the last row of the one before, however many rows come in."""

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet

from webapp.problems import FieldProblem, RefusedError

M = TypeVar("M", bound=Model)
MAX_PAGE = 200


@dataclass(frozen=True)
class Page(Generic[M]):
    items: list[M]
    next_cursor: str | None  # None: this is the last page


def keyset(
    queryset: QuerySet[M], order: tuple[str, ...], cursor: str | None = None, limit: int = 50
) -> Page[M]:
    """A page in the given order ("-created_at", "-id"); the last field must be unique.

    Fields must not be null. Raises RefusedError (400) for a cursor that was not given out.
    """
    limit = max(1, min(limit, MAX_PAGE))
    names = [name.removeprefix("-") for name in order]
    ordered = queryset.order_by(*order)
    if cursor:
        after = _after(order, decode_cursor(cursor, len(order)))
        try:
            ordered = ordered.filter(after)
        except (ValueError, TypeError, OverflowError, ValidationError):  # of another order
            raise wrong_cursor() from None
    rows = list(ordered[: limit + 1])
    if len(rows) <= limit:
        return Page(rows, None)
    last = rows[limit - 1]
    return Page(rows[:limit], encode_cursor([getattr(last, name) for name in names]))


def _after(order: tuple[str, ...], values: list[Any]) -> Q:
    """(a, b) after (x, y), as a < x or (a = x and b < y): sides by the direction of each field."""
    found = Q()
    equal = Q()
    for name, value in zip(order, values, strict=True):
        field, side = (name[1:], "lt") if name.startswith("-") else (name, "gt")
        found |= equal & Q(**{f"{field}__{side}": value})
        equal &= Q(**{field: value})
    return found


def encode_cursor(values: list[Any]) -> str:
    plain = [{"t": v.isoformat()} if isinstance(v, datetime) else v for v in values]
    return base64.urlsafe_b64encode(json.dumps(plain).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, count: int) -> list[Any]:
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(values, list) or len(values) != count:
            raise ValueError
        if any(v is None or isinstance(v, list) or "\0" in str(v) for v in values):
            raise ValueError
        return [_moment(v["t"]) if isinstance(v, dict) else v for v in values]
    except (ValueError, KeyError, TypeError, OverflowError):
        raise wrong_cursor() from None


def _moment(text: str) -> datetime:
    """In UTC, which the ends of the calendar in other zones are beyond: OverflowError."""
    return datetime.fromisoformat(text).astimezone(UTC)


def wrong_cursor() -> RefusedError:
    message = "Use the cursor of the page before, unchanged and with the same order."
    return RefusedError(message, [FieldProblem("cursor", message)], status=400)
