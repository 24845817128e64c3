"""Many stored trajectories, one after the other: a shard is read in pieces, never whole."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import QuerySet

from engine.records import trajectory as records
from engine.records.frames import DamagedShardError
from engine.records.stored import StoredTrajectory
from webapp import storage
from webapp.reviews.models import Trajectory

PIECE = 8 * 2**20  # bytes read at once, at least; a longer trajectory is read alone
NEAR = 2**18  # bytes between two trajectories that are rather read than skipped
GONE = "its shard is no longer in storage"
DAMAGED = "its part of the shard is damaged"


@dataclass(frozen=True)
class Place:
    """Where a trajectory lies, and of which run it is."""

    id: str
    run_id: str
    shard: str
    offset: int
    length: int


@dataclass(frozen=True)
class Read:
    """A trajectory without its tokens; or why there is none."""

    place: Place
    trajectory: records.Trajectory | None
    problem: str = ""


def read_many(rows: QuerySet[Trajectory]) -> Iterator[Read]:
    """The trajectories of these index rows in the order of the shards, texts whole."""
    names = ("id", "run_id", "shard", "offset", "length")
    found = rows.order_by("shard", "offset").values_list(*names)
    piece: list[Place] = []
    for row in found.iterator(chunk_size=2000):
        place = Place(*row)
        if piece and not _joins(piece, place):
            yield from _read(piece)
            piece = []
        piece.append(place)
    if piece:
        yield from _read(piece)


def _joins(piece: list[Place], place: Place) -> bool:
    first, last = piece[0], piece[-1]
    end = last.offset + last.length
    return (
        place.shard == last.shard
        and place.offset - end <= NEAR
        and place.offset + place.length - first.offset <= PIECE
    )


def _read(piece: list[Place]) -> Iterator[Read]:
    start = piece[0].offset
    try:
        data = storage.read_blob(piece[0].shard, start, piece[-1].offset + piece[-1].length - start)
    except FileNotFoundError:
        yield from (Read(place, None, GONE) for place in piece)
        return
    for place in piece:
        begin = place.offset - start
        part = memoryview(data)[begin : begin + place.length]
        try:
            source = StoredTrajectory(lambda at, n, part=part: bytes(part[at : at + n]), len(part))  # type: ignore[misc]
            yield Read(place, source.whole(with_tokens=False))
        except DamagedShardError:
            yield Read(place, None, DAMAGED)
