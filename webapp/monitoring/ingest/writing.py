"""What every batch reads and writes besides its events, in as few round trips as possible.

A batch of points is stored in milliseconds; each statement that is waited for costs another one on
a busy machine, so that what does not depend on an answer is sent without waiting.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from webapp.accounts.credentials import digest
from webapp.monitoring.bulk import bulk_cursor, numbers
from webapp.monitoring.ingest.numbers_seen import Seen
from webapp.monitoring.ingest.points import StoredPoints
from webapp.problems import RefusedError, conflict

_LOCK_RUN = """
    SELECT id, project_id, cursor FROM experiments_run
    WHERE id = (SELECT run_id FROM experiments_attempt WHERE token_digest = %s)
    FOR NO KEY UPDATE
"""
# A statement of its own, so that it sees what the run's lock was waited for: who held it before may
# have ended the attempt.
_READ_ATTEMPT = """
    SELECT attempt.id, attempt.number, attempt.state, attempt.revoked_at IS NOT NULL,
        held.series, writer.source, writer.seen, writer.beyond
    FROM experiments_attempt AS attempt
    CROSS JOIN LATERAL (
        SELECT count(*) AS series FROM monitoring_series WHERE attempt_id = attempt.id
    ) AS held
    LEFT JOIN monitoring_writer AS writer
        ON writer.attempt_id = attempt.id AND writer.source = ANY(%s)
    WHERE attempt.token_digest = %s
"""
_KEEP_WRITERS = """
    INSERT INTO monitoring_writer (attempt_id, source, seen, beyond)
    SELECT %s, given.source, given.seen, given.beyond::jsonb
    FROM unnest(%s::text[], %s::bigint[], %s::text[]) AS given (source, seen, beyond)
    ON CONFLICT (attempt_id, source) DO UPDATE SET seen = excluded.seen, beyond = excluded.beyond
"""
_KEEP_RUN = """
    UPDATE experiments_run
    SET cursor = %s, headline = headline || %s::jsonb, has_stale_series = has_stale_series OR %s
    WHERE id = %s
"""


@dataclass
class Writing:
    """A locked run, the attempt that writes, and what is stored of its sources."""

    run_id: str
    project_id: str
    cursor: int  # of this transaction
    attempt_id: str
    series: int  # that the attempt has
    seen: dict[str, Seen] = field(default_factory=dict)


def lock(token: str, sources: Iterable[str]) -> Writing:
    """Lock the run of an attempt's token until the transaction ends.

    Raises RefusedError: 401 for an unknown token, 409 for a revoked one.
    """
    given = digest("attempt", token)
    names = sorted(set(sources))
    run, attempt = bulk_cursor(), bulk_cursor()
    with connection.connection.pipeline():
        run.execute(_LOCK_RUN, [given])
        attempt.execute(_READ_ATTEMPT, [names, given])
        locked, rows = run.fetchone(), attempt.fetchall()
    if locked is None or not rows:
        raise RefusedError("This token is unknown.", status=401)
    attempt_id, number, state, is_revoked, series = rows[0][:5]
    if is_revoked:
        raise conflict(f"Attempt {number} of this run is {state}; its token was revoked.")
    run_id, project_id, cursor = locked
    known = {source: Seen(upto, json.loads(beyond)) for *_, source, upto, beyond in rows if source}
    seen = {name: known.get(name) or Seen() for name in names}
    return Writing(run_id, project_id, cursor + 1, attempt_id, series, seen)


def keep(writing: Writing, points: StoredPoints) -> None:
    """Remember which numbers were seen, the run's cursor and what its newest points say."""
    if writing.seen:
        bulk_cursor().execute(
            _KEEP_WRITERS,
            [
                writing.attempt_id,
                list(writing.seen),
                numbers(seen.upto for seen in writing.seen.values()),
                [json.dumps(seen.ranges) for seen in writing.seen.values()],
            ],
        )
    values: list[Any] = [
        writing.cursor,
        json.dumps(points.headline),
        points.count > 0,
        writing.run_id,
    ]
    bulk_cursor().execute(_KEEP_RUN, values)
