"""Waiting for a dry run, and its result: what started, what was trained, what did not."""

import sys
import time
from typing import TYPE_CHECKING, Any

from caravan.commands.shared import INTERRUPTED, RUN_FAILED, emit, show, span
from caravan.commands.watch import ENDED, PATIENCE_S, POLL_S
from caravan.errors import AccessError
from caravan.text import one_line

if TYPE_CHECKING:
    from caravan.client import Client

WORDS = {"done": "ok", "waiting": "waiting", "missing": "MISSING"}


def tried(client: "Client", run_id: str, as_json: bool) -> int:
    """Wait for the end of a dry run and print its checklist; the exit code. Ctrl-C leaves it."""
    try:
        run = _ended(client, run_id)
    except KeyboardInterrupt:
        print(f"\nThe dry run goes on; `caravan watch {run_id}` follows it.", file=sys.stderr)
        return INTERRUPTED
    found = client.dry_run(run_id)
    if as_json:
        emit({**found, "run": run["id"], "state": run["state"], "reason": run["state_reason"]})
    else:
        rows = [
            (
                one["label"],
                WORDS.get(one["state"], one["state"]),
                None if one["seconds"] is None else span(one["seconds"]),
                one["detail"],
            )
            for one in found["checks"]
        ]
        show(("what", "", "seconds", "why"), rows, "Nothing was tried.")
        reason = f": {one_line(run['state_reason'], 500)}" if run["state_reason"] else "."
        print(f"The dry run {'passed.' if found['passed'] else 'did not pass' + reason}")
    return 0 if found["passed"] else RUN_FAILED


def _ended(client: "Client", run_id: str) -> dict[str, Any]:
    """The run once it has ended. Raises AccessError after an outage that is long."""
    heard = time.monotonic()
    while True:
        try:
            run = client.run(run_id)
            heard = time.monotonic()
            if run["state"] in ENDED:
                return run
        except AccessError:
            if time.monotonic() - heard > PATIENCE_S:
                raise
        time.sleep(POLL_S)
