"""Runs of somebody's own trainer: Caravan starts and ends no process of theirs, it listens.

The token of an attempt goes to whoever asked for it, so there is no ticket and no submission.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from webapp import live
from webapp.accounts.audit import record
from webapp.accounts.credentials import digest, new_secret
from webapp.accounts.models import Project, User
from webapp.experiments.models import Attempt, Run, State
from webapp.experiments.services.launch import Launch, create_run, find_experiment, run_name
from webapp.experiments.states import ENDED, lock, move, newest_attempt, reopen
from webapp.problems import conflict, invalid_field

MAX_CONFIG = 1_000_000  # characters of JSON


@dataclass(frozen=True)
class Begun:
    """An attempt that runs, and the token with which it reports."""

    run: Run
    attempt: Attempt
    token: str


@transaction.atomic
def begin_external(
    project: Project,
    user: User,
    config: dict[str, Any],
    launch: Launch,
    *,
    steps: int = 0,
    code_version: str = "",
) -> Begun:
    """A run that its own trainer has started. `steps`: how many it will take; 0: it cannot say."""
    if not 1 <= len(launch.experiment.strip() or launch.name.strip()) <= 120:
        raise invalid_field("name", "Name the run or its experiment, in up to 120 characters.")
    experiment = find_experiment(project, launch.experiment or launch.name, user)
    name = run_name(launch, experiment, experiment.name)
    # The shape that pages know from specs: one stage, and the config of the trainer's own.
    spec = {"name": name, "stages": [{"kind": "external", "steps": steps}], "config": config}
    run = create_run(
        experiment,
        user,
        launch,
        name=name,
        tags=launch.tags,
        spec=spec,
        spec_hash=_hash(spec),
        code_version=code_version[:64],
        is_external=True,
        steps=steps,
    )
    record("run.external", run.pk, user=user, project=project, name=name, spec_hash=run.spec_hash)
    return _begin(lock(run.pk), number=1)


@transaction.atomic
def restart_external(run_id: str, user: User) -> Begun:
    """A new attempt of an external run, begun by its trainer; the one before is revoked."""
    run = lock(run_id)
    if not run.is_external:
        raise conflict("Caravan itself starts this run: resume it instead.")
    if run.state == State.SUCCEEDED:
        raise conflict("This run has succeeded: begin a new one.")
    before = newest_attempt(run)
    if run.state not in ENDED:
        move(run, before, State.INTERRUPTED, "its trainer began a new attempt")
    reopen(run)
    record("run.external", run.pk, user=user, project=run.project, attempt=before.number + 1)
    return _begin(run, before.number + 1)


def _begin(run: Run, number: int) -> Begun:
    token = f"cva_{new_secret()}"
    attempt = Attempt.objects.create(
        run=run,
        number=number,
        token_digest=digest("attempt", token),
        submitted_at=timezone.now(),
        heartbeat_at=timezone.now(),
    )
    move(run, attempt, State.STARTING)
    move(run, attempt, State.RUNNING)
    live.announce(run)
    return Begun(run, attempt, token)


def _hash(spec: dict[str, Any]) -> str:
    try:
        text = json.dumps(spec, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise invalid_field("config", "NaN and Infinity are no JSON: write them as text.") from None
    if "\\u0000" in text:
        raise invalid_field("config", "A config holds no NUL characters.")
    if len(text) > MAX_CONFIG:
        message = f"A config has at most {MAX_CONFIG:,} characters of JSON, not {len(text):,}."
        raise invalid_field("config", message)
    return hashlib.sha256(text.encode()).hexdigest()
