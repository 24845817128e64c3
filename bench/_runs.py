"""Runs that a benchmark launches on the running Caravan and waits for."""

import time
from typing import Any

from caravan import Client
from workers.local.places import UserError

POLL_S = 5
LIMIT_S = 3600  # of one run, queueing included


def to_the_end(client: Client, launched: dict[str, Any]) -> dict[str, Any]:
    """Waits for a run. Raises UserError where it does not succeed in time; it is stopped then."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        found = client.run(launched["id"])
        if found["ended_at"] is not None:
            break
        if time.monotonic() > deadline:
            client.stop(launched["id"])
            raise UserError(f"{launched['name']} did not end within {LIMIT_S / 60:.0f} minutes.")
        time.sleep(POLL_S)
    if found["state"] != "succeeded":
        raise UserError(f"{found['name']} ended as {found['state']}: {found['state_reason']}")
    return found
