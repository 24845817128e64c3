"""Small trajectories and groups to put into a pool."""

from engine.pool.group import Group, pack
from engine.records.trajectory import Reward, Segment, StopReason, Trajectory


def trajectory(
    group: str = "g",
    reward: float | None = 1.0,
    version: int = 0,
    category: str = "3 hops",
    stop_reason: StopReason = StopReason.ANSWERED,
) -> Trajectory:
    segment = Segment(
        ids=[5, 6, 7],
        loss_mask=[False, True, True],
        logprobs=[0.0, -0.1, -0.2],
        versions=[-1, version, version + 1],
    )
    return Trajectory(
        id=f"{group}-t",
        task_id="task",
        group_id=group,
        category=category,
        prompt="Which?",
        answer="that",
        segments=[segment],
        steps=[],
        stop_reason=stop_reason,
        reward=Reward(reward, reward is not None),
        success=bool(reward),
        worker="rollout-0",
        started_at="2026-01-01T00:00:00+00:00",
        duration_s=0.1,
        sampled_tokens=2,
    )


def group(
    ticket: int,
    version: int = 0,
    category: str = "3 hops",
    rewards: tuple[float | None, ...] = (0.0, 1.0),
) -> Group:
    members = [trajectory(f"g{ticket}", reward, version, category) for reward in rewards]
    return pack(ticket, version, members, now=1000.0 + ticket)
