"""Receivers that hang take senders, never the worker that submits and stops runs."""

import socket
import time
from collections.abc import Iterator

import pytest

from caravan.client import Client
from workers.local.scratch import scratch_stack
from workers.local.stack import Stack

pytestmark = pytest.mark.stack
# Without beat, whose reconciliation would submit what was missed; and without Ray: that nothing
# was reached is said of a run by the task that tried to submit it.
SERVICES = ("postgres", "valkey", "web", "ingest", "worker", "webhooks")
SENDERS = 4
LIMIT_S = 90


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CARAVAN_WEBHOOK_HOSTS", "localhost")
        with scratch_stack(SERVICES) as stack:
            yield stack


def test_a_run_is_submitted_while_every_sender_waits_for_a_receiver(client: Client) -> None:
    project = client.me()["projects"][0]["id"]
    hooks = []
    with socket.create_server(("127.0.0.1", 0), backlog=64) as receiver:
        receiver.settimeout(LIMIT_S)
        url = f"http://localhost:{receiver.getsockname()[1]}/"
        for number in range(5 * SENDERS):
            wanted = {"url": f"{url}{number}", "events": ["run.failed"]}
            hooks.append(client.http.post(f"/projects/{project}/webhooks", wanted)["id"])
            client.http.post(f"/webhooks/{hooks[-1]}/test")
        # Answered by nobody; a sender that gives one up goes on to the next.
        hanging = [receiver.accept()[0] for _ in range(SENDERS)]
        run = client.launch(recipe="smoke")
        deadline = time.monotonic() + LIMIT_S
        while "waiting for Ray" not in client.run(run["id"])["state_reason"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        tries = [
            client.http.get(f"/webhooks/{hook}/deliveries")["items"][0]["tries"] for hook in hooks
        ]
        assert tries.count(1) >= SENDERS and 0 in tries
        for one in hanging:
            one.close()
