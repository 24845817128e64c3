"""Made-up evaluations: which tasks a policy solves, how its calls fail, and how long it takes."""

import json
import random
from typing import TYPE_CHECKING

from engine.evaluation.funnel import CallFunnel
from engine.evaluation.outcomes import Outcome
from engine.evaluation.report import metrics, report
from engine.evaluation.trials import parts
from engine.evaluation.trials import trials as trials_of
from engine.records.shards import write_shard
from engine.records.trajectory import StopReason
from webapp import storage
from webapp.experiments import services
from webapp.monitoring.seed import episodes

if TYPE_CHECKING:
    from webapp.monitoring.seed.driver import Driver

TASKS = 120
STORED = 12  # of them, whose episodes are stored too


def evaluate(
    driver: "Driver",
    stage: int,
    step: int,
    trainer_step: int,
    completion: float,
    trials: int = 1,
    prefix: str = "eval/",
) -> None:
    """Report an evaluation and leave its outcomes where the run keeps its files."""
    rng = random.Random(f"{driver.run.number} {stage} {step}")
    played = [
        _outcome(rng, f"{driver.run.pk}-{stage}-{step}", task, trial, completion)
        for task in range(TASKS)
        for trial in range(trials)
    ]
    found = report(played)
    accuracy = 0.955 - 0.05 * completion
    shown = {"loss": 0.16 + 0.2 * completion, "token_accuracy": accuracy}
    values = metrics(found, prefix) | {
        f"{prefix}demonstration_{name}": value for name, value in shown.items()
    }
    driver.metrics("driver", "trainer_step", trainer_step, values)
    path = f"evaluations/stage-{stage}-step-{step:06d}-held_out.json"
    kept = {"outcomes": [one.to_dict() for one in played]}
    storage.write_run_file(driver.run.pk, path, json.dumps(kept).encode())
    cut = list(parts(trials_of(played)))
    for number, rows in enumerate(cut):
        driver.report("driver", kind="trials", path=path, part=number, rows=rows)
    _store(driver, step, trainer_step, completion, played[:STORED])
    driver.report(
        "driver",
        kind="evaluation",
        tasks="held_out",
        stage=stage,
        step=step,
        trainer_step=trainer_step,
        version=trainer_step,
        trials=trials,
        temperature=1.0 if trials > 1 else 0.0,
        path=path,
        parts=len(cut),
        report=found.to_dict(),
        demonstrations=shown,
    )


def _store(
    driver: "Driver", step: int, version: int, completion: float, played: list[Outcome]
) -> None:
    """The episodes of some outcomes; those of a policy that failed have a lesser skill."""
    rng = random.Random(f"episodes {driver.run.number} {step}")
    cities = list(episodes.CITIES)
    found = []
    for number, outcome in enumerate(played):
        while True:
            made = episodes.episode(
                rng,
                outcome.trajectory,
                group=f"{driver.run.pk}-{step}-{outcome.task_id}",
                version=version,
                skill=0.95 if outcome.success else completion / 4,
                started=driver.at,
                purpose="evaluate",
                start_from=cities[number % len(cities)],
            )
            if made.success == outcome.success:
                break
        made.task_id, made.category = outcome.task_id, outcome.category
        found.append(made)
    blob, sha256, rows = write_shard(found)
    services.put_upload(driver.run.pk, blob, sha256)
    driver.report("driver", kind="trajectories", shard=sha256, rows=rows)


def _outcome(rng: random.Random, name: str, task: int, trial: int, completion: float) -> Outcome:
    difficulty = random.Random(f"task {task}").gauss(0, 0.2)  # the same for every policy
    chance = min(1.0, max(0.0, completion + difficulty))
    success = rng.random() < chance
    hops = 3 + task % 2
    stop = StopReason.ANSWERED
    if not success and rng.random() < 0.3:
        stop = rng.choice([StopReason.MAX_TOKENS, StopReason.MAX_CALLS, StopReason.INFRA_ERROR])
    calls = hops + (0 if success else rng.randint(0, 4))
    wrong = sum(rng.random() > 0.5 + completion / 2 for _ in range(calls)) // 2
    malformed = wrong // 2
    executed = calls - wrong
    return Outcome(
        task_id=f"task-{task:03d}",
        category=f"{hops} hops",
        trial=trial,
        trajectory=f"{name}-{task}-{trial}",
        stop_reason=stop,
        valid=stop.is_policy,
        success=success,
        calls=CallFunnel(
            calls,
            calls - malformed,
            calls - malformed,
            calls - malformed,
            executed,
            max(0, executed - (not success)),
        ),  # fmt: skip
        turns=calls + 1,
        sampled_tokens=calls * 17 + rng.randint(5, 12),
        context_tokens=calls * 30 + rng.randint(10, 30),
        tool_s=calls * rng.uniform(0.0002, 0.0006),
        seconds=calls * rng.uniform(0.2, 0.5),
    )
