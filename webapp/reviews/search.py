"""Search in the text of all trajectories of a project: candidates by the index, then looked at."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.db import connection, transaction
from pydantic import BaseModel, ConfigDict, Field

from engine.records.stored import StoredTrajectory
from webapp.accounts.models import Project
from webapp.paging import decode_cursor, encode_cursor, wrong_cursor
from webapp.problems import RefusedError, invalid_field
from webapp.reviews import finding, grams, reading
from webapp.reviews.models import TextIndex, Trajectory
from webapp.reviews.queries import Text

PAGE = 20
MAX_PAGE = 100
SHOWN = 3  # matches of one trajectory
LOOKED_AT = 2_000_000  # characters of one, as many as are indexed
AT_ONCE = 200  # candidates that are read from the index at a time
SECONDS = 0.2  # after which a page ends early, with a cursor to go on from


class Wanted(BaseModel):
    """What is searched for, and where."""

    model_config = ConfigDict(extra="forbid")

    q: Text = Field(min_length=1, max_length=200)
    run: Text | None = Field(None, max_length=24)
    success: bool | None = None
    purpose: Literal["train", "evaluate", "demonstration"] | None = None


Place = tuple[datetime, str]  # started_at, id


@dataclass(frozen=True)
class Hit:
    row: Trajectory
    matches: list[dict[str, Any]]  # see `finding.matches`; at most SHOWN

    @property
    def places(self) -> list[dict[str, Any]]:
        """The matches, each with the `address` at which the replay shows it."""
        return [match | {"address": _address(self.row.pk, match)} for match in self.matches]

    @property
    def address(self) -> str:
        """Of the first match."""
        return _address(self.row.pk, self.matches[0])


@dataclass(frozen=True)
class Hits:
    items: list[Hit]
    next_cursor: str | None  # None: there are no more
    waiting: int  # trajectories of the project that are not indexed yet
    cut_short: int  # and those of which only the beginning is


def trajectories(
    project: Project, wanted: Wanted, cursor: str | None = None, limit: int = PAGE
) -> Hits:
    """A page of hits, the newest first. It may be short and still have a `next_cursor`: looking at
    candidates ends after SECONDS.

    Raises RefusedError: 422 where the query is too short to search for, 400 for a wrong cursor.
    """
    parts = grams.asked_for(wanted.q)
    if not parts:
        raise invalid_field(
            "q", "Give at least three letters in a row, or one Chinese, Japanese or Korean one."
        )
    limit = max(1, min(limit, MAX_PAGE))
    after = _place(cursor) if cursor else None
    deadline = time.monotonic() + SECONDS
    found: list[Hit] = []
    while True:
        candidates = _candidates(project, wanted, parts, after)
        rows = _rows(candidates)
        last = candidates[-1] if 0 < len(candidates) < AT_ONCE else None
        for after in candidates:
            row = rows.get(after[1])
            if row and (matches := _matches(row, wanted.q)):
                found.append(Hit(row, matches))
            if len(found) == limit or time.monotonic() > deadline:
                return _hits(project, found, None if after == last else after)
        if len(candidates) < AT_ONCE:
            return _hits(project, found, None)


def _address(pk: str, match: dict[str, Any]) -> str:
    """Where the replay shows a match."""
    if match["step"] is None:
        return f"/trajectories/{pk}/"
    span = f"&span={match['start']}-{match['stop']}"
    return f"/trajectories/{pk}/#step={match['step']}&field={match['field']}{span}"


def _candidates(
    project: Project, wanted: Wanted, parts: list[int], after: Place | None
) -> list[Place]:
    """The next AT_ONCE trajectories that have all parts, by (started_at, id) downwards."""
    narrowed = {"run_id": wanted.run, "success": wanted.success, "purpose": wanted.purpose}
    given = {name: value for name, value in narrowed.items() if value is not None}
    where = "".join(f" AND {name} = %s" for name in given)
    values: list[Any] = [parts, project.pk, *given.values()]
    if after:
        where += " AND (started_at, trajectory_id) < (%s, %s)"
        values += after
    with transaction.atomic(), connection.cursor() as sql:
        # The planner does not count that reading `parts` of every row is the dear part.
        sql.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off")
        sql.execute(
            "SELECT started_at, trajectory_id FROM reviews_textindex"
            f" WHERE parts @> %s::int[] AND project_id = %s{where}"
            f" ORDER BY started_at DESC, trajectory_id DESC LIMIT {AT_ONCE}",
            values,
        )
        return list(sql.fetchall())


def _rows(candidates: list[Place]) -> dict[str, Trajectory]:
    rows = Trajectory.objects.filter(pk__in=[pk for _, pk in candidates]).select_related(
        "run", "attempt"
    )
    return {row.pk: row for row in rows}


def _matches(row: Trajectory, query: str) -> list[dict[str, Any]]:
    """Where the text occurs in the part that is indexed; also in what is left of a lost one."""
    try:
        with reading.stored(row) as source:
            return finding.matches(_bounded(source), query, SHOWN)
    except RefusedError:
        return finding.matches(iter([(None, "prompt", row.prompt)]), query, SHOWN)


def _bounded(source: StoredTrajectory) -> Iterator[finding.Text]:
    left = LOOKED_AT
    for step, name, text in finding.texts(source):
        yield step, name, text[:left]
        left -= len(text)
        if left <= 0:
            return


def _hits(project: Project, items: list[Hit], after: Place | None) -> Hits:
    waiting = Trajectory.objects.filter(project=project, is_indexed=False).count()
    cut_short = TextIndex.objects.filter(project=project, is_complete=False).count()
    return Hits(items, encode_cursor(list(after)) if after else None, waiting, cut_short)


def _place(cursor: str) -> Place:
    at, pk = decode_cursor(cursor, 2)
    if not isinstance(at, datetime) or not isinstance(pk, str):
        raise wrong_cursor()
    return at, pk
