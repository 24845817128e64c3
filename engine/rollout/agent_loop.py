"""The agent loop: many episodes at once, each a policy that talks to an environment in turns."""

import math
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Protocol

from engine.environments.protocol import Environment, Episode, Observation, Task
from engine.records.texts import whole_texts
from engine.records.trajectory import Reward, Segment, Step, StopReason, Trajectory
from engine.rewards.scheme import RewardScheme
from engine.rewards.score import give_reward
from engine.rollout.sampler import SampledTurn, Sampler
from engine.spec import EnvironmentSpec


class TurnTokenizer(Protocol):
    """How the parts of an episode become tokens; each part is encoded once, on its own."""

    def encode_prompt(self, task: Task) -> list[int]: ...

    def encode_observation(self, text: str) -> list[int]: ...

    def decode_turn(self, ids: Sequence[int]) -> str: ...

    def token_bytes(self, ids: Sequence[int]) -> list[bytes]: ...


@dataclass(frozen=True)
class Running:
    """An episode under way, for those who watch; `steps` grows while it goes on."""

    id: str  # of the trajectory that it will be
    task: Task
    purpose: str
    started_at: str  # ISO 8601, UTC
    tokens: int  # sampled in the turns that are over
    steps: Sequence[Step]


@dataclass
class _Episode:
    id: str
    task: Task
    group_id: str
    purpose: str
    process_weight: float | None
    segment: Segment
    started_at: str
    started: float
    acting: Episode | None = None  # once the first turn is there
    steps: list[Step] = field(default_factory=list)
    problem: str = ""


@dataclass(frozen=True)
class _Request:
    task: Task
    group_id: str
    copies: int
    purpose: str
    temperature: float
    process_weight: float | None


