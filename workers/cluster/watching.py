"""What a rollout worker tells of its running episodes: a list of them, and the turns of a few.

Episodes whose turns are told are taken up as they start, a few at a time and no more than one in a
while; the others are counted. Telling never waits for anything but a line on the disk.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from engine.records.events import (
    MAX_PLAYING,
    MAX_PUBLISHED_CHARS,
    MAX_PUBLISHED_TURNS,
    EpisodeEnd,
    Playing,
    PublishedTurn,
    RunningEpisode,
    Turns,
)
from engine.records.trajectory import Step, Trajectory
from engine.telemetry.spool import Spool

if TYPE_CHECKING:
    from engine.rollout.agent_loop import Running

LIST_EVERY_S = 3.0
TURNS_EVERY_S = 1.0
TAKE_UP_EVERY_S = 5.0
_TURNS_AT_ONCE = 4 * MAX_PUBLISHED_TURNS  # of an episode; earlier ones are skipped, which shows


@dataclass
class _Followed:
    about: RunningEpisode
    told: int = 0  # turns


class EpisodePublisher:
    """Not for several threads. Call `look` after every step of the loop, and `ended` for each
    trajectory that came of it before that; both are cheap where nothing is due."""

    def __init__(
        self, spool: Spool, follow: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        """follow: episodes whose turns are told at a time; 0: nothing is told."""
        self._spool, self._follow, self._now = spool, follow, now
        self._followed: dict[str, _Followed] = {}
        self._list_at = self._turns_at = self._take_up_at = now()
        self._told_any = False

    def look(self, running: Callable[[], "Sequence[Running]"]) -> None:
        """Tell what is due. running: the episodes under way, asked for only then."""
        now = self._now()
        takes_up = len(self._followed) < self._follow and now >= self._take_up_at
        if not self._follow or not (takes_up or now >= min(self._list_at, self._turns_at)):
            return
        found = running()
        if takes_up:
            self._take_up(found, now)
        if now >= self._turns_at:
            self._turns_at = now + TURNS_EVERY_S
            self._tell_turns(found)
        if now >= self._list_at and (found or self._told_any):
            self._list_at = now + LIST_EVERY_S
            self._tell_list(found)

    def ended(self, trajectory: Trajectory) -> None:
        """An episode is over: its last turns, and how it ended."""
        followed = self._followed.pop(trajectory.id, None)
        if followed is None:
            return
        reward = trajectory.reward.value if trajectory.reward.valid else None
        end = EpisodeEnd(
            reason=trajectory.stop_reason.value, reward=reward, success=trajectory.success
        )
        self._tell(followed, trajectory.steps, trajectory.sampled_tokens, end)

    def _take_up(self, found: "Sequence[Running]", now: float) -> None:
        """Follow the episode that began last, from its first turn on."""
        fresh = [one for one in found if one.id not in self._followed]
        if fresh:
            chosen = min(reversed(fresh), key=lambda one: len(one.steps))
            self._followed[chosen.id] = _Followed(_about(chosen, followed=True))
            self._take_up_at = now + TAKE_UP_EVERY_S

    def _tell_turns(self, found: "Sequence[Running]") -> None:
        there = {one.id: one for one in found}
        for name, followed in list(self._followed.items()):
            if (one := there.get(name)) is None:  # its stage was left: it was never finished
                del self._followed[name]
                self._tell(followed, (), followed.about.tokens, EpisodeEnd(reason="dropped"))
            elif len(one.steps) > followed.told or not followed.told:
                self._tell(followed, one.steps, one.tokens, None)

    def _tell(
        self, followed: _Followed, steps: Sequence[Step], tokens: int, end: EpisodeEnd | None
    ) -> None:
        turns = max(len(steps), followed.told)
        followed.about = followed.about.model_copy(update={"turns": turns, "tokens": tokens})
        first = max(followed.told, len(steps) - _TURNS_AT_ONCE)
        followed.told = turns
        while True:
            part = [_published(step) for step in steps[first : first + MAX_PUBLISHED_TURNS]]
            last = first + MAX_PUBLISHED_TURNS >= len(steps)
            self._spool.add(
                Turns, episode=followed.about, first=first, turns=part, end=end if last else None
            )
            first += MAX_PUBLISHED_TURNS
            if last:
                return

    def _tell_list(self, found: "Sequence[Running]") -> None:
        ordered = sorted(found, key=lambda one: one.id not in self._followed)
        rows = [_about(one, one.id in self._followed) for one in ordered[:MAX_PLAYING]]
        self._told_any = bool(found)
        self._spool.add(Playing, running=len(found), rows=rows)


def _about(one: "Running", followed: bool) -> RunningEpisode:
    return RunningEpisode(
        trajectory=one.id,
        task=one.task.id[:80],
        category=one.task.category[:40],
        purpose=one.purpose[:14],
        prompt=one.task.prompt[:500],
        started_at=datetime.fromisoformat(one.started_at).timestamp(),
        turns=len(one.steps),
        tokens=one.tokens,
        followed=followed,
    )


def _published(step: Step) -> PublishedTurn:
    call = step.call
    fields: dict[str, Any] = {"text": step.text, "answer": step.answer}
    if call is not None:
        fields["result"] = call.result
        if call.arguments is not None:
            fields["arguments"] = json.dumps(call.arguments, ensure_ascii=False)
    long = {
        name: len(text) for name, text in fields.items() if text and len(text) > MAX_PUBLISHED_CHARS
    }
    cut = {name: text[:MAX_PUBLISHED_CHARS] if text else text for name, text in fields.items()}
    if call is None:
        return PublishedTurn(**cut, more=long)
    error = call.error and call.error[:200]
    return PublishedTurn(
        **cut, tool=call.name[:200], error=error, duration_s=call.duration_s, more=long
    )
