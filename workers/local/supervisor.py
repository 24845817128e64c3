"""The supervisor: starts services in order, restarts what dies or hangs, stops all in reverse."""

import contextlib
import hashlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from pwd import struct_passwd

import psutil

from workers.local.child import START_SECONDS, Child
from workers.local.places import Places, UserError
from workers.local.probes import is_ready
from workers.local.processes import Service
from workers.local.state import Recorded, State, end, started_by, write_state
from workers.local.watchdog import Watchdog, how_long, is_hung

POLL_SECONDS = 0.1
LOG_LIMIT = 20 * 2**20
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
STEADY_SECONDS = 60.0  # alive this long, a service has earned a fresh backoff
LATE = f"is not ready after {START_SECONDS:.0f} s"
Say = Callable[[str], None]


class StartInterruptedError(Exception):
    """The person asked to stop while services were being started."""


class Supervisor:
    """Owns the processes of one home. All methods run in one thread; `stop_asked` may be set by
    a signal handler."""

    def __init__(
        self,
        places: Places,
        services: Iterable[Service],
        state: State,
        say: Say,
        accounts: dict[str, struct_passwd] | None = None,
        code: str = "",
    ) -> None:
        self.places = places
        self.state = state
        self.say = say
        self.accounts = accounts or {}
        self.code = code  # a process that runs other code is not kept
        self.children = {service.name: Child(service) for service in services}
        self.stop_asked = threading.Event()

    def adopt_or_end_orphans(self) -> None:
        """Deal with what an earlier supervisor left: healthy equals are kept, the rest is ended."""
        unwanted = []
        for name, recorded in list(self.state.services.items()):
            process = recorded.find()
            child = self.children.get(name)
            if process is None:
                self.state.services.pop(name)
            elif child and self._is_same_and_healthy(child, recorded):
                child.process, child.ready, child.started = process, True, time.monotonic()
                self.say(f"{name} was still running (process {process.pid}) and is kept")
            else:
                self.state.services.pop(name)
                unwanted.append(process)
        kept = {name for name, child in self.children.items() if child.process}
        unwanted += [p for p, name in started_by(self.state.instance) if name not in kept]
        others = list({p for p in unwanted if p.pid != os.getpid()})
        if others:
            end(others, grace=5)
            self.say(f"ended {len(others)} processes left by an earlier start")
        self._save()

    def _is_same_and_healthy(self, child: Child, recorded: Recorded) -> bool:
        service = child.service
        if recorded.fingerprint != self._fingerprint(service):
            return False
        return is_ready(service.probe, self.log_path(service.name), 0)

    def log_path(self, name: str) -> Path:
        return self.places.logs / f"{name}.log"

    def ask_to_stop(self) -> None:
        """What a signal handler calls: ends `start` and `watch`."""
        self.stop_asked.set()

    def begin(self, name: str) -> None:
        """Spawn a service that depends on none, without waiting until it is ready."""
        self._spawn(self.children[name])

    def start(self, names: Iterable[str]) -> None:
        """Start services, each when those it depends on are ready; return when all are.

        Raises UserError with the end of its log if one ends or is not ready in time, and
        StartInterruptedError if the stop was asked for meanwhile.
        """
        wanted = [self.children[name] for name in names]
        while not all(child.ready for child in wanted):
            if self.stop_asked.is_set():
                raise StartInterruptedError
            for child in wanted:
                self._advance(child)
            time.sleep(POLL_SECONDS / 2)
        self._save()

    def _advance(self, child: Child) -> None:
        if child.ready:
            return
        name = child.service.name
        if child.process is None:
            if all(self.children[d].ready for d in child.service.depends_on if d in self.children):
                self._spawn(child)
            return
        if how := child.ended():
            raise UserError(f"{name} ended at once ({how}). {self._last_words(child)}")
        if child.is_late():
            raise UserError(f"{name} {LATE}. {self._last_words(child)}")
        if is_ready(child.service.probe, self.log_path(name), child.log_start):
            child.ready = True
            self.say(f"{name} is up{_seconds(child.started)}")

    def _spawn(self, child: Child) -> None:
        service = child.service
        path = self.log_path(service.name)
        if path.exists() and path.stat().st_size > LOG_LIMIT:
            path.replace(path.with_suffix(".log.1"))
        account = self.accounts.get(service.name)
        with path.open("ab") as log:
            child.log_start = log.tell()
            try:
                child.popen = subprocess.Popen(
                    service.argv,
                    env={**inherited(), **service.env, **self._marks(service.name)},
                    cwd=self.places.run / "pg" if account else self.places.home,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is ours to pass on, in order
                    umask=0o077,
                    user=account.pw_uid if account else None,
                    group=account.pw_gid if account else None,
                    extra_groups=[] if account else None,
                )
            except OSError as error:
                raise UserError(f"{service.name} cannot be started: {error}") from error
        child.process = psutil.Process(child.popen.pid)
        child.started = time.monotonic()
        # The arguments as given: just after the start the system may not show them yet.
        self.state.services[service.name] = Recorded(
            child.popen.pid,
            child.process.create_time(),
            list(service.argv),
            self._fingerprint(service),
        )
        self._save()

    def _fingerprint(self, service: Service) -> str:
        """Tells whether a running process was started from this same definition."""
        definition = json.dumps([service.argv, dict(sorted(service.env.items())), self.code])
        return hashlib.sha256(definition.encode()).hexdigest()

    def _marks(self, name: str) -> dict[str, str]:
        return {"CARAVAN_INSTANCE": self.state.instance, "CARAVAN_SERVICE": name}

    def watch(self) -> None:
        """Restart what dies or hangs, until the stop is asked for."""
        Watchdog(self.children, self.stop_asked).start()
        while not self.stop_asked.wait(POLL_SECONDS):
            for child in self.children.values():
                self._keep_alive(child)

    def _keep_alive(self, child: Child) -> None:
        name, now = child.service.name, time.monotonic()
        if child.process is None:
            if now >= child.retry_at:
                try:
                    self._spawn(child)
                except UserError as error:
                    self._retry_later(child, str(error))
            return
        how = child.ended()
        if how is not None:
            self._end_leftovers(name)
            self._retry_later(child, how)
        elif not child.ready:
            if is_ready(child.service.probe, self.log_path(name), child.log_start):
                child.ready = True
                self.say(f"{name} is up again{_seconds(child.started)}")
            elif child.is_late():
                self._end_leftovers(name)
                self._retry_later(child, LATE)
        elif is_hung(child):
            if child.service.carries_runs:
                self.say(
                    f"{name} {how_long()}. Runs go on; `./caravan down` and `up` start it again"
                )
                child.silent = 0
                return
            self._end_leftovers(name)
            self._retry_later(child, how_long())
        elif now - child.started > STEADY_SECONDS:
            child.deaths = 0

    def _retry_later(self, child: Child, how: str) -> None:
        delay = min(FIRST_DELAY * 2**child.deaths, LONGEST_DELAY)
        child.deaths += 1
        child.forget()
        child.retry_at = time.monotonic() + delay
        name = child.service.name
        self.say(f"{name} died ({how}), next start in {delay:.1f} s: see {self.log_path(name)}")

    def _end_leftovers(self, name: str) -> None:
        """End what a dead service left behind (Ray's daemons, a server's workers)."""
        end([p for p, service in started_by(self.state.instance) if service == name], grace=2)

    def stop(self) -> None:
        """Stop services before those they depend on, and as many as possible at once."""
        for wave in self._waves():
            for child in wave:
                if child.process is not None:
                    _send(child.process, child.service.stop_signal)
            for child in wave:
                self._stop_one(child)
        end([p for p, _ in started_by(self.state.instance) if p.pid != os.getpid()], grace=1)
        self.state.services.clear()
        self._save()

    def _stop_one(self, child: Child) -> None:
        process, name = child.process, child.service.name
        if process is None:
            return
        began, patience = time.monotonic(), child.service.stop_seconds
        try:
            child.popen.wait(patience) if child.popen else process.wait(patience)
            how = "stopped"
        except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
            how = f"did not stop in {patience:.0f} s and was killed"
            _send(process, 9)
            child.popen.wait() if child.popen else process.wait(5)
        self._end_leftovers(name)
        child.forget()
        self.say(f"{name} {how}{_seconds(began)}")

    def _waves(self) -> Iterable[list[Child]]:
        """Services in the order of stopping: each group is needed by none that is left."""
        left = dict(self.children)
        while left:
            needed = {d for child in left.values() for d in child.service.depends_on}
            wave = [child for name, child in left.items() if name not in needed]
            left = {name: child for name, child in left.items() if name in needed}
            yield wave

    def _last_words(self, child: Child) -> str:
        path = self.log_path(child.service.name)
        with path.open("rb") as log:
            log.seek(child.log_start)
            lines = log.read().decode(errors="replace").strip().splitlines()
        return f"Its last words: {lines[-1]!r} (all of them: {path})" if lines else f"See {path}"

    def _save(self) -> None:
        write_state(self.places, self.state)


def inherited() -> dict[str, str]:
    """What services may know of the caller's environment: nothing that would configure them."""
    ours = ("CARAVAN_", "DJANGO_", "RAY_", "PYTHON", "PG", "CELERY_")
    named = {"DATABASE_URL", "REDIS_URL", "VIRTUAL_ENV"}
    return {k: v for k, v in os.environ.items() if not k.startswith(ours) and k not in named}


def _send(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _seconds(since: float) -> str:
    return f"  {time.monotonic() - since:.1f} s"
