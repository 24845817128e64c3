"""Numbers that look like those of a run: metrics, pool, phases, devices, all from one seed."""

import math
import random
from dataclasses import dataclass, field
from operator import mul
from typing import Any

CHECKPOINT_EVERY = 10  # steps of reinforcement
REASONS = ("stale", "all_solved", "all_failed", "no_valid_reward")


@dataclass
class Course:
    """How one run goes: where completion starts and ends, how fast, how noisy."""

    random: random.Random
    start: float
    end: float
    pace: float  # steps to two thirds of the way
    collapse_at: int | None = None  # step from which the loss is not finite

    def completion(self, step: int) -> float:
        gone = 1 - math.exp(-step / self.pace)
        value = self.start + (self.end - self.start) * gone + self.random.gauss(0, 0.012)
        return min(1.0, max(0.0, value))


def course(seed: int) -> Course:
    rng = random.Random(seed)
    return Course(
        rng,
        start=rng.uniform(0.44, 0.6),
        end=rng.uniform(0.8, 0.93),
        pace=rng.uniform(12, 30),
        collapse_at=int(rng.uniform(30, 55)) if seed % 11 == 5 else None,
    )


def sft_metrics(course: Course, step: int) -> dict[str, float]:
    noise = course.random.gauss(0, 0.02)
    loss = 4.5 * math.exp(-step / 60) + 0.35 + noise
    return {
        "sft/loss": loss,
        "sft/token_accuracy": 1 - 0.8 * math.exp(-step / 70) - abs(noise) / 2,
        "train/lr": 2e-3 * min(1, step / 50),
        "train/grad_norm": 1.5 * math.exp(-step / 90) + 0.3 + abs(noise),
    }


def rl_metrics(course: Course, step: int) -> dict[str, float]:
    rng = course.random
    rate = course.completion(step)
    broken = course.collapse_at is not None and step >= course.collapse_at
    ratio = 3.2 - 0.5 * math.exp(-step / 20) + rng.gauss(0, 0.08)
    return {
        "train/loss": math.nan if broken else -0.02 * rate + rng.gauss(0, 0.006),
        "train/entropy": 0.9 * math.exp(-step / 45) + 0.18 + rng.gauss(0, 0.01),
        "train/clip_fraction": max(0.0, 0.004 + 0.02 * math.exp(-step / 25) + rng.gauss(0, 0.002)),
        "train/importance_weight_mean": 1 + rng.gauss(0, 0.015),
        "train/importance_weight_max": 1.6 + abs(rng.gauss(0, 0.5)),
        "pool/staleness_mean": max(0.0, 1.1 + rng.gauss(0, 0.35)),
        "train/grad_norm": math.inf if broken else abs(rng.gauss(0.35, 0.08)),
        "train/lr": 4e-4 * min(1, step / 10),
        "time/busy_share_trainer": min(1.0, max(0.0, 0.58 + rng.gauss(0, 0.05))),
        "pool/wait_s": abs(rng.gauss(0.6, 0.3)),
        "train/step_s": 1.4 + abs(rng.gauss(0, 0.2)),
        "train/tree_token_ratio": ratio,
        "train/tree_saved_flops_share": 1 - 1.02 / ratio,
        "train/tree_saved_memory_share": 1 - 1 / ratio,
    }


def tree(step: int) -> dict[str, Any]:
    """The prefix forest of a batch: prompts, then two forks of each, eight samples below."""
    rng = random.Random(step)
    parents: list[int] = []
    tokens: list[int] = []
    samples: list[int] = []
    label: list[int] = []
    for task in range(6):
        root = len(parents)
        first = rng.randint(1, 7)
        for above, length, through in (
            (-1, rng.randint(18, 24), 8),
            (root, rng.randint(8, 16), first),
            *((root + 1, rng.randint(20, 45), 1) for _ in range(first)),
            (root, rng.randint(8, 16), 8 - first),
            *((root + 2 + first, rng.randint(20, 45), 1) for _ in range(8 - first)),
        ):
            parents.append(above)
            tokens.append(length)
            samples.append(through)
            label.append(task)
    return {
        "kind": "tree",
        "step": step,
        "parents": parents,
        "tokens": tokens,
        "samples": samples,
        "label": label,
        "labels": [f"{3 + task % 2} hops · question {task + 1}" for task in range(6)],
        "nodes": len(parents),
        "total_tokens": sum(tokens),
        "sample_tokens": sum(map(mul, tokens, samples)),
    }


