"""The run driver: one process per attempt, from the ticket to the last word.

It redeems its one-time ticket for a token and the frozen spec, finds where an earlier attempt
stopped, and takes the stages in turn: tasks and demonstrations are synthesised, the model learns
from the demonstrations, then rollouts and trainer work through the data pool. A heartbeat tells
where it is and brings back what people wish: on stop or interrupt the stage ends at its next step
with a checkpoint. Whatever fails ends the run as failed, with the reason, and the traceback in the
run's log; no wait is without a limit (`limits`).
"""

import argparse
import logging
import random
import re
import signal
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from engine.pool.admission import NoBatchError
from engine.spec import DpoStage, EvaluateStage, OpdStage, RlStage, SftStage, SynthesiseStage
from engine.spec.code import code_version
from engine.telemetry.connection import Connection, IngestError, RefusedError, RevokedError
from engine.telemetry.reporter import Reporter
from workers.cluster import judging, limits, stages, supervised
from workers.cluster.attempt import Attempt, Position, newest_position
from workers.cluster.control import Control
from workers.cluster.crew import Crew, RevokedAttemptError, TerminatedError
from workers.cluster.fetching import StoredRowsError
from workers.cluster.origin import OriginError, take_origin
from workers.cluster.rehearsal import RehearsalError
from workers.cluster.reporting import Address
from workers.cluster.run_format import OtherCodeError, check_format, notice, read_spec
from workers.cluster.seats import LostWorkersError
from workers.cluster.storage import RunStorage

SHIP_IN_A_HURRY_S = 1.0
ACTORS = {
    "TrainerActor": "A trainer",
    "PoolActor": "The data pool",
    "SynthesisActor": "The synthesis",
}

log = logging.getLogger("caravan.driver")


@dataclass(frozen=True)
class End:
    """How the attempt ended: succeeded, stopped, failed or interrupted."""

    state: str
    reason: str = ""
    summary: dict[str, Any] = field(default_factory=dict)


def main() -> int:
    """Exit code 0 where the end was reached or wished for, 1 where the run failed."""
    parser = argparse.ArgumentParser(prog="driver")
    parser.add_argument("--ingest", required=True, help="URL of the ingest server")
    parser.add_argument("--attempt", required=True, help="id of the attempt")
    parser.add_argument("--ticket", required=True, help="one-time ticket of the attempt")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)

    connection = Connection(given.ingest)
    try:
        told = redeem(connection, given.attempt, given.ticket)
    except (IngestError, RefusedError, RevokedError) as error:
        log.error("The ticket of %s was not taken: %s", given.attempt, error)
        return 1
    address = Address(given.ingest, connection.token, told["run_id"], told["attempt_id"])
    control = Control(address.connection(), float(told["heartbeat_s"]))
    reporter = address.reporter("driver", on_revoked=control.revoke)
    address.record_gaps(reporter)
    control.start()
    try:
        end = live(told, address, control, reporter)
    except RevokedAttemptError as error:
        log.warning("This attempt leaves without a word: %s", error)
        return 0
    # Where the web tier is away, the end waits for it; where Caravan itself stops, it does not.
    patience_s = SHIP_IN_A_HURRY_S if in_a_hurry(control) else limits.SHIP_S
    if end.state in ("succeeded", "failed") and not in_a_hurry(control):
        patience_s = limits.OUTAGE_S
    deadline = time.monotonic() + patience_s
    reporter.close(patience_s)
    address.ship_leftovers(deadline - time.monotonic())
    control.end()
    finish(connection, end, deadline + limits.FINISH_S)
    return 1 if end.state == "failed" else 0


def redeem(connection: Connection, attempt: str, ticket: str) -> dict[str, Any]:
    """Trade the ticket for the attempt's token and spec. Raises IngestError after the limit."""
    deadline = time.monotonic() + limits.REDEEM_S
    while True:
        try:
            return connection.redeem(attempt, ticket, code_version())
        except IngestError as error:
            if time.monotonic() >= deadline:
                raise
            log.warning("The ticket was not redeemed yet: %s", error)
            time.sleep(random.uniform(0.5, 2.0))


