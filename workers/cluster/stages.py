"""The stages of a run: synthesise, reinforce through the pool; `supervised` has the others.

Each returns its summary, or None where the end was asked for; everything is saved then.
"""

import time
from statistics import fmean
from typing import Any

from engine.evaluation.plan import tasks_of
from engine.pool.admission import NoBatchError, Wanted
from engine.spec import EvaluateStage, OpdStage, RlStage
from engine.spec.opd import category_disagreements
from engine.spec.sampled import SampledStage
from workers.cluster import judging, limits, own_tasks, rehearsal, synthesised, teachers
from workers.cluster.attempt import Attempt
from workers.cluster.control import Latches
from workers.cluster.crew import LimitError
from workers.cluster.fetching import StoredRowsError, fetch_tasks, fetch_to_train_on
from workers.cluster.figures import RL_FIGURES, named
from workers.cluster.judging import Pending
from workers.cluster.pool_actor import Batch, PoolPlan
from workers.cluster.rewarding import sampling_metrics


def synthesise(attempt: Attempt, index: int) -> dict[str, Any] | None:
    """Make tasks, tokenizer and demonstrations, unless an earlier attempt has."""
    summary = synthesised.summary_of(attempt.storage.fetch(synthesised.FOLDER))
    if summary is None:
        attempt.enter(index)
        summary = attempt.crew.synthesise(attempt.storage.place)
    return summary


def judged_tasks(attempt: Attempt, index: int) -> bool:
    """Have the tasks that the run is judged by, before stage `index`; False where the end was asked
    for meanwhile."""
    version = attempt.spec.evaluation.dataset
    return version is None or fetch_tasks(attempt, index, version) is not None


def reinforce(attempt: Attempt, index: int, stage: SampledStage) -> dict[str, Any] | None:
    """Rollouts fill the pool, the trainer empties it, and each step publishes its weights."""
    tasks: dict[str, Any] = {}
    if stage.dataset is not None:
        fetched = fetch_to_train_on(attempt, index, stage.dataset)
        if fetched is None:
            return None
        tasks, categories = fetched
        _check_gate(attempt, categories, stage.dataset)
        if isinstance(stage, OpdStage):
            _check_teachers(index, stage, categories)
    attempt.begin(index)
    if isinstance(stage, RlStage) and (said := stage.notice()):
        attempt.reporter.log(said, level="warning")
    last = attempt.ended_at(index)
    if last is None:
        last = _take_steps(attempt, index, stage)
    summary = None if last is None else judge(attempt, index, last)
    if summary is not None and isinstance(stage, OpdStage):
        found = teachers.completion_by_category(attempt, index, stage)
        if values := teachers.completion_metrics(found):
            attempt.reporter.metrics(attempt.totals.trainer_step, values)
        summary["by_category"] = found
    return None if summary is None else {**summary, **tasks}


def _check_gate(attempt: Attempt, made: list[str], version: str) -> None:
    """Raises StoredRowsError where the gate's shares are not of the categories of the tasks that a
    version made."""
    shares = attempt.spec.pool.gate.shares
    if shares and (strange := sorted(shares.keys() ^ set(made))):
        raise StoredRowsError(
            f"The gate (pool.gate.shares) gives shares to {', '.join(sorted(shares))}, and dataset "
            f"version {version} has tasks of {', '.join(made)}: "
            f"{', '.join(strange)} stands on one side only."
        )


def _check_teachers(index: int, stage: OpdStage, made: list[str]) -> None:
    """Raises StoredRowsError where teachers and the tasks of the stage's dataset do not name the
    same categories."""
    if said := [one.message for one in category_disagreements(stage, made, f"stages.{index}")]:
        raise StoredRowsError(
            f"The teachers of stage {index} (stages.{index}.teachers) do not fit dataset version "
            f"{stage.dataset}. {' '.join(said)}"
        )


