"""A trajectory as it was sampled: token-exact segments, steps for people, one reward."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal

StepField = Literal["text", "answer", "arguments", "result"]  # texts of a step, of any length


class StopReason(StrEnum):
    """Why an episode ended. Only what the policy did may teach the policy."""

    ANSWERED = "answered"
    MAX_CALLS = "max_calls"
    MAX_TURN_TOKENS = "max_turn_tokens"
    MAX_TOKENS = "max_tokens"
    REPEATED_CALL = "repeated_call"
    INVALID_CALLS = "invalid_calls"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"
    INFRA_ERROR = "infra_error"

    @property
    def is_policy(self) -> bool:
        """True where the policy is to blame or to praise, so that the reward may be trained on."""
        return self not in (
            StopReason.TIMED_OUT,
            StopReason.INTERRUPTED,
            StopReason.INFRA_ERROR,
        )

    @property
    def is_out_of_tokens(self) -> bool:
        """True where a budget of tokens cut the episode short: of a turn, or of all of it."""
        return self in (StopReason.MAX_TURN_TOKENS, StopReason.MAX_TOKENS)

    @property
    def is_truncated(self) -> bool:
        """True where a budget of tokens or of calls cut the episode short."""
        return self.is_out_of_tokens or self is StopReason.MAX_CALLS


@dataclass
class Segment:
    """A run of tokens exactly as the model saw and sampled them.

    All lists have one entry per token. A segment holds the whole context of its tokens:
    after a context edit a new segment starts, with `parent` the index of the one it forks from.
    """

    ids: list[int]
    loss_mask: list[bool]  # True: sampled by the policy and trained on
    logprobs: list[float]  # behaviour log-probability; 0.0 where the environment wrote
    versions: list[int]  # policy version that sampled the token; -1 where the environment wrote
    parent: int | None = None
    # What each token says, see `engine.records.texts`; None: it continues the one before.
    # Empty where the sampler could not tell.
    texts: list[str | None] = field(default_factory=list)


@dataclass
class ToolCall:
    """One call that the policy made. `error` is the typed error code, None on success."""

    call_id: str
    name: str
    arguments: dict[str, Any] | None  # None: not parseable
    result: str
    error: str | None
    duration_s: float


@dataclass
class Step:
    """One turn of the policy and what came back, for people and for step-level rewards.

    `start:stop` are the policy's tokens in the segment's ids; the result follows at `stop`.
    """

    index: int
    segment: int
    start: int
    stop: int
    text: str
    call: ToolCall | None = None
    answer: str | None = None
    reward: float | None = None
    detour: bool = False


@dataclass
class Reward:
    """A missing reward is never zero: `value` is None where `valid` is False."""

    value: float | None
    valid: bool
    terms: dict[str, float | None] = field(default_factory=dict)  # each term raw, unweighted
    problem: str = ""  # why it is invalid
    # Under a curriculum: the factor of the process terms when it was graded, and the weighted sums
    # of the other terms and of the process terms, the latter before factor and cap.
    process_weight: float | None = None
    outcome: float | None = None
    process: float | None = None


@dataclass
class Trajectory:
    """One episode. `group_id` joins the trajectories of one prompt at one policy."""

    id: str
    task_id: str
    group_id: str
    category: str
    prompt: str
    answer: str  # the right one
    segments: list[Segment]
    steps: list[Step]
    stop_reason: StopReason
    reward: Reward
    success: bool
    worker: str
    started_at: str  # ISO 8601, UTC
    duration_s: float
    sampled_tokens: int
    purpose: str = "train"  # train | evaluate | demonstration

    @property
    def trainable_reward(self) -> float | None:
        """The reward, where the policy earned it; an episode that broke under it taught nothing."""
        return self.reward.value if self.reward.valid and self.stop_reason.is_policy else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "Trajectory":
        """The inverse of `to_dict`; what an export adds of training (`trained`) is left out. Raises
        KeyError or TypeError on foreign data."""
        data = {name: value for name, value in data.items() if name != "trained"}
        steps = []
        for step in data["steps"]:
            call = ToolCall(**step["call"]) if step["call"] else None
            steps.append(Step(**{**step, "call": call}))
        return Trajectory(
            **{
                **data,
                "segments": [Segment(**segment) for segment in data["segments"]],
                "steps": steps,
                "stop_reason": StopReason(data["stop_reason"]),
                "reward": Reward(**data["reward"]),
            }
        )
