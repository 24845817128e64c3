"""Whether a service is ready, asked the way its users would ask."""

import socket
import ssl
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

UNVERIFIED = ssl.create_default_context()
UNVERIFIED.check_hostname = False
UNVERIFIED.verify_mode = ssl.CERT_NONE


@dataclass(frozen=True)
class Probe:
    """`kind`: http (any answer below 500), postgres, valkey, or log (a text in its log)."""

    kind: str
    target: str


def is_ready(probe: Probe, log: Path, log_start: int) -> bool:
    """Ask once, in at most about a second. `log_start`: where this start's log begins."""
    try:
        return _CHECKS[probe.kind](probe.target, log, log_start)
    except OSError:
        return False


def _http(target: str, log: Path, log_start: int) -> bool:
    try:
        # Nothing secret is sent: whether the certificate names this machine does not matter here.
        with urllib.request.urlopen(target, timeout=1, context=UNVERIFIED) as answer:
            return bool(answer.status < 500)
    except urllib.error.HTTPError as error:
        return error.code < 500


def _postgres(target: str, log: Path, log_start: int) -> bool:
    import psycopg

    try:
        psycopg.connect(target, connect_timeout=1).close()
    except psycopg.OperationalError as error:
        return "does not exist" in str(error)  # it answers; the first start creates the database
    return True


def _valkey(target: str, log: Path, log_start: int) -> bool:
    address = urlsplit(target)
    password = unquote(address.password or "")
    if address.scheme == "unix":
        connection = socket.socket(socket.AF_UNIX)
        where: object = address.path
    else:
        connection = socket.socket()
        where = (address.hostname, address.port or 6379)
    with connection:
        connection.settimeout(1)
        connection.connect(where)  # type: ignore[arg-type]
        connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
        with connection.makefile("rb") as answers:
            return answers.readline() == b"+OK\r\n" and answers.readline() == b"+PONG\r\n"


def _log(target: str, log: Path, log_start: int) -> bool:
    with log.open("rb") as file:
        file.seek(log_start)
        return target.encode() in file.read()


_CHECKS = {"http": _http, "postgres": _postgres, "valkey": _valkey, "log": _log}


if __name__ == "__main__":  # a container's health check: python -m workers.local.probes http URL
    sys.exit(not is_ready(Probe(*sys.argv[1:3]), Path(), 0))
