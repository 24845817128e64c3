"""A made-up episode of any length: what the replay's bars are measured on."""

import random
from datetime import UTC, datetime
from functools import cache

from engine.records.trajectory import Reward, Segment, Step, StopReason, ToolCall, Trajectory

STEPS = 10_000
CHARS = 200_000_000  # of all results together
LONGEST = 20_000_000  # of one result
STEPS_PER_SEGMENT = 200  # then the context is edited and a new segment begins
_KEPT = 400  # characters of a result that stay in the context
_SHORT = 3_000  # characters of most results
_WORDS = [
    "currency", "airport", "capital", "river", "mountain", "station", "census", "treaty",
    "重庆市", "货币", "人口", "首都", "Zürich", "São", "Paulo", "Saint-Étienne", "Ηράκλειο", "Київ",
    "not_found", "result", "value", "page", "row", "total",
]  # fmt: skip


def long_episode(
    name: str,
    group: str,
    *,
    steps: int = STEPS,
    chars: int = CHARS,
    longest: int = LONGEST,
    seed: int = 1,
    started: float = 1.8e9,
) -> Trajectory:
    """An episode whose results have about `chars` characters, one of them exactly `longest`.

    Most results are short, three in ten are long, every 37th call fails, and the context is edited
    every STEPS_PER_SEGMENT steps. The long result belongs to step `steps // 3`.
    """
    rng = random.Random(seed)
    prose = _prose(400_000)
    rest = max(0, chars - longest) / max(1, steps - 1)
    made: list[Step] = []
    segments: list[Segment] = []
    for index in range(steps):
        if index % STEPS_PER_SEGMENT == 0:
            parent = len(segments) - 1 if segments else None
            segments.append(Segment([], [], [], [], parent, []))
            _write(segments[-1], rng, "Read the records and say which currency is used.", -1)
        size = longest if index == steps // 3 else _size(rng, rest)
        text = f'{{"tool":"read","page":{index},"why":"{rng.choice(_WORDS)} {rng.choice(_WORDS)}"}}'
        start, stop = _write(segments[-1], rng, text, index // STEPS_PER_SEGMENT)
        result = _cut(prose, rng, size)
        _write(segments[-1], rng, result[:_KEPT], -1)
        error = "not_found" if index % 37 == 36 else None
        call = ToolCall(
            f"call-{index}", "read", {"page": index}, result, error, rng.uniform(0.01, 0.4)
        )
        made.append(Step(index, len(segments) - 1, start, stop, text, call))
    made[-1].call, made[-1].text, made[-1].answer = None, '{"answer":"CHF"}', "CHF"
    return Trajectory(
        id=name,
        task_id="task-long",
        group_id=group,
        category="long",
        prompt="Which currency do the records name? 记录中提到的是哪种货币？",
        answer="CHF",
        segments=segments,
        steps=made,
        stop_reason=StopReason.ANSWERED,
        reward=Reward(1.0, True, {"exact_answer": 1.0}),
        success=True,
        worker="rollout-0",
        started_at=datetime.fromtimestamp(started, UTC).isoformat(),
        duration_s=round(sum(step.call.duration_s for step in made if step.call), 3),
        sampled_tokens=sum(sum(segment.loss_mask) for segment in segments),
    )


@cache
def _prose(chars: int) -> str:
    rng = random.Random(chars)
    parts, size = list[str](), 0
    while size < chars:
        end = rng.choice((" ", ", ", "\n"))
        parts.append(f"{rng.choice(_WORDS)} {rng.randrange(1000)}{end}")
        size += len(parts[-1])
    return "".join(parts)


def _size(rng: random.Random, mean: float) -> int:
    """Seven in ten results are short; the others are so long that all have this mean."""
    if rng.random() < 0.7:
        return int(rng.uniform(0.1, 0.9) * min(mean, _SHORT))
    return int(rng.uniform(0.5, 1.5) * (mean - 0.35 * min(mean, _SHORT)) / 0.3)


def _cut(prose: str, rng: random.Random, size: int) -> str:
    at = rng.randrange(len(prose))
    text = prose[at : at + size]
    return (text + prose * (-(-(size - len(text)) // len(prose))))[:size]


def _write(segment: Segment, rng: random.Random, text: str, version: int) -> tuple[int, int]:
    """Tokens of four characters; those of a version are the policy's."""
    start = len(segment.ids)
    pieces = [text[i : i + 4] for i in range(0, len(text), 4)]
    segment.texts += pieces
    segment.ids += [sum(map(ord, piece)) % 50_000 for piece in pieces]
    segment.loss_mask += [version >= 0] * len(pieces)
    segment.versions += [version] * len(pieces)
    segment.logprobs += (
        [-rng.expovariate(4) for _ in pieces] if version >= 0 else [0.0] * len(pieces)
    )
    return start, len(segment.ids)