def _take_steps(attempt: Attempt, index: int, stage: SampledStage) -> int | None:
    """All steps of the stage, or those up to where its rule ends it; the number of the last one.
    None where the end was asked for."""
    step = start = attempt.start_step(index)
    every = attempt.spec.checkpoint.every_steps
    pool = _open_pool(attempt, index, stage, start)
    attempt.crew.switch_rollouts((index, pool))
    quick = _owed(attempt, index, start, stage)
    try:
        for step in range(start + 1, stage.steps + 1):
            attempt.enter(index, step - 1)
            asked_at = time.monotonic()
            try:
                batch = _next_batch(attempt, step, quick)
            except NoBatchError:
                _checkpoint(attempt, index, step - 1)
                raise
            if batch is None:
                _checkpoint(attempt, index, step - 1)
                return None
            if told := attempt.rewarding.look(batch.completed):
                attempt.reporter.log(told)
            waited_s = time.monotonic() - asked_at
            figures = attempt.crew.all_trainers(
                "learn_from_groups", step, pool, limit_s=limits.STEP_S, what=f"training step {step}"
            )[0]
            if attempt.rehearses:
                rehearsal.check_step(figures, index, stage.kind)
            attempt.totals.trainer_step = attempt.steps_before(index) + step
            _publish(attempt)
            _report(attempt, stage, figures, batch, waited_s)
            seen, quick = _evaluate_on_schedule(attempt, index, step, stage, quick)
            done = step == stage.steps or _is_enough(attempt, index, step, stage, seen)
            if done or step % every == 0:
                _checkpoint(attempt, index, step, final=done)
            if done:
                break
    finally:
        attempt.control.on_latches(None)
    if quick is not None:
        judging.finish(attempt, quick)
    attempt.crew.switch_rollouts(None)
    return step


def evaluate(attempt: Attempt, index: int, stage: EvaluateStage) -> dict[str, Any] | None:
    """Play tasks with the weights that the run has come to, or was started from."""
    plan = judging.plan_of(attempt, index, stage)
    attempt.load_parent(index)
    attempt.fetch_weights()
    tasks = own_tasks.judged(attempt.storage, attempt.spec, plan.tasks)
    trials = len(tasks_of(plan, tasks)) * plan.trials
    return judging.finish(
        attempt,
        judging.start(attempt, plan, index, 0),
        tell=lambda played: attempt.tell(index, played, trials),
    )


def _open_pool(attempt: Attempt, index: int, stage: SampledStage, start: int) -> Any:
    """The stage's pool, with what an earlier attempt left in it, and the first weights."""
    spec, pool = attempt.spec.pool, attempt.crew.pool
    plan = PoolPlan(
        stage=index,
        batch=stage.prompts_per_step,
        max_staleness=spec.max_staleness,
        capacity=spec.capacity,
        shares=dict(spec.gate.shares),
        max_wait_s=spec.gate.max_wait_s,
        attempt=attempt.number,
        committed_step=start,
        totals=attempt.totals,
        wanted=Wanted(stage.needs_spread(), stage.needs_reward(), stage.sampling_rounds())
        if not attempt.rehearses
        else Wanted(False, False),
        rehearses=attempt.rehearses,
    )
    newest = attempt.crew.wait([pool.open.remote(plan)], limits.START_S, "the pool to open")[0]
    if newest:  # an earlier attempt published up to here
        attempt.raise_version(newest + 1)
    _publish(attempt)

    def latch(latches: Latches) -> None:
        pool.latch.remote(latches.rollouts, latches.training)

    attempt.control.on_latches(latch)
    return pool


def _publish(attempt: Attempt) -> None:
    attempt.fetch_weights()
    call = attempt.crew.pool.publish.remote(
        attempt.version,
        attempt.weights,
        attempt.totals.trainer_step,
        attempt.rewarding.process_weight,
    )
    attempt.crew.wait([call], limits.CALL_S, "the pool to take the weights")


def _next_batch(attempt: Attempt, step: int, playing: Pending | None) -> Batch | None:
    """The groups of a step; None where the end was asked for. Neither a pause spends any of the
    limit, nor an evaluation that the rollout workers are at: it has one of its own."""
    left = float(limits.BATCH_S)
    while not attempt.control.wants_end:
        asked_at = time.monotonic()
        call = attempt.crew.pool.take.remote(step, limits.LONG_POLL_S)
        batch: Batch | None = attempt.crew.wait([call], limits.CALL_S, "the pool")[0]
        if batch is not None:
            return batch
        paused = attempt.control.latches.rollouts or attempt.control.latches.training
        if not paused and (playing is None or playing.is_done()):
            left -= time.monotonic() - asked_at
        if left <= 0:
            call = attempt.crew.pool.snapshot.remote()
            held = attempt.crew.wait([call], limits.CALL_S, "the pool")[0]
            raise LimitError(
                f"No batch for step {step} within {limits.BATCH_S} s: {held['waiting']} groups "
                f"wait, {held['produced']} were produced, discarded {held['discarded']}."
            )
    return None


