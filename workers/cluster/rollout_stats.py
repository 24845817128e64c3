"""What rollouts did in the last seconds, over all workers: the `rollout/...` metrics."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from engine.records.trajectory import Trajectory


@dataclass
class Tally:
    """Sums over trajectories; two tallies add up."""

    groups: int = 0
    flat_groups: int = 0  # all valid rewards are equal: nothing to learn
    trajectories: int = 0
    valid: int = 0  # with a reward
    reward: float = 0.0
    successes: int = 0
    calls: int = 0
    failed_calls: int = 0
    turns: int = 0
    sampled_tokens: int = 0

    def add(self, other: "Tally") -> None:
        for one in fields(Tally):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


def tally(group: Sequence[Trajectory]) -> Tally:
    """The tally of one group."""
    valid = [one for one in group if one.reward.value is not None and one.stop_reason.is_policy]
    rewards = [one.reward.value for one in valid]
    calls = [step.call for one in group for step in one.steps if step.call]
    return Tally(
        groups=1,
        flat_groups=len(rewards) > 0 and len(set(rewards)) == 1,
        trajectories=len(group),
        valid=len(valid),
        reward=sum(value or 0.0 for value in rewards),
        successes=sum(one.success for one in valid),
        calls=len(calls),
        failed_calls=sum(call.error is not None for call in calls),
        turns=sum(len(one.steps) for one in group),
        sampled_tokens=sum(one.sampled_tokens for one in group),
    )


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
