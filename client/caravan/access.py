"""Where Caravan is and with which token to ask it: environment, checkout, or this user's login."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from caravan.errors import AccessError, RefusedError

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Access:
    url: str
    token: str = field(repr=False)


def find_access(url: str | None = None, token: str | None = None) -> Access:
    """What is given, else CARAVAN_URL and CARAVAN_TOKEN, else the checkout's, else the login's.

    A stored token is sent to no other address than the one it was stored with. Raises AccessError
    where no token is known, RefusedError for an address that is no http(s) URL.
    """
    url = url or os.environ.get("CARAVAN_URL") or ""
    token = token or os.environ.get("CARAVAN_TOKEN") or ""
    if url and token:
        return Access(clean_url(url), token)
    stored = _checkout_access() or _read(login_file())
    if stored is None:
        missing = f"no token for {url}" if url else "no Caravan to ask"
        start = "start one with `./caravan up`, " if in_checkout() and not url else ""
        raise AccessError(
            f"There is {missing}: {start}run `caravan login URL`, or set CARAVAN_URL and "
            "CARAVAN_TOKEN."
        )
    if token:
        return Access(stored.url, token)
    if url and _place(clean_url(url)) != _place(stored.url):
        raise AccessError(
            f"The stored token belongs to {stored.url}, not to {url}: set CARAVAN_TOKEN too, "
            "or run `caravan login URL`."
        )
    return stored


def save_access(access: Access) -> Path:
    """Remember the login of this user in a file that nobody else can read; where it is."""
    path = login_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"url": access.url, "token": access.token}, file)
    partial.replace(path)
    return path


def login_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "caravan" / "token.json"


def clean_url(url: str) -> str:
    """Without a slash at its end. Raises RefusedError where it is no http(s) URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RefusedError(f"{url!r} is no address like http://127.0.0.1:8000.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise RefusedError("An address holds no user, password, query or fragment.")
    return url.rstrip("/")


def in_checkout() -> bool:
    """Whether it is a checkout's own command that asks, which can also start Caravan."""
    return "CARAVAN_HOME" in os.environ


def is_loopback(url: str) -> bool:
    """Whether a proxy of the environment must stay out of the way."""
    return urlsplit(url).hostname in LOOPBACK


def _checkout_access() -> Access | None:
    home = os.environ.get("CARAVAN_HOME")
    return _read(Path(home).expanduser() / "secrets" / "cli_token.json") if home else None


def _read(path: Path) -> Access | None:
    try:
        data = json.loads(path.read_text())
        return Access(clean_url(data["url"]), str(data["token"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AccessError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AccessError(f"{path} holds no login: run `caravan login URL` again.") from error


def _place(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return (
        parts.scheme,
        parts.hostname or "",
        parts.port or {"http": 80, "https": 443}[parts.scheme],
    )
