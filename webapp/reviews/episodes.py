"""Running episodes as people see them: who plays what now, and one of them turn by turn."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from webapp.experiments.models import Attempt, Run
from webapp.reviews.models import Episode, EpisodeTurn, Playing, Trajectory

SILENT = timedelta(seconds=30)  # a worker tells every few seconds
MAX_TURNS = 500


def playing(run: Run) -> list[dict[str, Any]]:
    """What each worker of the run's newest attempt plays; nothing once that has ended.

    `silent`: it has not been heard of for a while, so that the list may be out of date.
    """
    attempt = _live_attempt(run)
    if attempt is None:
        return []
    now = timezone.now()
    return [
        {
            "worker": one.worker,
            "running": one.running,
            "told_at": one.told_at.timestamp(),
            "silent": now - one.told_at > SILENT,
            "episodes": one.rows,
        }
        for one in Playing.objects.filter(attempt=attempt).order_by("worker")
        if one.running
    ]


def find(run: Run, trajectory_id: str) -> Episode | None:
    if "\0" in trajectory_id:  # PostgreSQL refuses to look
        return None
    found = Episode.objects.filter(run=run, trajectory_id=trajectory_id)
    return found.select_related("attempt").order_by("-attempt__number").first()


def state(run: Run, episode: Episode) -> dict[str, Any]:
    """Where an episode stands; `end` {"reason": "cut_off"} where its attempt ended before it."""
    end = episode.end
    if end is None and _live_attempt(run) != episode.attempt:
        end = {"reason": "cut_off", "reward": None, "success": None}
    return {
        "trajectory": episode.trajectory_id,
        "attempt": episode.attempt.number,
        "worker": episode.worker,
        "task": episode.task_id,
        "category": episode.category,
        "purpose": episode.purpose,
        "prompt": episode.prompt,
        "started_at": episode.started_at.timestamp(),
        "told_at": episode.told_at.timestamp(),
        "turns": episode.turns,
        "tokens": episode.tokens,
        "end": end,
        "stored": Trajectory.objects.filter(pk=episode.trajectory_id, run=run).exists(),
    }


def detail(run: Run, episode: Episode) -> dict[str, Any]:
    """An episode as its page begins: from `cursor` on, the live topic has the rest."""
    return {
        "cursor": run.cursor,
        "episode": state(run, episode),
        "turns": turns(episode, upto=run.cursor),
    }


def turns(episode: Episode, after: int = 0, upto: int | None = None) -> list[dict[str, Any]]:
    """Turns that were stored after a cursor, in order: {index, ...PublishedTurn}."""
    found = EpisodeTurn.objects.filter(episode=episode, cursor__gt=after)
    if upto is not None:
        found = found.filter(cursor__lte=upto)
    newest = found.order_by("-index").values_list("index", "data")[:MAX_TURNS]
    return [{"index": index, **data} for index, data in reversed(newest)]


def _live_attempt(run: Run) -> Attempt | None:
    """The newest attempt, while it is alive."""
    if run.ended_at is not None:
        return None
    newest = run.attempts.order_by("-number").first()
    return newest if newest is not None and newest.ended_at is None else None
