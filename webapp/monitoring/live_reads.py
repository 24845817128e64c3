"""What each live topic has to say after a cursor: plain dictionaries, read from the database.

The last message of an update carries the new cursor, those before it the old one: who loses the
connection between them asks again from the old cursor and misses nothing.
"""

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from webapp.experiments.models import ACTIVE_STATES, Run
from webapp.monitoring import queries
from webapp.monitoring.models import DeviceSample, RunEvent
from webapp.reviews import episodes
from webapp.reviews.models import Trajectory

MAX_ROWS = 200  # log lines, decisions or trajectories in one update; older ones are fetched
RECENT_S = 600


@dataclass(frozen=True)
class Update:
    """`messages` without their topic; `cursor` is where they lead to."""

    cursor: int
    messages: list[dict[str, Any]]


def read(topic: str, after: int) -> Update:
    """The news of a topic after a cursor. Whether the reader may see it is decided before."""
    kind, _, pk = topic.partition(".")
    if kind == "run":
        return read_run(pk, after)
    if kind == "project":
        return read_project(pk)
    if kind == "episodes":
        return read_episodes(pk, after)
    if kind == "episode":
        run_id, _, trajectory = pk.partition(".")
        return read_episode(run_id, trajectory, after)
    return read_cluster(after)


def run_state(run: Run) -> dict[str, Any]:
    """What headers and lists show of a run."""
    return {
        "id": run.pk,
        "name": run.name,
        "experiment": run.experiment_id,
        "state": run.state,
        "state_reason": run.state_reason,
        "wish": run.wish,
        "pause_rollouts": run.pause_rollouts,
        "pause_training": run.pause_training,
        "phase": run.phase,
        "stage": run.stage,
        "step": run.step,
        "steps": run.steps,
        "headline": run.headline,
        "created_at": run.created_at.isoformat(),
        "started_at": run.started_at and run.started_at.isoformat(),
        "ended_at": run.ended_at and run.ended_at.isoformat(),
    }


def read_run(run_id: str, after: int) -> Update:
    run = Run.objects.filter(pk=run_id).first()
    if run is None:  # deleted: who follows it is told so when permissions are looked at again
        return Update(after, [])
    cursor = run.cursor
    state = {"kind": "state", "cursor": after, "run": run_state(run)}
    if after >= cursor:
        return Update(after, [state])
    messages = [*_events(run, after, cursor), *_trajectories(run, after, cursor), state]
    points = queries.points_after(run, after, limit=queries.LIVE_POINTS)
    if points.more:
        messages.append({"kind": "fetch", "cursor": cursor})
        return Update(cursor, messages)
    last: dict[str, Any] = {"kind": "cursor", "cursor": points.cursor}
    if points.series:
        last = {"kind": "series", "cursor": points.cursor, "series": points.series}
    return Update(points.cursor, [*messages, last])


def _events(run: Run, after: int, upto: int) -> list[dict[str, Any]]:
    """Decisions, logs, spans and clocks since then; of pool and tree only the newest snapshot."""
    kinds = ["decision", "log", "spans", "clock", "pool", "tree"]
    found = queries.events_after(run, kinds, after, upto)
    by_kind: dict[str, list[RunEvent]] = {}
    for event in found.order_by("-cursor", "-pk")[: 4 * MAX_ROWS]:
        by_kind.setdefault(event.kind, []).append(event)
    messages: list[dict[str, Any]] = []
    for kind in ("decision", "log", "spans", "clock"):
        if events := by_kind.get(kind, []):
            rows = [queries.event_row(event) for event in reversed(events[:MAX_ROWS])]
            more = len(events) > MAX_ROWS
            messages.append({"kind": kind, "cursor": after, "rows": rows, "more": more})
    for kind in ("pool", "tree"):
        if snapshots := by_kind.get(kind):
            newest = max(snapshots, key=lambda event: (event.at, event.pk))
            messages.append({"kind": kind, "cursor": after, kind: queries.event_row(newest)})
    return messages


def _trajectories(run: Run, after: int, upto: int) -> list[dict[str, Any]]:
    found = Trajectory.objects.filter(run=run, cursor__gt=after, cursor__lte=upto)
    rows = list(
        found.order_by("-cursor", "-id").values(
            "id", "category", "purpose", "reward", "success", "steps", "stop_reason"
        )[:MAX_ROWS]
    )
    if not rows:
        return []
    more = len(rows) == MAX_ROWS
    return [{"kind": "trajectories", "cursor": after, "rows": rows, "more": more}]


def read_project(project_id: str) -> Update:
    """The states of a project's active and lately ended runs. Its cursor is a clock."""
    recent = timezone.now() - timedelta(seconds=RECENT_S)
    runs = Run.objects.filter(
        Q(state__in=ACTIVE_STATES) | Q(ended_at__gt=recent), project_id=project_id
    )
    cursor = int(time.time() * 1000)
    states = [run_state(run) for run in runs.order_by("-created_at")[:MAX_ROWS]]
    return Update(cursor, [{"kind": "state", "cursor": cursor, "runs": states}])


def read_episodes(run_id: str, after: int) -> Update:
    """What the workers of a run play now."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        return Update(after, [])
    message = {"kind": "episodes", "cursor": run.cursor, "workers": episodes.playing(run)}
    return Update(run.cursor, [message])


def read_episode(run_id: str, trajectory: str, after: int) -> Update:
    """One running episode: its turns since then, and where it stands."""
    run = Run.objects.filter(pk=run_id).first()
    episode = None if run is None else episodes.find(run, trajectory)
    if run is None or episode is None:
        return Update(after, [])
    rows = episodes.turns(episode, after, run.cursor) if after < run.cursor else []
    messages: list[dict[str, Any]] = []
    if rows:
        messages.append({"kind": "turns", "cursor": after, "rows": rows})
    state = episodes.state(run, episode)
    return Update(
        run.cursor, [*messages, {"kind": "episode", "cursor": run.cursor, "episode": state}]
    )


def read_cluster(after: int) -> Update:
    """The newest sample of each node."""
    cursor = DeviceSample.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    if cursor <= after:
        return Update(after, [])
    nodes = [
        {"node": sample.node, "at": sample.at, "devices": sample.devices}
        for sample in queries.newest_devices()
    ]
    return Update(cursor, [{"kind": "devices", "cursor": cursor, "nodes": nodes}])