def wait_while_paused(attempt: Attempt) -> bool:
    """Hold while training is paused; True where the end was asked for."""
    control = attempt.control
    while control.latches.training and not control.wants_end:
        attempt.crew.check()
        control.changed.wait(limits.LONG_POLL_S)
        control.changed.clear()
    return control.wants_end


def _checkpoint(attempt: Attempt, index: int, step: int, final: bool = False) -> None:
    """Save, then tell the pool that what was trained on up to here is consumed for good."""
    call = attempt.crew.pool.totals.remote()
    attempt.totals = attempt.crew.wait([call], limits.CALL_S, "the pool")[0]
    attempt.save(index, step, final)
    call = attempt.crew.pool.commit.remote(step)
    attempt.crew.wait([call], limits.SAVE_S, "the pool to commit")


def _evaluate_on_schedule(
    attempt: Attempt, index: int, step: int, stage: SampledStage, pending: Pending | None
) -> tuple[dict[str, Any] | None, Pending | None]:
    """Report the evaluation before, once it is there, and start the one that is due after this
    step; the first's summary, and the one under way.

    Training goes on meanwhile. After the last step all held-out tasks follow instead.
    """
    due, seen = _is_due(attempt, step, stage), None
    if pending is not None and (due or step == stage.steps or pending.is_done()):
        seen, pending = judging.finish(attempt, pending), None
    return seen, _start_quick(attempt, index, step) if due else pending


def _owed(attempt: Attempt, index: int, step: int, stage: SampledStage) -> Pending | None:
    """The evaluation after the step that the attempt goes on from, where one was due and the
    attempt that took the step did not live to report it."""
    if not step or not _is_due(attempt, step, stage):
        return None
    if judging.kept_outcomes(attempt, "quick", index, step) is not None:
        return None
    return _start_quick(attempt, index, step)


def _is_due(attempt: Attempt, step: int, stage: SampledStage) -> bool:
    return step % attempt.spec.evaluation.every_steps == 0 and step < stage.steps


def _start_quick(attempt: Attempt, index: int, step: int) -> Pending:
    return judging.start(attempt, judging.scheduled(attempt, "quick"), index, step)


def _is_enough(
    attempt: Attempt, index: int, step: int, stage: SampledStage, seen: dict[str, Any] | None
) -> bool:
    """Whether the stage's rule ends it here, which the log is told."""
    wanted, low = stage.stop_at_completion, (seen or {}).get("completion_rate_low")
    if wanted is None or low is None or low < wanted:
        return False
    attempt.reporter.log(
        f"Stage {index} ({stage.kind}) ends after {step} of {stage.steps} steps: completion on the "
        f"quick tasks is at least {low:.1%}, and stop_at_completion is {wanted:.1%}."
    )
    return True


def judge(attempt: Attempt, index: int, step: int) -> dict[str, Any] | None:
    """Play all held-out tasks with the weights at the end of a stage; the stage's summary."""
    attempt.fetch_weights()
    attempt.control.at("evaluate", index, step)
    plan = judging.scheduled(attempt, "held_out")
    return judging.finish(attempt, judging.start(attempt, plan, index, step))


def _report(
    attempt: Attempt,
    stage: SampledStage,
    figures: dict[str, float],
    batch: Batch,
    waited_s: float,
) -> None:
    lags = [float(lag) for lag in batch.staleness]
    values = {
        **named(figures, RL_FIGURES),
        **teachers.step_metrics(figures),
        "pool/staleness_mean": fmean(lags),
        "pool/staleness_max": max(lags),
        "pool/wait_s": waited_s,
        **sampling_metrics(batch.sampled, stage.prompts_per_step),
        **attempt.rewarding.metrics(batch.completed),
    }
    attempt.reporter.metrics(attempt.totals.trainer_step, values)
