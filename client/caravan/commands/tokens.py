"""`caravan tokens list`, `create` and `revoke`."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import typer

from caravan.commands.shared import AsJson, command, connect, emit, listing, show, since

app = listing("tokens", "List your API tokens, make one, revoke one.")


@command(app, "list")
def list_(as_json: AsJson = False) -> None:
    """List your tokens; their text is nowhere stored."""
    with connect() as client:
        found = client.tokens()
    if as_json:
        emit(found)
        return
    headings = ("id", "name", "begins with", "may", "made", "last used", "state")
    show(headings, map(_row, found), "No tokens.")


@command(app)
def create(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    scope: Annotated[Literal["read", "write"], typer.Option(help="What it may do.")] = "write",
    project: Annotated[str | None, typer.Option(help="Only this one.")] = None,
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="How long it lives.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it, this once."""
    expires = None if days is None else (datetime.now(UTC) + timedelta(days=days)).isoformat()
    with connect() as client:
        made = client.create_token(name, scope=scope, project=project, expires_at=expires)
    if as_json:
        emit(made)
    else:
        print(made["token"])


@command(app)
def revoke(
    token: Annotated[str, typer.Argument(help="Its id, as `caravan tokens list` shows.")],
    as_json: AsJson = False,
) -> None:
    """Make a token useless at once."""
    with connect() as client:
        client.revoke_token(token)
    if as_json:
        emit({"id": token, "revoked": True})
    else:
        print(f"{token} is revoked.")


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    state = "revoked" if one["revoked_at"] else "valid"
    if not one["revoked_at"] and one["expires_at"]:
        left = datetime.fromisoformat(one["expires_at"]) - datetime.now(UTC)
        state = f"{left.days} days left" if left > timedelta(0) else "expired"
    used = f"{since(one['used_at'])} ago" if one["used_at"] else "never"
    begins, may = f"cvn_{one['prefix']}", one["scope"]
    return (one["id"], one["name"], begins, may, f"{since(one['created_at'])} ago", used, state)