class AgentLoop:
    """Episodes wait in order until the sampler has room for all copies of a task, then run.

    Drive it with `step` until `active` is 0, or stop at any time. What an environment raises ends
    that episode alone, as INFRA_ERROR with an invalid reward; so does its limit of time, as
    TIMED_OUT. Every step of a trajectory that is valid has its part of the reward.
    """

    def __init__(
        self,
        sampler: Sampler,
        environment: Environment,
        tokenizer: TurnTokenizer,
        scheme: RewardScheme,
        limits: EnvironmentSpec,
        worker: str = "rollout-0",
    ) -> None:
        self.sampler = sampler
        self._environment = environment
        self._tokenizer = tokenizer
        self._scheme = scheme
        self._limits = limits
        self._worker = worker
        self._queue: deque[_Request] = deque()
        self._running: dict[int, _Episode] = {}  # by sequence

    @property
    def active(self) -> int:
        """Episodes that run or wait."""
        return len(self._running) + sum(request.copies for request in self._queue)

    @property
    def free(self) -> int:
        """Episodes that could start at once, beyond those that wait."""
        return max(0, self.sampler.capacity - self.active)

    def running(self) -> list[Running]:
        """The episodes that run, the longest first."""
        return [
            Running(
                one.id,
                one.task,
                one.purpose,
                one.started_at,
                sum(step.stop - step.start for step in one.steps),
                one.steps,
            )
            for one in self._running.values()
        ]

    def submit(
        self,
        task: Task,
        group_id: str,
        copies: int = 1,
        purpose: str = "train",
        temperature: float = 1.0,
        process_weight: float | None = None,
    ) -> None:
        """Queues `copies` episodes of one task. Raises ValueError where they can never fit.

        process_weight: with which all of them are graded, see `engine.rewards.score`.
        """
        if not 1 <= copies <= self.sampler.capacity:
            raise ValueError(
                f"{copies} copies of a task; the sampler holds 1 to {self.sampler.capacity} at once"
            )
        self._queue.append(_Request(task, group_id, copies, purpose, temperature, process_weight))

    def cancel(self) -> int:
        """Drops all episodes, running and waiting; returns how many."""
        dropped = self.active
        self._queue.clear()
        for sequence in self._running:
            self.sampler.close(sequence)
        self._running.clear()
        return dropped

    def step(self) -> list[Trajectory]:
        """A little progress for all; returns the trajectories that ended, in no order."""
        finished = self._start()
        for turn in self.sampler.step() if self._running else []:
            episode = self._running[turn.sequence]
            reason = self._take(turn, episode)
            if reason is not None:
                del self._running[turn.sequence]
                self.sampler.close(turn.sequence)
                finished.append(self._finish(episode, reason))
        return finished + self._overdue()

    def _overdue(self) -> list[Trajectory]:
        """Ends the episodes that took longer than they may, in the middle of a turn if need be."""
        limit = self._limits.episode_timeout_s
        if limit is None:
            return []
        now = time.monotonic()
        late = [number for number, one in self._running.items() if now - one.started > limit]
        for sequence in late:
            self.sampler.close(sequence)
        return [self._finish(self._running.pop(one), StopReason.TIMED_OUT) for one in late]

    def _start(self) -> list[Trajectory]:
        """Opens sequences for the requests that fit; returns episodes that cannot be played."""
        refused = []
        while self._queue:
            request = self._queue[0]
            if len(self._running) + request.copies > self.sampler.capacity:
                break
            self._queue.popleft()
            ids = self._tokenizer.encode_prompt(request.task)
            episodes = [_begin(request, ids) for _ in range(request.copies)]
            room = self._room(len(ids))
            if room < 1:
                refused += [self._finish(one, StopReason.MAX_TOKENS) for one in episodes]
                continue
            sequences = self.sampler.open(ids, request.copies, room, request.temperature)
            self._running |= zip(sequences, episodes, strict=True)
        return refused

    def _take(self, turn: SampledTurn, episode: _Episode) -> StopReason | None:
        """Records a turn, acts on it and starts the next one, or says why the episode is over."""
        if turn.problem:
            episode.problem = turn.problem
            return StopReason.INFRA_ERROR
        if not all(map(math.isfinite, turn.logprobs)):
            episode.problem = "The sampler gave a log-probability that is not finite."
            return StopReason.INFRA_ERROR
        segment = episode.segment
        start = len(segment.ids)
        _append(segment, turn.ids, True, turn.logprobs, turn.versions)
        step = Step(
            index=len(episode.steps),
            segment=0,
            start=start,
            stop=len(segment.ids),
            text=self._tokenizer.decode_turn(turn.ids),
        )
        episode.steps.append(step)
        if not turn.ended:
            full = len(turn.ids) < self._limits.max_turn_tokens
            return StopReason.MAX_TOKENS if full else StopReason.MAX_TURN_TOKENS
        try:
            seen = self._act(episode, step.text)
        except Exception as error:  # whatever a tool does, the other episodes go on
            episode.problem = f"{type(error).__name__}: {error}"
            return StopReason.INFRA_ERROR
        step.call, step.answer = seen.call, seen.answer
        if seen.stop is not None:
            return seen.stop
        ids = self._tokenizer.encode_observation(seen.text)
        room = self._room(len(segment.ids) + len(ids))
        if room < 1:
            return StopReason.MAX_TOKENS
        _append(segment, ids, False, [0.0] * len(ids), [-1] * len(ids))
        self.sampler.extend(turn.sequence, ids, room)
        return None

    def _act(self, episode: _Episode, text: str) -> Observation:
        if episode.acting is None:
            episode.acting = self._environment.start(episode.task)
        return episode.acting.act(text)

    def _room(self, tokens: int) -> int:
        """Tokens that the next turn may have after a context of `tokens`."""
        return min(self._limits.max_turn_tokens, self._limits.max_tokens - tokens)

    def _finish(self, episode: _Episode, reason: StopReason) -> Trajectory:
        task, segment, steps = episode.task, episode.segment, episode.steps
        segment.texts = self._texts(segment)
        trajectory = Trajectory(
            id=episode.id,
            task_id=task.id,
            group_id=episode.group_id,
            category=task.category,
            prompt=task.prompt,
            answer=task.answer,
            segments=[segment],
            steps=steps,
            stop_reason=reason,
            reward=Reward(None, False),
            success=reason is StopReason.ANSWERED and steps[-1].answer == task.answer,
            worker=self._worker,
            started_at=episode.started_at,
            duration_s=time.monotonic() - episode.started,
            sampled_tokens=sum(segment.loss_mask),
            purpose=episode.purpose,
        )
        give_reward(self._scheme, trajectory, episode.process_weight)
        if episode.problem:
            trajectory.reward.problem = episode.problem
        return trajectory

    def _texts(self, segment: Segment) -> list[str | None]:
        """What each token says; no character joins what two writers wrote."""
        pieces = self._tokenizer.token_bytes(segment.ids)
        texts: list[str | None] = []
        for _, run in groupby(zip(segment.loss_mask, pieces, strict=True), itemgetter(0)):
            texts += whole_texts(piece for _, piece in run)
        return texts


def _begin(request: _Request, ids: list[int]) -> _Episode:
    size = len(ids)
    return _Episode(
        id=uuid.uuid4().hex,
        task=request.task,
        group_id=request.group_id,
        purpose=request.purpose,
        process_weight=request.process_weight,
        segment=Segment(list(ids), [False] * size, [0.0] * size, [-1] * size),
        started_at=datetime.now(UTC).isoformat(),
        started=time.monotonic(),
    )


def _append(
    segment: Segment, ids: list[int], sampled: bool, logprobs: list[float], versions: list[int]
) -> None:
    segment.ids += ids
    segment.loss_mask += [sampled] * len(ids)
    segment.logprobs += logprobs
    segment.versions += versions
