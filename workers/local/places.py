"""Where a local stack keeps its things: home folder, secrets, private socket folder."""

import hashlib
import os
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON_PATH = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "client")])
GENERATED_SECRETS = ("secret_key", "valkey_password", "ray_token")


class UserError(Exception):
    """A problem that the user can solve: its text is one sentence, shown without a traceback."""


@dataclass(frozen=True)
class Places:
    """Absolute folders of one stack. `home` survives restarts, `run` holds only sockets."""

    home: Path
    run: Path

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def storage(self) -> Path:
        return self.home / "storage"

    @property
    def state_file(self) -> Path:
        return self.home / "up.json"

    def secret(self, name: str) -> Path:
        return self.home / "secrets" / name


def find_places(home: Path | None = None) -> Places:
    """The places of `home`, of CARAVAN_HOME, or of `.caravan` in this checkout."""
    chosen = home or Path(os.environ.get("CARAVAN_HOME") or CHECKOUT / ".caravan")
    chosen = chosen.expanduser().resolve()
    short = hashlib.sha256(str(chosen).encode()).hexdigest()[:8]
    temporary = Path(os.environ.get("TMPDIR") or "/tmp").resolve()
    run = temporary / f"caravan-{os.getuid()}-{short}"
    if len(str(run)) > 36:  # a unix socket path has 103 bytes at most, Ray adds 65
        run = Path("/tmp") / run.name
    return Places(chosen, run)


def prepare(places: Places) -> None:
    """Make the folders and the secrets that are missing. Changes no folder that it did not make."""
    # Root's PostgreSQL runs as another user, who must be able to pass through, not to look around.
    through = 0o711 if os.geteuid() == 0 else 0o700
    try:
        _own_folder(places.home, through)
        for name in ("valkey", "logs", "storage", "secrets", "static"):
            _own_folder(places.home / name, 0o700)
        _own_folder(places.run, through)
        for name in GENERATED_SECRETS:
            if not places.secret(name).exists():
                write_private(places.secret(name), secrets.token_hex(32))
    except OSError as error:
        raise UserError(
            f"{_user_name()} cannot write {error.filename} ({error.strerror}): "
            "set CARAVAN_HOME to a folder with room that can be written."
        ) from error


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, never visible half written."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def stamp(places: Iterable[Path]) -> str:
    """A hash of names, sizes and times of files and all below folders; changes when one does."""
    lines = []
    for place in places:
        for path in sorted([place, *place.rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                found = path.stat()
                lines.append(f"{path} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _own_folder(path: Path, mode: int) -> None:
    try:
        path.mkdir(mode=mode, parents=True)
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise UserError(
                f"{path} must be a folder that belongs to {_user_name()}: "
                "move it away, or set CARAVAN_HOME or TMPDIR to another place."
            ) from None
        if found.st_mode & 0o022:
            raise UserError(
                f"{path} can be written by other users: make it private with "
                f"`chmod {mode:o} {path}`, or set CARAVAN_HOME or TMPDIR to another place."
            ) from None
    else:
        path.chmod(mode)  # exact whatever the umask says


def _user_name() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"
