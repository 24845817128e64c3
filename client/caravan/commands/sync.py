"""`caravan sync`: ship what runs of your own trainers left on this machine in an outage."""

from pathlib import Path
from typing import Annotated, Any

import typer

from caravan.commands.shared import AsJson, command, emit
from caravan.text import one_line


def add_to(app: typer.Typer) -> None:
    command(app)(sync)


def sync(
    wait: Annotated[float, typer.Option(min=1, help="Seconds for each run, at most.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Ship what runs of your own trainers could not ship before their process ended."""
    from caravan.spooling import unshipped

    outcomes = [_ship(folder, wait) for folder in unshipped()]
    if as_json:
        emit(outcomes)
    elif not outcomes:
        print("Nothing waits on this machine.")
    for one in outcomes if not as_json else ():
        print(f"{one['run']} attempt {one['attempt']}: {one_line(one['outcome'])}")
    if any(not one["done"] for one in outcomes):
        raise typer.Exit(3)


def _ship(folder: Path, wait_s: float) -> dict[str, Any]:
    from caravan import spooling

    try:
        reporting, end = spooling.read(folder)
    except (OSError, ValueError) as error:
        return _told(folder.parent.name, 0, f"{folder} cannot be read: {error}", False)
    run, number = reporting.run_id, reporting.attempt_number
    try:
        held = spooling.hold(folder)
    except BlockingIOError:
        return _told(run, number, "its process still runs and ships by itself", True)
    try:
        return _told(run, number, *_shipped(folder, reporting, end, wait_s))
    finally:
        spooling.release(held)


def _shipped(
    folder: Path, reporting: Any, end: dict[str, Any] | None, wait_s: float
) -> tuple[str, bool]:
    """(what came of it, whether nothing is left to do)."""
    from caravan import spooling
    from caravan.run import SOURCE, finish
    from engine.telemetry.connection import Connection
    from engine.telemetry.shipper import Shipper
    from engine.telemetry.spool import Spool

    connection = Connection(reporting.ingest_url, reporting.token)
    shipper = Shipper(Spool(folder, SOURCE), connection)
    shipper.start()
    try:
        arrived = shipper.close(wait_s)
        if shipper.revoked.is_set():
            spooling.forget(folder)
            return "its run has ended or was begun anew: what was left is dropped", True
        last = end or {"state": "interrupted", "reason": "its process was ended", "summary": {}}
        if not arrived or not finish(connection, **last):
            return f"{reporting.ingest_url} is not reached; it stays in {folder}", False
    finally:
        connection.close()
    spooling.forget(folder)
    return f"all of it arrived; the run is {last['state']}", True


def _told(run: str, attempt: int, outcome: str, done: bool) -> dict[str, Any]:
    return {"run": run, "attempt": attempt, "outcome": outcome, "done": done}
