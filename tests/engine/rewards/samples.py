"""Trajectories to grade, made by hand or drawn at random."""

from typing import Any

from hypothesis import strategies as st

from engine.records.trajectory import Reward, Segment, Step, StopReason, ToolCall, Trajectory
from engine.rewards import RewardTerm
from engine.rewards.scheme import TERM_FIELDS, TermKind
from engine.rewards.terms import TERMS

KINDS: list[TermKind] = list(TERMS)
ERRORS = [None, "unknown_entity", "invalid_json", "unknown_tool", "timeout", "max_calls"]


def term(
    kind: TermKind, weight: float = 1.0, budget: int = 100, cache: int = 40, ngram: int = 2
) -> RewardTerm:
    """A term of this kind, with those of the fields that it reads."""
    fields = {"budget": budget, "cache": min(cache, budget), "ngram": ngram}
    read = {name: fields[name] for name in TERM_FIELDS.get(kind, ())}
    return RewardTerm(kind=kind, weight=weight, **read)


def step(
    error: str | None = None,
    answer: str | None = None,
    detour: bool = False,
    tokens: int = 0,
    text: str = "",
) -> Step:
    made = None if answer is not None else ToolCall("call_1", "lookup", {}, "", error, 0.0)
    return Step(0, 0, 0, tokens, text, call=made, answer=answer, detour=detour)


def trajectory(*steps: Step, **fields: Any) -> Trajectory:
    return Trajectory(
        **{
            "id": "t",
            "task_id": "task",
            "group_id": "g",
            "category": "1 hop",
            "prompt": "",
            "answer": "Euro",
            "segments": [Segment([], [], [], [])],
            "steps": list(steps),
            "stop_reason": StopReason.ANSWERED,
            "reward": Reward(None, False),
            "success": False,
            "worker": "w",
            "started_at": "2026-01-01T00:00:00+00:00",
            "duration_s": 0.0,
            "sampled_tokens": sum(one.stop - one.start for one in steps),
            **fields,
        }
    )


steps = st.builds(
    step,
    error=st.sampled_from(ERRORS),
    answer=st.none() | st.sampled_from(["Euro", "Yen"]),
    detour=st.booleans(),
    tokens=st.integers(0, 60),
    text=st.sampled_from(["", "the same again", "again the same", "一二一二", "a b a b a"]),
)
policy_ends = st.sampled_from([reason for reason in StopReason if reason.is_policy])
trajectories = st.builds(
    lambda made, end: trajectory(*made, stop_reason=end), st.lists(steps, max_size=8), policy_ends
)
terms = st.dictionaries(
    st.sampled_from(KINDS),
    st.tuples(st.floats(-10, 10), st.integers(1, 200), st.integers(0, 200)),
    min_size=1,
).map(lambda chosen: [term(kind, *fields) for kind, fields in chosen.items()])
