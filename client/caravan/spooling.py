"""The folder of one attempt: its spool, and what is needed to ship it after the process ended."""

import fcntl
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_ATTEMPT, _END = "attempt.json", "end.json"


@dataclass(frozen=True)
class Reporting:
    """Where an attempt reports, and as whom."""

    run_id: str
    attempt_id: str
    attempt_number: int
    ingest_url: str
    token: str
    heartbeat_s: float

    def __repr__(self) -> str:
        return f"Reporting({self.ingest_url}, {self.attempt_id})"  # the token stays out of logs


def base_folder() -> Path:
    """CARAVAN_SPOOL, else this user's cache."""
    if given := os.environ.get("CARAVAN_SPOOL"):
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "caravan" / "spool"


def make_folder(reporting: Reporting, base: Path | None = None) -> Path:
    """The attempt's folder, which nobody else can read. Raises OSError."""
    folder = (base or base_folder()) / reporting.run_id / reporting.attempt_id
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(folder / _ATTEMPT, asdict(reporting))
    return folder


def hold(folder: Path) -> int:
    """Hold a folder until the descriptor is closed. Raises BlockingIOError where another does."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def release(descriptor: int) -> None:
    os.close(descriptor)


def write_end(folder: Path, state: str, reason: str, summary: dict[str, Any]) -> None:
    """How the attempt ended, for whoever ships the rest."""
    _write(folder / _END, {"state": state, "reason": reason, "summary": summary})


def read(folder: Path) -> tuple[Reporting, dict[str, Any] | None]:
    """What lies in an attempt's folder. Raises OSError; ValueError where it is no such folder."""
    try:
        reporting = Reporting(**json.loads((folder / _ATTEMPT).read_text()))
    except TypeError as error:
        raise ValueError(f"{folder / _ATTEMPT} is not what a run writes.") from error
    end = folder / _END
    return reporting, json.loads(end.read_text()) if end.exists() else None


def unshipped(base: Path | None = None) -> list[Path]:
    """Folders of attempts that have not shipped everything, or whose process still runs."""
    return sorted(path.parent for path in (base or base_folder()).glob(f"*/*/{_ATTEMPT}"))


def forget(folder: Path) -> None:
    """Remove the folder of an attempt, and that of its run when it was the last one."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent.exists() and not any(folder.parent.iterdir()):
        folder.parent.rmdir()


def _write(path: Path, data: dict[str, Any]) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(data, file)
