"""How a version of a dataset comes from the web tier onto the run's storage: once, whole."""

import time
from typing import Any

from engine.telemetry.connection import IngestError, RefusedError, RevokedError
from workers.cluster import limits, own_tasks, stored_rows
from workers.cluster.attempt import Attempt
from workers.cluster.crew import RevokedAttemptError


class StoredRowsError(Exception):
    """A dataset that a stage cannot learn from; a sentence for people."""


def fetch(attempt: Attempt, version: str) -> bool:
    """Have the rows of a version on the run's storage; False where the end was asked for meanwhile.

    Raises StoredRowsError where ingest does not give them, RevokedAttemptError.
    """
    name = stored_rows.file_of(version)
    if attempt.storage.fetch(name) is not None:
        return True
    path = attempt.storage.path(name)
    partial = path.with_name(f".{path.name}.partial")
    connection = attempt.address.connection()
    deadline = time.monotonic() + limits.REDEEM_S
    try:
        while not attempt.control.wants_end:
            try:
                connection.dataset(version, partial)
            except RevokedError as error:
                raise RevokedAttemptError(str(error)) from error
            except (IngestError, RefusedError) as error:
                if isinstance(error, RefusedError) or time.monotonic() >= deadline:
                    raise StoredRowsError(
                        f"Version {version} of a dataset cannot be had: {error}"
                    ) from error
                attempt.control.changed.wait(limits.LONG_POLL_S)
                attempt.control.changed.clear()
                continue
            partial.replace(path)
            attempt.storage.publish(name)
            return True
        return False
    finally:
        connection.close()


def fetch_tasks(attempt: Attempt, index: int, version: str) -> dict[str, Any] | None:
    """Have the tasks of a version on the run's storage before stage `index`; what was read of them.
    None where the end was asked for meanwhile.

    Raises StoredRowsError where there are too few to play.
    """
    attempt.control.at("fetch dataset", index, attempt.start_step(index))
    if not fetch(attempt, version):
        return None
    made = own_tasks.make(attempt.storage, attempt.spec, version)
    said = stored_rows.told(made)
    if made["rows_used"] < (needed := own_tasks.needed(attempt.spec, version)):
        number = "one task" if needed == 1 else "two tasks, a held-out one and a quick one"
        raise StoredRowsError(f"Stage {index} needs at least {number}: {said}")
    attempt.reporter.log(said, level="warning" if made["rows_refused"] else "info")
    return made


def fetch_to_train_on(
    attempt: Attempt, index: int, version: str
) -> tuple[dict[str, Any], list[str]] | None:
    """As `fetch_tasks`, of tasks that stage `index` trains on: what its summary says of them, and
    their categories. Those that the run is also judged by are counted, with a warning."""
    made = fetch_tasks(attempt, index, version)
    if made is None:
        return None
    said = {name: value for name, value in made.items() if name != "categories"}
    if both := own_tasks.judged_too(attempt.storage, attempt.spec, version):
        attempt.reporter.log(
            f"{both} tasks of dataset version {version}, on which stage {index} trains, "
            "are among those that the run is judged by: its completion will look too good.",
            level="warning",
        )
        said["judged_too"] = both
    return said, made["categories"]
