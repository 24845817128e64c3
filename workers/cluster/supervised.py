"""Stages whose steps are taken from a fixed set: demonstrations, accepted rollouts, repair pairs,
rows of a dataset.

Each returns its summary, or None where the end was asked for; everything is saved then.
"""

import time
from typing import Any

from engine.spec import DpoStage, SftStage
from workers.cluster import limits
from workers.cluster.attempt import Attempt
from workers.cluster.figures import DPO_FIGURES, SFT_FIGURES, named
from workers.cluster.practising import (
    classes_of,
    count_faults,
    practise,
    rates_of,
    read_rows,
    take_up,
)
from workers.cluster.stages import judge, wait_while_paused

CHUNK_S = 1.0  # of steps between two looks at what people wish
TOLD_EVERY_S = 2.0


def learn(attempt: Attempt, index: int, stage: SftStage) -> dict[str, Any] | None:
    """Supervised steps on demonstrations, on own rollouts that the verifier accepts, or on the
    trajectories of a dataset."""
    attempt.begin(index)
    made: dict[str, Any] | None = {}
    if stage.played is not None:
        made = _accept(attempt, index, stage)
    elif stage.dataset is not None:
        made = read_rows(attempt, index, stage.dataset)
        if made is not None:
            take_up(attempt, index)
    if made is None:
        attempt.save(index, attempt.start_step(index))
        return None
    if made.get("kept") == 0:
        attempt.reporter.log(f"Stage {index} (sft) ends at once: no rollout was accepted.")
        attempt.save(index, 0, final=True)
        return made
    if _take_steps(attempt, index, stage.steps, "sft_steps", SFT_FIGURES) is None:
        return None
    judged = judge(attempt, index, stage.steps)
    return None if judged is None else {**judged, **made}


def _accept(attempt: Attempt, index: int, stage: SftStage) -> dict[str, Any] | None:
    assert stage.played is not None
    made = practise(attempt, index, stage.played)
    if made is None:
        return None
    names = ("acceptance_rate", "prompts_kept", "tokens_per_prompt")
    attempt.reporter.metrics(
        attempt.steps_before(index), {f"sft/{name}": float(made[name]) for name in names}
    )
    attempt.reporter.log(
        f"{made['kept']} of {made['played']} rollouts are kept, of {made['prompts_kept']} tasks; "
        f"the verifier accepted {100 * made['acceptance_rate']:.1f}%."
    )
    if made["kept"]:
        take_up(attempt, index)
    return made


def repair(attempt: Attempt, index: int, stage: DpoStage) -> dict[str, Any] | None:
    """Find own errors in practice, or take the pairs of a dataset, learn to prefer the chosen
    sides, and count errors on held-out tasks before and after."""
    attempt.begin(index)
    if stage.dataset is not None:
        made = read_rows(attempt, index, stage.dataset)
    else:
        made = practise(attempt, index, stage.practice)
    if made is not None and not made["pairs"]:
        attempt.reporter.log(
            f"Stage {index} (dpo) ends at once: {made['calls']} calls in {made['played']} "
            f"episodes gave no pair of an error and its repair. {classes_of(made)}"
        )
        attempt.save(index, 0, final=True)
        return made
    before = None if made is None else count_faults(attempt, index, stage, "before", 0)
    if made is None or before is None:
        attempt.save(index, attempt.start_step(index))
        return None
    if stage.dataset is None:
        said = f"{made['pairs']} pairs from {made['calls']} calls. {classes_of(made)}"
        attempt.reporter.log(said)
    take_up(attempt, index)
    figures = _take_steps(attempt, index, stage.steps, "dpo_steps", DPO_FIGURES)
    if figures is None:
        return None
    if (change := figures.get("chosen_change", 0.0)) < 0:
        attempt.reporter.log(
            f"Chosen sides have become less likely than at the start of stage {index}, by "
            f"{-change:.3g} nats a token: raise rpo_weight, or take the loss sigmoid_norm.",
            level="warning",
        )
    after = count_faults(attempt, index, stage, "after", stage.steps)
    judged = None if after is None else judge(attempt, index, stage.steps)
    if after is None or judged is None:
        return None
    return {**judged, **made, "faults_before": rates_of(before), "faults_after": rates_of(after)}


def _take_steps(
    attempt: Attempt, index: int, last: int, method: str, names: dict[str, str]
) -> dict[str, float] | None:
    """Have the trainers take steps up to the last, a second's worth at a time; the last figures,
    empty where there was no step to take. None where the end was asked for."""
    step, chunk, told_at = attempt.start_step(index), 1, 0.0
    every, found = attempt.spec.checkpoint.every_steps, dict[str, float]()
    while step < last:
        if wait_while_paused(attempt):
            attempt.save(index, step)
            return None
        count = min(chunk, last - step, every - step % every)
        figures = attempt.crew.all_trainers(
            method, count, limit_s=limits.STEP_S, what="supervised steps"
        )[0]
        for found in figures:
            step += 1
            attempt.reporter.metrics(attempt.steps_before(index) + step, named(found, names))
        attempt.totals.trainer_step = attempt.steps_before(index) + step
        chunk = max(1, int(CHUNK_S / found["step_s"]))
        if step % every == 0 or step == last:
            attempt.save(index, step, final=step == last)
        if time.monotonic() - told_at >= TOLD_EVERY_S:
            told_at = time.monotonic()
            attempt.enter(index, step)
    return found
