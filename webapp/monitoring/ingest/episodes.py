"""Running episodes: what each worker plays now, and the turns of those that can be followed."""

from datetime import UTC, datetime

from engine.records.events import Playing, Turns
from webapp.plain_text import storable_json
from webapp.reviews.models import Episode, EpisodeTurn
from webapp.reviews.models import Playing as StoredPlaying

_TOLD = ("worker", "turns", "tokens", "seq", "told_at", "end", "cursor")


def store_playing(run_id: str, attempt_id: str, items: list[Playing]) -> None:
    """The newest list of each worker takes the place of the one before."""
    newest: dict[str, Playing] = {}
    for item in items:
        if item.source not in newest or item.seq > newest[item.source].seq:
            newest[item.source] = item
    held = StoredPlaying.objects.filter(attempt=attempt_id, worker__in=newest)
    for worker, seq in held.values_list("worker", "seq"):
        if seq >= newest[worker].seq:
            del newest[worker]
    StoredPlaying.objects.bulk_create(
        [
            StoredPlaying(
                run_id=run_id,
                attempt_id=attempt_id,
                worker=storable_json(item.source),
                running=item.running,
                rows=storable_json([row.model_dump() for row in item.rows]),
                seq=item.seq,
                told_at=datetime.fromtimestamp(item.at, UTC),
            )
            for item in newest.values()
        ],
        update_conflicts=True,
        unique_fields=["attempt", "worker"],
        update_fields=["running", "rows", "seq", "told_at"],
    )


def store_turns(run_id: str, attempt_id: str, cursor: int, items: list[Turns]) -> None:
    """Turns are stored once each; of the rest of an episode the newest word counts."""
    newest: dict[str, Turns] = {}
    for item in sorted(items, key=lambda item: item.seq):
        newest[item.episode.trajectory] = item
    rows = {
        name: Episode(
            run_id=run_id,
            attempt_id=attempt_id,
            trajectory_id=name,
            worker=storable_json(item.source),
            task_id=storable_json(item.episode.task),
            category=storable_json(item.episode.category),
            purpose=storable_json(item.episode.purpose),
            prompt=storable_json(item.episode.prompt),
            started_at=datetime.fromtimestamp(item.episode.started_at, UTC),
            turns=item.episode.turns,
            tokens=item.episode.tokens,
            seq=item.seq,
            told_at=datetime.fromtimestamp(item.at, UTC),
            end=storable_json(item.end.model_dump()) if item.end else None,
            cursor=cursor,
        )
        for name, item in newest.items()
    }
    held = {
        one.trajectory_id: one
        for one in Episode.objects.filter(
            run=run_id, attempt=attempt_id, trajectory_id__in=list(rows)
        )
    }
    for name, one in held.items():
        told = rows.pop(name)
        if told.seq > one.seq:
            for field in _TOLD:
                setattr(one, field, getattr(told, field))
    Episode.objects.bulk_update(held.values(), _TOLD)
    held |= {one.trajectory_id: one for one in Episode.objects.bulk_create(rows.values())}
    EpisodeTurn.objects.bulk_create(
        [
            EpisodeTurn(
                episode=held[item.episode.trajectory],
                index=item.first + place,
                data=storable_json(turn.model_dump(exclude_defaults=True)),
                cursor=cursor,
            )
            for item in items
            for place, turn in enumerate(item.turns)
        ],
        ignore_conflicts=True,
    )
