"""What rollouts did in the last seconds, over all workers: the `rollout/...` metrics."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from engine.records.trajectory import StopReason, Trajectory
from engine.rewards.moments import Moments
from engine.rewards.ties import tied


@dataclass
class Tally:
    """Sums over trajectories; two tallies add up."""

    groups: int = 0
    flat_groups: int = 0  # all valid rewards are equal: nothing to learn from their differences
    trajectories: int = 0
    valid: int = 0  # with a reward
    reward: float = 0.0
    successes: int = 0
    calls: int = 0
    failed_calls: int = 0
    turns: int = 0
    sampled_tokens: int = 0
    out_of_tokens: int = 0
    out_of_calls: int = 0
    timed_out: int = 0
    broken: int = 0  # ended by a tool, a sampler or an interruption
    overlong: int = 0  # with a penalty for their length
    # Of the valid ones: each reward term by trajectory, in x; by group (share solved, mean
    # process reward) and by trajectory (outcome, process reward), under a curriculum.
    terms: dict[str, Moments] = field(default_factory=lambda: defaultdict(Moments))
    by_group: Moments = field(default_factory=Moments)
    by_trajectory: Moments = field(default_factory=Moments)

    def add(self, other: "Tally") -> None:
        for one in fields(Tally):
            mine, added = getattr(self, one.name), getattr(other, one.name)
            if isinstance(mine, Moments):
                mine.merge(added)
            elif isinstance(mine, dict):
                for name, moments in added.items():
                    mine[name].merge(moments)
            else:
                setattr(self, one.name, mine + added)


def tally(group: Sequence[Trajectory]) -> Tally:
    """The tally of one group."""
    valid = [one for one in group if one.trainable_reward is not None]
    rewards = [one.trainable_reward or 0.0 for one in valid]
    calls = [step.call for one in group for step in one.steps if step.call]
    stops = [one.stop_reason for one in group]
    found = Tally(
        groups=1,
        flat_groups=bool(rewards) and tied(rewards),
        trajectories=len(group),
        valid=len(valid),
        reward=sum(rewards),
        successes=sum(one.success for one in valid),
        calls=len(calls),
        failed_calls=sum(call.error is not None for call in calls),
        turns=sum(len(one.steps) for one in group),
        sampled_tokens=sum(one.sampled_tokens for one in group),
        out_of_tokens=sum(reason.is_out_of_tokens for reason in stops),
        out_of_calls=stops.count(StopReason.MAX_CALLS),
        timed_out=stops.count(StopReason.TIMED_OUT),
        broken=stops.count(StopReason.INFRA_ERROR) + stops.count(StopReason.INTERRUPTED),
        overlong=sum((one.reward.terms.get("overlong") or 0.0) < 0 for one in valid),
    )
    process = []
    for one in valid:
        for name, value in one.reward.terms.items():
            if value is not None:
                found.terms[name].add(value, 0.0)
        if one.reward.outcome is not None and one.reward.process is not None:
            found.by_trajectory.add(one.reward.outcome, one.reward.process)
            process.append(one.reward.process)
    if process:
        found.by_group.add(found.successes / len(valid), sum(process) / len(process))
    return found


@dataclass
class Window:
    """Gathers tallies between two reports."""

    since: float  # monotonic
    gathered: Tally = field(default_factory=Tally)

    def drain(self, now: float) -> dict[str, float]:
        """The metrics since the last call. What had no case to count is absent, not zero."""
        seconds, self.since = now - self.since, now
        sums, self.gathered = self.gathered, Tally()
        if not sums.trajectories:
            return {}
        found = {
            "rollout/length": sums.sampled_tokens / sums.trajectories,
            "rollout/turns": sums.turns / sums.trajectories,
            "rollout/zero_variance_groups": sums.flat_groups / sums.groups,
            "rollout/out_of_tokens": sums.out_of_tokens / sums.trajectories,
            "rollout/out_of_calls": sums.out_of_calls / sums.trajectories,
            "rollout/timed_out": sums.timed_out / sums.trajectories,
            "rollout/broken": sums.broken / sums.trajectories,
        }
        if seconds > 0:
            found["rollout/trajectories_per_s"] = sums.trajectories / seconds
            found["rollout/tokens_per_s"] = sums.sampled_tokens / seconds
        if sums.valid:
            found["rollout/reward_mean"] = sums.reward / sums.valid
            found["rollout/success"] = sums.successes / sums.valid
        if sums.calls:
            found["rollout/tool_success"] = 1 - sums.failed_calls / sums.calls
        return found
