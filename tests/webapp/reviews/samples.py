"""Trajectories written by hand, with tokens of two bytes each, so that characters span tokens."""

from collections.abc import Sequence

from engine.records.shards import write_shard
from engine.records.stored import StoredTrajectory, encode
from engine.records.texts import whole_texts
from engine.records.trajectory import Reward, Segment, Step, StopReason, ToolCall, Trajectory
from webapp import storage
from webapp.experiments.models import Run
from webapp.reviews.models import Trajectory as Row

PROMPT = 'Which currency does the country of "Lyon" use? 货币是什么？'


def _append(segment: Segment, text: str, version: int, trained: bool) -> tuple[int, int]:
    """Add a text as tokens of two bytes; the range that they take."""
    data = text.encode()
    pieces = [data[i : i + 2] for i in range(0, len(data), 2)]
    start = len(segment.ids)
    segment.ids += [int.from_bytes(piece, "big") for piece in pieces]
    segment.texts += whole_texts(pieces)
    segment.loss_mask += [trained] * len(pieces)
    segment.versions += [version] * len(pieces)
    segment.logprobs += [-0.01 * (i % 7) if version >= 0 else 0.0 for i in range(len(pieces))]
    return start, len(segment.ids)


def lookup(entity: str, relation: str, result: str, error: str | None = None) -> ToolCall:
    arguments = {"entity": entity, "relation": relation}
    return ToolCall(f"call-{entity}", "lookup", arguments, result, error, 0.02)


def trajectory(
    turns: Sequence[tuple[str, ToolCall | None, str | None]] = (),
    *,
    name: str = "t0",
    group: str = "g0",
    task: str = "task-1",
    success: bool = True,
    reward: float | None = 1.0,
    prompt: str = PROMPT,
    purpose: str = "train",
    category: str = "2 hops",
    stop: StopReason = StopReason.ANSWERED,
) -> Trajectory:
    """One segment; each turn is (what the policy wrote, its call, its answer)."""
    turns = turns or (
        ('{"tool":"lookup","entity":"Lyon"}', lookup("Lyon", "country", "France 法国"), None),
        ('{"tool":"lookup","entity":"France"}', lookup("France", "currency", "Euro 欧元"), None),
        ('{"answer":"Euro"}', None, "Euro"),
    )
    segment = Segment([], [], [], [])
    _append(segment, prompt, -1, False)
    steps = []
    for index, (text, call, answer) in enumerate(turns):
        start, stop_at = _append(segment, text, 3 + index // 2, index != 1)
        steps.append(Step(index, 0, start, stop_at, text, call, answer, detour=index == 1))
        if call:
            _append(segment, call.result[:2000], -1, False)
    return Trajectory(
        id=name,
        task_id=task,
        group_id=group,
        category=category,
        prompt=prompt,
        answer="Euro",
        segments=[segment],
        steps=steps,
        stop_reason=stop,
        reward=Reward(reward, reward is not None, {"exact_answer": reward}, ""),
        success=success,
        worker="worker-1",
        started_at="2026-01-01T00:00:00+00:00",
        duration_s=1.25,
        sampled_tokens=sum(segment.loss_mask),
        purpose=purpose,
    )


def read(written: Trajectory) -> StoredTrajectory:
    data = encode(written)
    return StoredTrajectory(lambda start, length: data[start : start + length], len(data))


def put(run: Run, records: Sequence[Trajectory]) -> list[Row]:
    """Store trajectories as ingest does: a shard in storage, and its index rows."""
    blob, shard, rows = write_shard(records)
    storage.put_blob(blob)
    attempt = run.attempts.get()
    first = run.trajectories.count()
    return Row.objects.bulk_create(
        Row(run=run, attempt=attempt, project=run.project, shard=shard, cursor=first + i, **row)
        for i, row in enumerate(rows)
    )