def rollout_metrics(course: Course, step: int) -> dict[str, float]:
    rng = course.random
    rate = course.completion(step)
    return {
        "rollout/success": rate,
        "rollout/reward_mean": rate,
        "rollout/tool_success": min(1.0, 0.86 + 0.13 * rate + rng.gauss(0, 0.005)),
        "rollout/turns": 4.4 + 0.5 * (1 - rate) + rng.gauss(0, 0.08),
        "rollout/length": 74 + 20 * (1 - rate) + rng.gauss(0, 2),
        "time/busy_share_rollout": min(1.0, max(0.0, 0.83 + rng.gauss(0, 0.04))),
        "rollout/trajectories_per_s": 72 + rng.gauss(0, 4),
        "rollout/zero_variance_groups": min(1.0, max(0.0, 0.1 + 0.5 * rate + rng.gauss(0, 0.05))),
    }


@dataclass
class Pool:
    """A pool that conserves: every group that leaves is counted where it went."""

    random: random.Random
    produced: int = 0
    consumed: int = 0
    waiting: int = 0
    leased: int = 0
    discarded: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    def step(self, batch: int, version: int) -> dict[str, Any]:
        made = batch + self.random.randint(-4, 6)
        self.produced += made
        self.waiting += made
        for reason, chance in zip(REASONS, (0.01, 0.1, 0.02, 0.005), strict=True):
            lost = min(self.waiting, sum(self.random.random() < chance for _ in range(made)))
            self.waiting -= lost
            self.discarded[reason] += lost
        taken = min(self.waiting, batch)
        self.waiting -= taken
        self.leased += taken
        if version % CHECKPOINT_EVERY == 0:
            self.consumed, self.leased = self.consumed + self.leased, 0
        three = min(self.waiting, round(self.waiting * self.random.uniform(0.45, 0.72)))
        ages: dict[str, int] = {}
        for _ in range(self.waiting):
            age = str(min(4, int(self.random.expovariate(0.9))))
            ages[age] = ages.get(age, 0) + 1
        return {
            "kind": "pool",
            "trainer_version": version,
            "produced": self.produced,
            "consumed": self.consumed,
            "waiting": self.waiting,
            "leased": self.leased,
            "discarded": dict(self.discarded),
            "categories": {"3 hops": three, "4 hops": self.waiting - three},
            "target": {"3 hops": 0.6, "4 hops": 0.6},
            "staleness": ages,
            "oldest_s": round(self.random.uniform(1, 14), 1) if self.waiting else 0.0,
        }


def spans(rng: random.Random, source: str, start: float, stop: float) -> list[list[Any]]:
    """What an actor did between two moments; the last rollout actor is slower than the others."""
    cycle = {
        "trainer": [("train", 1.4), ("sync", 0.15), ("queue", 0.7)],
        "rollout": [("generate", 1.1), ("tool", 0.12), ("generate", 0.8), ("sync", 0.1)],
    }[source.partition("-")[0]]
    slow = 1.6 if source == "rollout-3" else 1.0
    found: list[list[Any]] = []
    at = start
    while at < stop:
        for phase, usual in cycle:
            last = min(stop, at + usual * slow * rng.uniform(0.7, 1.4))
            found.append([phase, at, last])
            at = last
            if at >= stop:
                break
    return found


def devices(rng: random.Random, busy: float) -> list[dict[str, Any]]:
    def share() -> float:
        return round(min(1.0, max(0.0, busy + rng.gauss(0, 0.08))), 3)

    total = 24 * 2**30
    cores = [{"name": f"core {index}", "kind": "cpu", "busy": share()} for index in range(2)]
    used = int(total * (0.31 + rng.gauss(0, 0.01)))
    return [
        *cores,
        {"name": "memory", "kind": "memory", "memory_used": used, "memory_total": total},
    ]
