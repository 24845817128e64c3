"""One row of a list by its id or its name."""

from typing import Any

from caravan.errors import RefusedError


def one_named(what: str, rows: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
    """The row with this id or name. Raises RefusedError for none, or several."""
    named = [row for row in rows if row["name"].lower() == wanted.lower()]
    found = [row for row in rows if row["id"] == wanted] or named
    if not found:
        known = ", ".join(row["name"] for row in rows[:20]) or "none yet"
        raise RefusedError(f"There is no {what} {wanted!r}; there are: {known}.")
    if len(found) > 1:
        ids = ", ".join(row["id"] for row in found)
        raise RefusedError(f"Several projects have a {what} {wanted!r}: use an id, {ids}.")
    return found[0]