def live(told: dict[str, Any], address: Address, control: Control, reporter: Reporter) -> End:
    """The attempt's life. Raises nothing but RevokedAttemptError."""
    crew: Crew | None = None
    try:
        launched_with = str(told.get("code_version") or "")
        storage = RunStorage(told["storage"])
        check_format(storage, launched_with)
        spec = read_spec(told["spec"], launched_with)
        if other := notice(launched_with):
            reporter.log(other, level="warning")
        ray.init(log_to_driver=True, logging_level=logging.WARNING)
        signal.signal(signal.SIGTERM, lambda *_: control.terminate())  # after Ray set its own
        crew = Crew(spec, told["attempt_number"], address, control, reporter)
        attempt = Attempt(spec, told["attempt_number"], address, storage, control, reporter, crew)
        resume = _position(told.get("resume"))
        attempt.resume = newest_position(attempt.number, resume, storage)
        attempt.origin = take_origin(told.get("origin"), storage)
        attempt.rehearses = bool(told.get("dry_run"))
        attempt.clean()
        return take_stages(attempt)
    except RevokedAttemptError:
        raise
    except (
        OtherCodeError,
        OriginError,
        StoredRowsError,
        RehearsalError,
        LostWorkersError,
    ) as error:
        reporter.log(str(error), level="error")
        return End("failed", str(error))
    except NoBatchError as error:
        reporter.log(reason(error), level="error")
        return End("failed", reason(error))
    except TerminatedError:
        return End(_ending(control), "Ray ended the job before it had stopped by itself")
    except Exception as error:
        log.exception("The run failed.")
        reporter.error("The run failed.", error)
        return End("failed", reason(error))
    finally:
        if crew is not None:
            crew.dismiss(SHIP_IN_A_HURRY_S if in_a_hurry(control) else limits.SHIP_S / 2)


def in_a_hurry(control: Control) -> bool:
    """Nobody listens any more, or Ray is about to kill this process."""
    return control.terminated or bool(control.revoked)


def take_stages(attempt: Attempt) -> End:
    """All stages in turn, from where an earlier attempt stopped."""
    started, model = time.monotonic(), ""
    if attempt.resume is not None:
        at = attempt.resume
        attempt.reporter.log(f"Goes on from step {at.step} of stage {at.stage}, {at.path}.")
    for index, stage in enumerate(attempt.spec.stages):
        summary: dict[str, Any] | None
        if isinstance(stage, SynthesiseStage):
            summary = stages.synthesise(attempt, index)
        elif attempt.resume is not None and index < attempt.resume.stage:
            continue
        else:
            if not attempt.crew.trainers and stages.judged_tasks(attempt, index):
                model = _start_crew(attempt)
            summary = _work(attempt, index, stage) if model else None
        if summary is None:
            attempt.crew.check()  # whoever was revoked or terminated has no say in how it ended
            return End(_ending(attempt.control), "", _summary(attempt, started, model))
        attempt.leave(index, summary)
    return End("succeeded", "", _summary(attempt, started, model))


def _work(
    attempt: Attempt,
    index: int,
    stage: SftStage | RlStage | DpoStage | OpdStage | EvaluateStage,
) -> dict[str, Any] | None:
    attempt.enter(index, attempt.start_step(index))
    if isinstance(stage, SftStage):
        return supervised.learn(attempt, index, stage)
    if isinstance(stage, DpoStage):
        return supervised.repair(attempt, index, stage)
    if isinstance(stage, EvaluateStage):
        return stages.evaluate(attempt, index, stage)
    return stages.reinforce(attempt, index, stage)


def _start_crew(attempt: Attempt) -> str:
    sentence = attempt.crew.start(attempt.storage.place)
    attempt.reporter.log(f"The model has {sentence}.")
    return sentence


def _summary(attempt: Attempt, started: float, model: str) -> dict[str, Any]:
    return {
        "seconds": round(time.monotonic() - started, 1),
        "model": model,
        "evaluations": attempt.evaluations,
        **judging.gain(attempt),
        **asdict(attempt.totals),
    }


def _ending(control: Control) -> str:
    return "interrupted" if control.command == "interrupt" else "stopped"


def _position(resume: dict[str, Any] | None) -> Position | None:
    if resume is None:
        return None
    return Position(resume["stage"], resume["step"], resume["version"], resume["checkpoint_path"])


def reason(error: Exception) -> str:
    """One line for people; the traceback is in the log."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, NoBatchError):
        return str(cause)
    if isinstance(cause, RayActorError):
        found = re.search(r"class_name: (\w+)", str(cause))
        who = ACTORS.get(found[1] if found else "", "An actor of the run")
        return f"{who} died. The log has more; resume goes on from the last checkpoint."
    return f"{type(cause).__name__}: {cause}"[:2000]


def finish(connection: Connection, end: End, deadline: float) -> None:
    """The last word, repeated until ingest takes it or the deadline (monotonic) is over."""
    log.info("The attempt ends: %s %s", end.state, end.reason)
    while True:
        try:
            connection.finish(end.state, end.reason, end.summary)
            return
        except (RevokedError, RefusedError) as error:
            log.warning("Ingest does not take the end: %s", error)
            return
        except IngestError as error:
            if time.monotonic() >= deadline:
                log.error("Ingest was not told of the end: %s", error)
                return
            time.sleep(random.uniform(0.5, 2.0))


if __name__ == "__main__":
    raise SystemExit(main())
