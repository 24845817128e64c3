"""Reporting from a trainer of your own: metrics, trajectories, checkpoints, through any outage."""

import atexit
import logging
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from caravan import spooling
from caravan.client import Client
from caravan.errors import CaravanError
from caravan.heartbeat import Heartbeat
from caravan.spooling import Reporting
from caravan.trained import Trained
from caravan.trajectories import Episode, Turn, make_trajectory
from caravan.uploads import Saved, Uploader
from engine.records.events import MAX_NAME, Log, Metrics, StageChange, TrainedRows
from engine.records.shards import write_shard
from engine.records.trained import write_trained
from engine.records.trajectory import Trajectory
from engine.telemetry.connection import Connection, IngestError, RefusedError, RevokedError
from engine.telemetry.keeper import Keeper
from engine.telemetry.shipper import Shipper
from engine.telemetry.spool import Spool

log = logging.getLogger(__name__)
# httpx tells of every call; several a second are no news in a trainer's log.
logging.getLogger("httpx").addFilter(lambda record: "/ingest/v1/" not in record.getMessage())

State = Literal["succeeded", "stopped", "failed", "interrupted"]
SOURCE = "trainer"
MAX_VALUES = 1000  # of one event
MAX_TEXT = 20_000
FINISH_S = 60.0
NOT_IN_NAMES = re.compile(r"[^\w./ %@-]")


