"""`caravan login`: try a token and remember it."""

import os
import sys
from typing import Annotated

import typer

from caravan.commands.shared import AsJson, command, emit
from caravan.errors import RefusedError
from caravan.text import one_line


def add_to(app: typer.Typer) -> None:
    command(app)(login)


def login(
    url: Annotated[str, typer.Argument(help="Where Caravan is; CARAVAN_URL if left out.")] = "",
    token: Annotated[
        str, typer.Option(help="Asked for if left out, or taken from CARAVAN_TOKEN or stdin.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Store an address and a token of yours (made on the Team page) for the other commands."""
    from caravan.access import Access, clean_url, save_access
    from caravan.client import Client

    url = url or os.environ.get("CARAVAN_URL", "")
    if not url:
        raise RefusedError("Say where Caravan is: `caravan login http://...`.")
    url = clean_url(url)
    token = token or os.environ.get("CARAVAN_TOKEN", "") or _ask()
    with Client(url, token) as client:
        me = client.me()
    path = save_access(Access(url, token))
    projects = [{"name": one["name"], "role": one["role"]} for one in me["projects"]]
    if as_json:
        emit({"url": url, "email": me["email"], "projects": projects, "file": str(path)})
        return
    print(f"Signed in to {url} as {one_line(me['email'])}; the token is kept in {path}.")
    for one in projects:
        print(f"  {one['role']:7} {one_line(one['name'])}")


def _ask() -> str:
    if sys.stdin.isatty():
        given = str(typer.prompt("Token", hide_input=True, err=True))
    else:
        given = sys.stdin.readline()
    if not given.strip():
        raise RefusedError("No token was given.")
    return given.strip()
