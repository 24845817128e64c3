"""Whether a service is ready, asked the way its users would ask."""

import socket
import ssl
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from workers.alive import is_fresh

UNVERIFIED = ssl.create_default_context()
UNVERIFIED.check_hostname = False
UNVERIFIED.verify_mode = ssl.CERT_NONE


@dataclass(frozen=True)
class Probe:
    """`kind`: http, postgres, valkey, log (a text in its log), or alive (a file it touches)."""

    kind: str
    target: str


def is_ready(probe: Probe, log: Path, log_start: int) -> bool:
    """Ask once, in at most about a second. `log_start`: where this start's log begins."""
    try:
        if probe.kind == "log":
            return _log(probe.target, log, log_start)
        return _READY[probe.kind](probe.target, 1.0)
    except OSError:
        return False


def answers(probe: Probe, patience_s: float) -> bool:
    """Whether it answers at all within that time, be it to refuse; not for probes of logs."""
    try:
        return _ANSWERS[probe.kind](probe.target, patience_s)
    except OSError:
        return False


def _http(target: str, patience_s: float) -> bool:
    return _http_status(target, patience_s) < 500


def _http_status(target: str, patience_s: float) -> int:
    try:
        # Nothing secret is sent: whether the certificate names this machine does not matter here.
        with urllib.request.urlopen(target, timeout=patience_s, context=UNVERIFIED) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _http_answers(target: str, patience_s: float) -> bool:
    return _http_status(target, patience_s) > 0


def _postgres(target: str, patience_s: float) -> bool:
    problem = _postgres_problem(target, patience_s)
    # The first start creates the database.
    return problem == "" or "does not exist" in problem


def _postgres_answers(target: str, patience_s: float) -> bool:
    problem = _postgres_problem(target, patience_s)
    return problem == "" or "FATAL" in problem  # the server's own word: say, too many clients


def _postgres_problem(target: str, patience_s: float) -> str:
    import psycopg

    try:
        psycopg.connect(target, connect_timeout=round(patience_s)).close()
    except psycopg.OperationalError as error:
        return str(error)
    return ""


def _valkey(target: str, patience_s: float) -> bool:
    return _valkey_lines(target, patience_s) == [b"+OK\r\n", b"+PONG\r\n"]


def _valkey_answers(target: str, patience_s: float) -> bool:
    return _valkey_lines(target, patience_s)[0] != b""


def _valkey_lines(target: str, patience_s: float) -> list[bytes]:
    address = urlsplit(target)
    password = unquote(address.password or "")
    if address.scheme == "unix":
        connection = socket.socket(socket.AF_UNIX)
        where: object = address.path
    else:
        connection = socket.socket()
        where = (address.hostname, address.port or 6379)
    with connection:
        connection.settimeout(patience_s)
        connection.connect(where)  # type: ignore[arg-type]
        connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
        with connection.makefile("rb") as lines:
            return [lines.readline(), lines.readline()]


def _alive(target: str, patience_s: float) -> bool:
    return is_fresh(Path(target))


def _log(target: str, log: Path, log_start: int) -> bool:
    with log.open("rb") as file:
        file.seek(log_start)
        return target.encode() in file.read()


_READY = {"http": _http, "postgres": _postgres, "valkey": _valkey, "alive": _alive}
_ANSWERS = {
    "http": _http_answers,
    "postgres": _postgres_answers,
    "valkey": _valkey_answers,
    "alive": _alive,
}


if __name__ == "__main__":  # a container's health check: python -m workers.local.probes http URL
    sys.exit(not is_ready(Probe(*sys.argv[1:3]), Path(), 0))
