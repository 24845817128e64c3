"""Makes the text of stored trajectories findable, a batch at a time; whoever comes late goes on."""

import time
from collections.abc import Iterator

from django.db import connection, transaction

from webapp.problems import RefusedError
from webapp.reviews import finding, grams, reading
from webapp.reviews.models import TextIndex, Trajectory

INDEXED_CHARS = 2_000_000  # of a trajectory, from its beginning
MAX_PARTS = 50_000
BATCH = 50
_LOCK = 4_801_311  # names the right to index


def index_texts(seconds: float) -> int:
    """Index what is not indexed yet, the newest first, for about so long; how many were done.

    Only one process does so at a time; another one that is asked returns 0 at once.
    """
    deadline = time.monotonic() + seconds
    done = 0
    while time.monotonic() < deadline:
        count = _index_batch(deadline)
        done += count
        if count < BATCH:
            break
    return done


@transaction.atomic
def _index_batch(deadline: float) -> int:
    with connection.cursor() as sql:
        sql.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        if not sql.fetchone()[0]:
            return 0
    waiting = Trajectory.objects.filter(is_indexed=False).order_by("-started_at")[:BATCH]
    rows: list[TextIndex] = []
    for row in waiting:  # at least one: what takes longer than the time given must get done, too
        rows.append(_index_row(row))
        if time.monotonic() > deadline:
            break
    TextIndex.objects.bulk_create(rows, ignore_conflicts=True)
    Trajectory.objects.filter(pk__in=[row.pk for row in rows]).update(is_indexed=True)
    return len(rows)


def _index_row(row: Trajectory) -> TextIndex:
    try:
        with reading.stored(row) as source:
            parts, is_complete = _parts(finding.texts(source))
    except RefusedError:  # of what is gone or damaged the list keeps the beginning of the prompt
        parts, is_complete = grams.parts_of(row.prompt), False
    return TextIndex(
        trajectory=row,
        project_id=row.project_id,
        run_id=row.run_id,
        success=row.success,
        purpose=row.purpose,
        started_at=row.started_at,
        parts=sorted(grams.hashes(parts)),
        is_complete=is_complete,
    )


def _parts(texts: Iterator[finding.Text]) -> tuple[set[str], bool]:
    """The parts of all texts, and whether these are all; at least the first text's are."""
    found: set[str] = set()
    left = INDEXED_CHARS
    for _, _, text in texts:
        if left <= 0 or len(found) > MAX_PARTS:
            return found, False
        found |= grams.parts_of(text[:left])
        left -= len(text)
    return found, left >= 0
