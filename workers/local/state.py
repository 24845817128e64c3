"""What is running, on disk: up.json, and how a recorded process is recognised again."""

import contextlib
import json
from dataclasses import asdict, dataclass, field

import psutil

from workers.local.places import Places, write_private


@dataclass(frozen=True)
class Recorded:
    """One process that we started, with what tells it from a later one with the same id."""

    pid: int
    created: float
    argv: list[str]
    fingerprint: str = ""  # of the definition it was started from

    def find(self) -> psutil.Process | None:
        """The process, if it is still the one that was recorded."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < 2 and process.cmdline() == self.argv
            return process if same and is_alive(process) else None
        except psutil.Error:
            return None


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs; one that ended and was not collected by its parent does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def record_self() -> Recorded:
    """This process, for others to find."""
    process = psutil.Process()
    return Recorded(process.pid, process.create_time(), process.cmdline())


@dataclass
class State:
    """The content of up.json."""

    instance: str = ""  # in the environment of everything that this home starts
    supervisor: Recorded | None = None
    services: dict[str, Recorded] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    url: str = ""
    ingest_url: str = ""
    ready: bool = False  # every service is
    welcomed: bool = False  # `up` has said all that it says before it watches over them


def read_state(places: Places) -> State:
    """The recorded state, empty where there is none."""
    try:
        raw = json.loads(places.state_file.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return State()
    supervisor = raw.pop("supervisor", None)
    services = {name: Recorded(**found) for name, found in raw.pop("services", {}).items()}
    return State(
        supervisor=Recorded(**supervisor) if supervisor else None, services=services, **raw
    )


def write_state(places: Places, state: State) -> None:
    write_private(places.state_file, json.dumps(asdict(state), indent=2) + "\n")


def started_by(instance: str) -> list[tuple[psutil.Process, str]]:
    """Every living process whose environment says that this home started it, and its service."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if environment.get("CARAVAN_INSTANCE") != instance:
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append((process, environment.get("CARAVAN_SERVICE", "")))
        except (psutil.Error, OSError):
            continue
    return found


def end(processes: list[psutil.Process], grace: float) -> None:
    """Ask processes to end, and kill those that have not after `grace` seconds."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=grace)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=5)
