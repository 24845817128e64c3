"""The terms of a reward: pure functions of a trajectory. Any may raise on odd data.

A term gives its value by step: the parts add up to it, and each stands at the turn that earned or
cost it. A trajectory without a turn is worth nothing to any term.
"""

import re
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from engine.records.trajectory import Step, StopReason, ToolCall, Trajectory
from engine.rewards.scheme import RewardTerm, TermKind

Term = Callable[[Trajectory, RewardTerm], list[float]]

MALFORMED = frozenset({"invalid_json", "not_an_object", "unknown_tool", "invalid_arguments"})
# A word; of scripts without spaces between words each character is one.
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
BROKEN_TOOL = frozenset({"timeout", "tool_failed"})  # no fault of the policy


def exact_answer(trajectory: Trajectory, term: RewardTerm) -> list[float]:
    """1 where the episode ended with exactly the right answer, else 0: at the last turn."""
    steps = trajectory.steps
    solved = (
        trajectory.stop_reason is StopReason.ANSWERED
        and bool(steps)
        and steps[-1].answer == trajectory.answer
    )
    return _at_last(steps, float(solved))


def format_share(trajectory: Trajectory, term: RewardTerm) -> list[float]:
    """Share of the turns that were a well-formed call or answer, 0 to 1: at each of them."""
    turns = sum(not step.detour for step in trajectory.steps)
    return [float(_is_formed(step)) / turns if turns else 0.0 for step in trajectory.steps]


def length(trajectory: Trajectory, term: RewardTerm) -> list[float]:
    """Sampled tokens, in hundreds, at the turn that sampled them; give it a negative weight."""
    return [tokens / 100 for tokens in _tokens(trajectory)]


def overlong(trajectory: Trajectory, term: RewardTerm) -> list[float]:
    """DAPO's soft penalty (2503.14476, equation 13): 0 down to -1 over the last `cache` tokens of
    the `budget`, -1 beyond it. Only what the policy sampled counts, never what tools wrote; each
    turn bears what its own tokens added.
    """
    assert term.budget is not None and term.cache is not None
    ends = accumulate(_tokens(trajectory), initial=0)
    penalties = [_soft_penalty(tokens, term.budget, term.cache) for tokens in ends]
    return [after - before for before, after in pairwise(penalties)]


def _soft_penalty(tokens: int, budget: int, cache: int) -> float:
    if tokens <= budget - cache:
        return 0.0
    return -1.0 if tokens >= budget else (budget - cache - tokens) / cache


def repetition(trajectory: Trajectory, term: RewardTerm) -> list[float]:
    """Share of the policy's word n-grams that it had written before in the episode, 0 to 1: at the
    turns that repeat them; give it a negative weight. The rep-n of Welleck et al. (1908.04319,
    section 6), over all turns; no n-gram spans two of them.
    """
    size = term.ngram
    assert size is not None
    seen: set[tuple[str, ...]] = set()
    total, repeats = 0, []
    for step in trajectory.steps:
        words = [] if step.detour else WORD.findall(step.text.lower())
        grams = list(zip(*(words[start:] for start in range(size)), strict=False))
        before = len(seen)
        seen.update(grams)
        total += len(grams)
        repeats.append(len(grams) - (len(seen) - before))
    return [count / total if total else 0.0 for count in repeats]


def tool_errors(trajectory: Trajectory, term: RewardTerm) -> list[float]:
    """Share of the tool calls that failed, 0 to 1: at each of them; give it a negative weight."""
    calls = sum(step.call is not None and not step.detour for step in trajectory.steps)
    return [float(_has_failed(step)) / calls if calls else 0.0 for step in trajectory.steps]


def tool_error_count(trajectory: Trajectory, term: RewardTerm) -> list[float]:
    """How many tool calls failed: at each of them; give it a negative weight."""
    return [float(_has_failed(step)) for step in trajectory.steps]


def step_efficiency(trajectory: Trajectory, term: RewardTerm) -> list[float]:
    """Share of a budget of turns that an answer left unused, 0 to 1; without an answer 0.

    Every turn within the budget costs its share, the last one brings the whole.
    """
    assert term.budget is not None
    steps = trajectory.steps
    if trajectory.stop_reason is not StopReason.ANSWERED:
        return [0.0] * len(steps)
    turns, parts = 0, _at_last(steps, 1.0)
    for index, step in enumerate(steps):
        turns += not step.detour
        if not step.detour and turns <= term.budget:
            parts[index] -= 1 / term.budget
    return parts


def _tokens(trajectory: Trajectory) -> list[int]:
    """The policy's tokens by step; what no step accounts for stands at the last one."""
    tokens = [step.stop - step.start for step in trajectory.steps]
    if tokens:
        tokens[-1] += trajectory.sampled_tokens - sum(tokens)
    return tokens


def _at_last(steps: Sequence[Step], value: float) -> list[float]:
    return [0.0] * (len(steps) - 1) + [value] if steps else []


def _is_formed(step: Step) -> bool:
    if step.detour:
        return False
    return step.answer is not None or (step.call is not None and step.call.error not in MALFORMED)


def _has_failed(step: Step) -> bool:
    return not step.detour and step.call is not None and is_policy_error(step.call)


def is_policy_error(call: ToolCall) -> bool:
    """True where a call failed and the policy is to blame, not the tool."""
    return call.error is not None and call.error not in BROKEN_TOOL


TERMS: dict[TermKind, Term] = {
    "exact_answer": exact_answer,
    "format": format_share,
    "length": length,
    "overlong": overlong,
    "repetition": repetition,
    "step_efficiency": step_efficiency,
    "tool_error_count": tool_error_count,
    "tool_errors": tool_errors,
}
