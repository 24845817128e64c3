"""From the turns of an episode to a trajectory as Caravan stores it."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from engine.records.trajectory import Reward, Segment, Step, StopReason, ToolCall, Trajectory


@dataclass
class Turn:
    """One turn of the policy, and what its tool call came back with.

    `ids` and `logprobs` are what the policy sampled in this turn, one log-probability for each
    token; `result_ids` are the tokens of the result as the model read them.
    """

    text: str
    tool: str = ""  # empty: no call
    arguments: Mapping[str, Any] | None = None
    result: str = ""
    error: str | None = None
    duration_s: float = 0.0
    answer: str | None = None
    reward: float | None = None
    ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    result_ids: Sequence[int] = ()


@dataclass
class Episode:
    """What is known of an episode besides its turns. `reward` None: it could not be judged."""

    reward: float | None
    success: bool
    terms: Mapping[str, float | None] = field(default_factory=dict)
    answer: str = ""  # the right one
    task: str = ""
    group: str = ""  # joins the episodes of one prompt
    category: str = ""
    purpose: str = "train"  # train | evaluate | demonstration
    stop_reason: str = "answered"
    duration_s: float | None = None
    prompt_ids: Sequence[int] = ()
    version: int = 0  # of the policy that sampled it


def make_trajectory(
    prompt: str, turns: Sequence[Turn], episode: Episode, worker: str
) -> Trajectory:
    """A trajectory with a new id. Raises ValueError where turns or stop reason make no sense."""
    segment = Segment([], [], [], [])
    _append(segment, episode.prompt_ids)
    steps = []
    for index, turn in enumerate(turns):
        if len(turn.logprobs) not in (0, len(turn.ids)):
            raise ValueError(
                f"turn {index} has {len(turn.ids)} tokens and {len(turn.logprobs)} "
                "log-probabilities: one each, or none"
            )
        start = len(segment.ids)
        logprobs = turn.logprobs or [0.0] * len(turn.ids)
        _append(segment, turn.ids, logprobs, episode.version)
        steps.append(_step(index, turn, start, len(segment.ids)))
        _append(segment, turn.result_ids)
    name = f"tra_{secrets.token_hex(10)}"
    sampled = sum(len(turn.ids) for turn in turns)
    spent = sum(turn.duration_s for turn in turns)
    return Trajectory(
        id=name,
        task_id=episode.task or name,
        group_id=episode.group or name,
        category=episode.category,
        prompt=str(prompt),
        answer=str(episode.answer),
        segments=[segment],
        steps=steps,
        stop_reason=_stop_reason(episode.stop_reason),
        reward=_reward(episode),
        success=bool(episode.success),
        worker=worker,
        started_at=datetime.now(UTC).isoformat(),
        duration_s=float(spent if episode.duration_s is None else episode.duration_s),
        sampled_tokens=sampled,
        purpose=episode.purpose,
    )


def _reward(episode: Episode) -> Reward:
    """Numbers of any library become plain ones."""
    terms = {name: None if value is None else float(value) for name, value in episode.terms.items()}
    if episode.reward is None:
        return Reward(None, False, terms)
    return Reward(float(episode.reward), True, terms)


def _append(
    segment: Segment, ids: Sequence[int], logprobs: Sequence[float] = (), version: int = -1
) -> None:
    """Add tokens: the policy's with their log-probabilities, the environment's without."""
    segment.ids += [int(token) for token in ids]
    segment.loss_mask += [version >= 0] * len(ids)
    segment.logprobs += [float(value) for value in logprobs] or [0.0] * len(ids)
    segment.versions += [version] * len(ids)


def _step(index: int, turn: Turn, start: int, stop: int) -> Step:
    call = None
    if turn.tool:
        arguments = None if turn.arguments is None else dict(turn.arguments)
        call = ToolCall(
            f"call-{index}", turn.tool, arguments, turn.result, turn.error, turn.duration_s
        )
    reward = None if turn.reward is None else float(turn.reward)
    return Step(index, 0, start, stop, str(turn.text), call, turn.answer, reward)


def _stop_reason(text: str) -> StopReason:
    try:
        return StopReason(text)
    except ValueError:
        known = ", ".join(StopReason)
        raise ValueError(f"{text!r} is no stop reason: use one of {known}") from None
