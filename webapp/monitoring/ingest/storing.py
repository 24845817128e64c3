"""One batch, one transaction: under the run's row lock, with the run's next cursor."""

from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from engine.records.events import (
    CheckpointSaved,
    Devices,
    Gap,
    Metrics,
    Playing,
    StageChange,
    TrainedRows,
    TrajectoryRows,
    TrialRows,
    Turns,
)
from webapp.accounts.credentials import digest
from webapp.experiments.models import Attempt, Run
from webapp.monitoring.bulk import bulk_cursor
from webapp.monitoring.ingest import rows, writing
from webapp.monitoring.ingest.cardinality import refuse_too_many
from webapp.monitoring.ingest.episodes import store_playing, store_turns
from webapp.monitoring.ingest.parsing import Batch, Rejected
from webapp.monitoring.ingest.points import store_points
from webapp.monitoring.ingest.trained import store_trained
from webapp.monitoring.ingest.trials import store_trials
from webapp.monitoring.ingest.writing import Writing
from webapp.monitoring.models import Gap as StoredGap
from webapp.problems import RefusedError, conflict

# Kinds with tables of their own; of these, only stages stand among a run's events too.
_ROWS = (StageChange, CheckpointSaved, Gap, TrajectoryRows, TrainedRows, Playing, Turns, TrialRows)


@dataclass(frozen=True)
class Outcome:
    run_id: str
    project_id: str
    accepted: int
    duplicates: int
    rejected: list[Rejected]


def locked_by_token(token: str) -> tuple[Run, Attempt]:
    """The run, locked, and the attempt whose token this is.

    Raises RefusedError: 401 for an unknown token, 409 for a revoked one.
    """
    token_digest = digest("attempt", token)
    run = (
        Run.objects.select_for_update(no_key=True)
        .filter(pk__in=Attempt.objects.filter(token_digest=token_digest).values("run_id")[:1])
        .first()
    )
    if run is None:
        raise RefusedError("This token is unknown.", status=401)
    # Read after the lock: who held it before may have ended the attempt.
    attempt = Attempt.objects.get(token_digest=token_digest)
    if attempt.revoked_at is not None:
        raise conflict(
            f"Attempt {attempt.number} of this run is {attempt.state}; its token was revoked."
        )
    return run, attempt


def check_token(token: str) -> Attempt:
    """The attempt of a token. Raises RefusedError like `locked_by_token`, and locks nothing."""
    attempt = Attempt.objects.filter(token_digest=digest("attempt", token)).first()
    if attempt is None:
        raise RefusedError("This token is unknown.", status=401)
    if attempt.revoked_at is not None:
        raise conflict(f"Attempt {attempt.number} of this run is {attempt.state}.")
    return attempt


@transaction.atomic
def store(token: str, batch: Batch) -> Outcome:
    """Store what is new in a batch. Raises RefusedError (401, 409); then nothing is stored."""
    numbers = _numbers(batch)
    target = writing.lock(token, numbers)
    run_id, attempt_id, cursor = target.run_id, target.attempt_id, target.cursor
    duplicates = _drop_known(target, numbers, batch)
    kinds = _by_kind(run_id, batch)
    kinds["metrics"] = refuse_too_many(target, kinds["metrics"], batch)
    with connection.connection.pipeline():
        sql = bulk_cursor()
        points = store_points(
            sql, run_id, attempt_id, cursor, [item for _, item in kinds["metrics"]]
        )
        rows.store_events(bulk_cursor(), run_id, attempt_id, cursor, kinds["events"])
        writing.keep(target, points)
    for _, item in kinds["stage"]:
        rows.store_stage(attempt_id, item)
    for _, item in kinds["checkpoint"]:
        rows.store_checkpoint(run_id, attempt_id, item)
    if kinds["gap"]:
        StoredGap.objects.bulk_create(
            [rows.gap_row(run_id, attempt_id, item) for _, item in kinds["gap"]]
        )
    if kinds["trajectories"]:
        rows.store_trajectories(
            run_id, target.project_id, attempt_id, cursor, kinds["trajectories"], batch
        )
    if kinds["trained"]:
        store_trained(run_id, attempt_id, kinds["trained"], batch)
    if kinds["trials"]:
        store_trials(attempt_id, [item for _, item in kinds["trials"]])
    if kinds["playing"]:
        store_playing(run_id, attempt_id, [item for _, item in kinds["playing"]])
    if kinds["turns"]:
        store_turns(run_id, attempt_id, cursor, [item for _, item in kinds["turns"]])
    batch.rejected.sort(key=lambda item: item.index)
    refused = {item.index for item in batch.rejected}
    accepted = sum(index not in refused for index, _ in batch.events)
    return Outcome(run_id, target.project_id, accepted, duplicates, batch.rejected)


def _by_kind(run_id: str, batch: Batch) -> dict[str, list[Any]]:
    """Events by how they are stored; what cannot be stored is rejected here."""
    kinds: dict[str, list[Any]] = {"metrics": [], "events": []}
    kinds |= {kind.model_fields["kind"].default: [] for kind in _ROWS}
    for index, item in batch.events:
        if isinstance(item, Metrics):
            kinds["metrics"].append((index, item))
            continue
        problem = rows.problem_of(run_id, item)
        if isinstance(item, Devices):
            problem = "kind", "Devices are reported by the device sampler."
        if problem is not None:
            batch.reject(index, item, *problem)
            continue
        if isinstance(item, _ROWS):
            kinds[item.kind].append((index, item))
        try:
            if not isinstance(item, _ROWS) or isinstance(item, StageChange):
                kinds["events"].append((item, rows.as_json(item)))
        except ValueError as error:
            batch.reject(index, item, "", str(error))
    return kinds


def _numbers(batch: Batch) -> dict[str, list[int]]:
    """The sequence numbers of all items that name them, by source."""
    given: dict[str, list[int]] = {}
    for _, event in batch.events:
        given.setdefault(event.source, []).append(event.seq)
    for source, seq in batch.numbers:
        given.setdefault(source, []).append(seq)
    return given


def _drop_known(target: Writing, numbers: dict[str, list[int]], batch: Batch) -> int:
    """Leave only events that are not stored yet, and mark the numbers of all that came as seen."""
    known = {source: target.seen[source].known(given) for source, given in numbers.items()}
    kept = []
    for pair in batch.events:
        event = pair[1]
        stored = known[event.source]
        if event.seq not in stored:
            stored.add(event.seq)
            kept.append(pair)
    duplicates = len(batch.events) - len(kept)
    batch.events = kept
    for source, given in sorted(numbers.items()):
        for start, stop in target.seen[source].add(given):
            StoredGap.objects.create(
                run_id=target.run_id,
                attempt_id=target.attempt_id,
                what=f"numbers {start} to {stop} of {source} never came"[:200],
                items=stop - start + 1,
                since=0,
                at=0,
            )
    return duplicates