class Run:
    """A run on Caravan's pages that your own process trains.

    Beginning one raises CaravanError where Caravan is not reached or refuses. After that nothing
    here raises or waits for the network: what is reported goes to a spool on disk, and a thread
    ships it, in order and once, whenever Caravan can be reached. Use it as a context manager, or
    call `finish`. In a process with several ranks, begin it on one of them.

    `should_stop` turns true when somebody presses Stop: save what is needed and finish.
    `resume` continues a run (id) as a new attempt instead of beginning one.
    """

    def __init__(
        self,
        name: str = "",
        *,
        experiment: str = "",
        config: Mapping[str, Any] | None = None,
        steps: int = 0,
        tags: Sequence[str] = (),
        notes: str = "",
        project: str | None = None,
        resume: str | None = None,
        url: str | None = None,
        token: str | None = None,
        spool: Path | None = None,
    ) -> None:
        """`steps`: how many there will be, 0 if unknown; `spool`: a folder on local disk."""
        with Client(url, token) as client:
            if resume is not None:
                begun = client.restart_external(resume)
                before = client.run(begun["run_id"])
                self._step, self._steps = int(before["step"]), int(before["steps"])
            else:
                self._step, self._steps = 0, steps
                begun = client.begin_external(
                    name=name,
                    experiment=experiment,
                    config=config or {},
                    steps=steps,
                    tags=list(tags),
                    notes=notes,
                    project=project,
                )
            self.url = f"{client.url}/runs/{begun['run_id']}/"
        self.id = str(begun["run_id"])
        self.name = str(begun["run_name"])
        names = Reporting.__dataclass_fields__
        reporting = Reporting(**{key: begun[key] for key in names})
        self._number = reporting.attempt_number
        self._told_step = -1
        self._process = os.getpid()
        self._lock = threading.Lock()  # the keeper is for one thread at a time
        self._finished = False
        try:
            self._folder = spooling.make_folder(reporting, spool)
            self._held = spooling.hold(self._folder)
            self._spool = Spool(self._folder, SOURCE)
        except OSError as error:
            raise CaravanError(f"The spool cannot be written: {error}.") from error
        self._keeper = Keeper(self._spool)
        self._connection = Connection(reporting.ingest_url, reporting.token)
        self._heartbeat = Heartbeat(
            self._connection, reporting.heartbeat_s, lambda: self._step, self._tick
        )
        self._shipper = Shipper(self._spool, self._connection, self._heartbeat.revoke)
        self._uploader = Uploader(self._connection, self._spool)
        for thread in (self._shipper, self._uploader, self._heartbeat):
            thread.start()
        atexit.register(self._at_exit)

    @property
    def should_stop(self) -> bool:
        """Whether somebody asked this run to stop, or a newer attempt took its place."""
        return self._heartbeat.stop_wished.is_set()

    def log(
        self,
        values: Mapping[str, Any],
        step: int | None = None,
        axis: Literal["trainer_step", "rollout_step", "environment_step"] = "trainer_step",
    ) -> None:
        """Numbers at a step; without one, at the step after the last. NaN and infinities are kept.

        Names are of letters, digits and `. / - % @`; a slash groups them on the charts page.
        """
        if not self._is_open():
            return
        with self._lock:
            at = self._step + 1 if step is None else max(int(step), 0)
            if axis == "trainer_step":
                self._step = max(self._step, at)
            numbers = self._numbers(values)
            for start in range(0, len(numbers), MAX_VALUES):
                part = dict(numbers[start : start + MAX_VALUES])
                self._spool.add(Metrics, axis=axis, step=at, values=part)

    def message(
        self, text: str, level: Literal["debug", "info", "warning", "error"] = "info"
    ) -> None:
        """A line of the run's log."""
        if self._is_open():
            self._spool.add(Log, level=level, text=str(text)[-MAX_TEXT:])

    def trajectory(self, prompt: str, turns: Sequence[Turn], episode: Episode) -> Trajectory | None:
        """An episode by its turns, for replay and review. See `Turn` and `Episode`.

        Give what is returned to `trained` once the episode has been trained on; None: dropped.
        """
        if not self._is_open():
            return None
        try:
            made = make_trajectory(prompt, turns, episode, SOURCE)
        except (ValueError, TypeError, AttributeError) as error:
            log.warning("A trajectory is malformed and dropped: %s", error)
            self._spool.drop("malformed trajectories", 1)
            return None
        self.group([made])
        return made

    def trained(
        self, trajectories: Sequence[Trained], step: int | None = None, version: int | None = None
    ) -> None:
        """What a step's loss saw of the tokens of trajectories, for the replay. See `Trained`.

        `step`: of the trainer, the last one if left out; `version`: of the policy before it, the
        step if left out.
        """
        if not self._is_open():
            return
        at = self._step if step is None else max(int(step), 0)
        try:
            shard = write_trained(
                one.packed(at, at if version is None else version) for one in trajectories
            )
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            log.warning("What training saw is malformed and dropped: %s", error)
            self._spool.drop("malformed trained tokens", len(trajectories))
            return
        if trajectories:
            self._spool.add_shard(*shard, TrainedRows)

    def group(self, trajectories: Sequence[Trajectory]) -> None:
        """Trajectories of one prompt, token-exact. Above 4 a second, one group in 16 is kept,
        and every failure and every evaluation."""
        if not self._is_open():
            return
        try:
            write_shard(trajectories)  # what cannot be written must not reach the others
        except (ValueError, TypeError, AttributeError) as error:
            log.warning("Trajectories are malformed and dropped: %s", error)
            self._spool.drop("malformed trajectories", len(trajectories))
            return
        with self._lock:
            self._keeper.add_group(trajectories)

    def checkpoint(
        self,
        folder: str | Path,
        step: int | None = None,
        *,
        version: int | None = None,
        final: bool = False,
        wait: bool = False,
    ) -> None:
        """Upload a folder from a thread; leave it as it is until then, or `wait`.

        `version`: of the policy, the step if left out; `final`: what people should pull.
        """
        if not self._is_open():
            return
        at = self._step if step is None else int(step)
        name = f"checkpoints/attempt-{self._number}/step-{at:08d}"
        saved = Saved(Path(folder), name, at, at if version is None else version, final)
        self._uploader.add(saved)
        while wait and self._uploader.is_alive() and not saved.done.wait(1.0):
            continue

    def finish(
        self,
        state: State = "succeeded",
        reason: str = "",
        summary: Mapping[str, Any] | None = None,
        timeout_s: float = FINISH_S,
    ) -> bool:
        """Ship the rest and say how it ended; True when all of it arrived within the time.

        What did not arrive stays on disk: `caravan sync` ships it later.
        """
        if not self._is_open():
            return False
        self._finished = True
        atexit.unregister(self._at_exit)
        deadline = time.monotonic() + timeout_s
        given = dict(summary or {})
        uploaded = self._uploader.close(timeout_s)
        with self._lock:
            self._keeper.flush()
        self._tell_stage("done")
        try:
            spooling.write_end(self._folder, state, reason, given)
        except (OSError, TypeError, ValueError) as error:
            log.warning("How the run ended cannot be kept on disk: %s", error)
        arrived = self._shipper.close(max(deadline - time.monotonic(), 1.0)) and uploaded
        self._heartbeat.end(10.0, is_heard=arrived)
        arrived = arrived and finish(self._connection, state, reason, given)
        self._connection.close()
        spooling.release(self._held)
        if arrived or self._heartbeat.revoked:
            spooling.forget(self._folder)
        else:
            log.warning("Not everything arrived: `caravan sync` ships %s later.", self._folder)
        return arrived

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            stopped = self.should_stop
            self.finish("stopped" if stopped else "succeeded", "asked to stop" if stopped else "")
        elif isinstance(error, KeyboardInterrupt):
            self.finish("interrupted", "Ctrl-C")
        else:
            self.finish("failed", f"{type(error).__name__}: {error}"[:2000])

    def _is_open(self) -> bool:
        """Whether reports are taken: not after the end, nor in a forked child of the process."""
        return not self._finished and os.getpid() == self._process

    def _numbers(self, values: Mapping[str, Any]) -> list[tuple[str, float]]:
        found = []
        for name, value in values.items():
            try:
                found.append((NOT_IN_NAMES.sub("_", str(name))[:MAX_NAME] or "_", float(value)))
            except (TypeError, ValueError):
                log.warning("%s is dropped: %r is no number.", name, value)
                self._spool.drop("values that are no numbers", 1)
        return found

    def _tick(self) -> None:
        """Every few seconds, from the heartbeat's thread."""
        with self._lock:
            self._keeper.flush()
        if self._told_step != self._step:
            self._tell_stage("running")

    def _tell_stage(self, state: Literal["running", "done"]) -> None:
        self._told_step = self._step
        self._spool.add(
            StageChange,
            index=0,
            name="training",
            state=state,
            step=self._step,
            steps=self._steps,
        )

    def _at_exit(self) -> None:
        self.finish("interrupted", "the process ended without calling finish", timeout_s=10.0)


def finish(connection: Connection, state: str, reason: str, summary: dict[str, Any]) -> bool:
    """Say how an attempt ended; False where that was not heard."""
    try:
        connection.finish(state, reason, summary)
    except RevokedError as error:
        log.warning("The end was not taken: %s", error)
        return False
    except (IngestError, RefusedError, ValueError, TypeError) as error:
        log.warning("How the run ended could not be told: %s", error)
        return False
    return True
