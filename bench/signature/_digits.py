"""Three tasks on five digits, and a policy's answers to them as trajectories."""

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.models.hybrid import HybridForCausalLM
from engine.records.trajectory import Reward, Segment, StopReason, Trajectory

TASKS = ("reverse", "sort", "add one")
DIGITS, SIGN = 5, 13  # the sign that an answer follows; 0 and 1 are padding and end
VOCABULARY = 17

Question = tuple[str, list[int]]


def questions(
    rng: random.Random, tasks: Sequence[str], count: int, *, held_out: bool = False
) -> list[Question]:
    """Digits whose sum is a multiple of seven are kept for judging."""
    found: list[Question] = []
    while len(found) < count:
        digits = [rng.randrange(10) for _ in range(DIGITS)]
        if (sum(digits) % 7 == 0) == held_out:
            found.append((rng.choice(tasks), digits))
    return found


def right_answer(task: str, digits: list[int]) -> list[int]:
    """As tokens."""
    right = {
        "reverse": digits[::-1],
        "sort": sorted(digits),
        "add one": [(digit + 1) % 10 for digit in digits],
    }
    return [2 + digit for digit in right[task]]


def prompts_of(asked: Sequence[Question]) -> Tensor:
    rows = [
        [SIGN + 1 + TASKS.index(task), *(2 + d for d in digits), SIGN] for task, digits in asked
    ]
    return torch.tensor(rows)


@torch.no_grad()
def answer(
    model: HybridForCausalLM, asked: Sequence[Question], draw: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Tokens and log-probabilities, both [questions, DIGITS]; without `draw` the likeliest."""
    ids, logprobs = prompts_of(asked), []
    for _ in range(DIGITS):
        log_p = torch.log_softmax(model.logits(model.hidden(ids)[:, -1]), dim=-1)
        if draw is None:
            token = log_p.argmax(-1, keepdim=True)
        else:
            token = torch.multinomial(log_p.exp(), 1, generator=draw)
        ids = torch.cat([ids, token], 1)
        logprobs.append(log_p.gather(1, token))
    return ids[:, -DIGITS:], torch.cat(logprobs, 1)


def sampled(
    model: HybridForCausalLM, asked: Sequence[Question], draw: torch.Generator, version: int
) -> list[Trajectory]:
    answers, logprobs = answer(model, asked, draw)
    return trajectories(asked, answers, logprobs, version)


def trajectories(
    asked: Sequence[Question],
    answers: Tensor,
    logprobs: Tensor | None = None,
    version: int = -1,
) -> list[Trajectory]:
    """logprobs: of the policy of this version that sampled the answers."""
    prompts = prompts_of(asked).tolist()
    given = torch.zeros_like(answers, dtype=torch.float32) if logprobs is None else logprobs
    rows = zip(asked, prompts, answers.tolist(), given.tolist(), strict=True)
    return [
        _trajectory(task, prompt, answer, found, version)
        for (task, _), prompt, answer, found in rows
    ]


def _trajectory(
    task: str, prompt: list[int], answer: list[int], logprobs: list[float], version: int
) -> Trajectory:
    before = len(prompt)
    segment = Segment(
        ids=prompt + answer,
        loss_mask=[False] * before + [True] * DIGITS,
        logprobs=[0.0] * before + logprobs,
        versions=[-1] * before + [version] * DIGITS,
    )
    return Trajectory(
        id="", task_id="", group_id="", category=task, prompt="", answer="", segments=[segment],
        steps=[], stop_reason=StopReason.ANSWERED, reward=Reward(None, False), success=False,
        worker="", started_at="", duration_s=0.0, sampled_tokens=DIGITS,
    )  # fmt: skip
