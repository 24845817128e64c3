"""How a version of a dataset comes from the web tier onto the run's storage: once, whole."""

import time

from engine.telemetry.connection import IngestError, RefusedError, RevokedError
from workers.cluster import limits
from workers.cluster.attempt import Attempt
from workers.cluster.crew import RevokedAttemptError
from workers.cluster.stored_rows import file_of


class StoredRowsError(Exception):
    """A dataset that a stage cannot learn from; a sentence for people."""


def fetch(attempt: Attempt, version: str) -> bool:
    """Have the rows of a version on the run's storage; False where the end was asked for meanwhile.

    Raises StoredRowsError where ingest does not give them, RevokedAttemptError.
    """
    name = file_of(version)
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
