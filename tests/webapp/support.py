"""What the tests of the web tier make: people, launches, drivers, calls, batches of events."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from django.test import Client

from webapp.accounts import services as accounts
from webapp.accounts.models import Membership, Project, Role, User
from webapp.experiments import services
from webapp.experiments.models import Attempt, Run

SPEC: dict[str, Any] = {
    "name": "try",
    "stages": [
        {"kind": "synthesise"},
        {"kind": "sft", "steps": 100},
        {"kind": "rl", "steps": 20},
    ],
}


def person(name: str, project: Project | None = None, role: Role | None = None) -> User:
    email = f"{name}@example.com"
    user = User.objects.create(username=email, email=email, display_name=name.title())
    if project is not None and role is not None:
        Membership.objects.create(project=project, user=user, role=role)
    return user


class Api:
    """Calls the REST API with a token, as programs do."""

    def __init__(self, user: User | None, **token: Any) -> None:
        self.token = accounts.create_token(user, "test", **token)[1] if user else ""
        self.client = Client()

    def __call__(self, method: str, path: str, data: Any = None, **headers: str) -> Any:
        if self.token:
            headers = {"Authorization": f"Bearer {self.token}", **headers}
        return self.client.generic(
            method,
            f"/api/v1/{path}",
            data="" if data is None else json.dumps(data),
            content_type="application/json",
            headers=headers,
        )


@dataclass
class Driver:
    """A run's driver as ingest knows it."""

    run: Run
    attempt: Attempt
    token: str


def start(run: Run) -> Driver:
    """Claim and redeem the newest attempt: the run is running afterwards."""
    attempt = run.attempts.order_by("-number")[0]
    claim = services.claim(attempt.pk)
    assert claim is not None
    redeemed = services.redeem(attempt.pk, claim.ticket)
    return Driver(redeemed.run, redeemed.attempt, redeemed.token)


def ingest(method: str, path: str, token: str = "", data: Any = None, **headers: str) -> Any:
    """Call the ingest API; the test's URLconf must be that of ingest."""
    body = data if isinstance(data, bytes) else json.dumps(data if data is not None else {})
    if token:
        headers = {"Authorization": f"Bearer {token}", **headers}
    return Client().generic(
        method, f"/ingest/v1/{path}", data=body, content_type="application/json", headers=headers
    )


def metrics(
    seq: int, step: int, source: str = "trainer", at: float | None = None, **values: Any
) -> Any:
    """A metrics item; `a__b` in a name stands for `a/b`."""
    return {
        "kind": "metrics",
        "source": source,
        "seq": seq,
        "at": 1.7e9 + seq if at is None else at,
        "step": step,
        "values": {name.replace("__", "/"): value for name, value in values.items()},
    }


def downloaded(response: Any) -> bytes:
    """The whole body of a streamed answer."""

    async def collected() -> bytes:
        return b"".join([piece async for piece in response.streaming_content])

    return asyncio.run(collected())
