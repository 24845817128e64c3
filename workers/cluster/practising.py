"""What a stage has its trainers learn: of practice or of a dataset; and errors counted."""

from typing import Any

from engine.evaluation.intervals import wilson
from engine.spec import DpoStage
from engine.spec.practice import PracticeSpec
from engine.synthesis.repair import Faults
from workers.cluster import limits, practised, stored_rows
from workers.cluster.attempt import Attempt
from workers.cluster.fetching import StoredRowsError, fetch, fetch_to_train_on
from workers.cluster.played import Play


def practise(attempt: Attempt, index: int, practice: PracticeSpec) -> dict[str, Any] | None:
    """Play the practice tasks and make of them what the stage learns from, unless an earlier
    attempt has; its summary. None where the end was asked for.

    Raises StoredRowsError where a dataset has no task to play.
    """
    tasks: dict[str, Any] = {}
    if practice.dataset is not None:
        fetched = fetch_to_train_on(attempt, index, practice.dataset)
        if fetched is None:
            return None
        tasks, _ = fetched
    found = practised.summary(attempt.storage, index)
    if found is None:
        attempt.control.at("practise", index, 0)
        if not _play(attempt, practised.practice_play(attempt.spec, index, practice)):
            return None
        found = _make(attempt, index, "the practice to be read")
    return {**found, **tasks}


def read_rows(attempt: Attempt, index: int, version: str) -> dict[str, Any] | None:
    """Fetch the rows of a dataset's version and make of them what the stage learns from, unless an
    earlier attempt has; its summary. None where the end was asked for.

    Raises StoredRowsError where there is nothing in it to learn.
    """
    made = practised.summary(attempt.storage, index)
    if made is None:
        attempt.control.at("fetch dataset", index, 0)
        if not fetch(attempt, version):
            return None
        made = _make(attempt, index, "the dataset to be read")
    said = stored_rows.told(made)
    if not made["rows_used"]:
        raise StoredRowsError(f"Stage {index} has nothing to learn: {said}")
    attempt.reporter.log(said, level="warning" if made["rows_refused"] else "info")
    return made


def _make(attempt: Attempt, index: int, what: str) -> dict[str, Any]:
    call = attempt.crew.trainers[0].practised.remote(index, attempt.rehearses)
    made: dict[str, Any] = attempt.crew.wait([call], limits.STEP_S, what)[0]
    return made


def _play(attempt: Attempt, wish: Play) -> bool:
    """Have the rollout workers play tasks with the trainer's weights onto the run's storage; False
    where the end was asked for meanwhile."""
    attempt.fetch_weights()
    version, weights = attempt.version, attempt.weights
    call = attempt.crew.seats.ask("play", lambda part, parts: (wish, part, parts, version, weights))
    what = f"the {wish.tasks} tasks to be played"
    found = attempt.crew.gather(
        call, limits.EVALUATE_S, what, until=lambda: attempt.control.wants_end
    )
    return found is not None


def take_up(attempt: Attempt, index: int) -> None:
    """Have every rank load what was made, with the reference of the stage's start."""
    known = practised.reference(attempt.storage, index) is not None
    if not known and attempt.start_step(index) and isinstance(attempt.spec.stages[index], DpoStage):
        raise FileNotFoundError(
            f"Stage {index} goes on from step {attempt.start_step(index)}, and the "
            "log-probabilities of its start are not on the run's storage any more."
        )
    attempt.crew.all_trainers(
        "take_up", index, known, limit_s=limits.STEP_S, what="the trainers to load what is learned"
    )


def count_faults(
    attempt: Attempt, index: int, stage: DpoStage, when: str, step: int
) -> Faults | None:
    """Errors on held-out tasks; None where the end was asked for."""
    attempt.control.at("evaluate", index, step)
    play = practised.held_out_play(attempt.spec, index, stage, when)
    if (when == "after" or not attempt.start_step(index)) and not _play(attempt, play):
        return None
    call = attempt.crew.trainers[0].faults.remote(play)
    found: Faults = attempt.crew.wait([call], limits.STEP_S, "the errors to be counted")[0]
    rates = {f"dpo/error_rate/{name}": found.rate(name) for name in sorted(found.by_class)}
    total = {"dpo/error_rate": found.by_class.total() / found.calls} if found.calls else {}
    attempt.reporter.metrics(attempt.steps_before(index) + step, {**total, **rates})
    return found


def rates_of(found: Faults) -> dict[str, Any]:
    """With Wilson's 95% intervals, for the stage's summary."""
    rates = {}
    for name, count in sorted(found.by_class.items()):
        rate = wilson(count, found.calls)
        rates[name] = {"count": count, "low": rate.lower, "rate": rate.value, "high": rate.upper}
    return {
        "calls": found.calls,
        "trajectories": found.trajectories,
        "successes": found.successes,
        "classes": rates,
    }


def classes_of(made: dict[str, Any]) -> str:
    """What became of the errors of each class, in words."""
    said = [
        f"{name}: " + ", ".join(f"{count} {what}" for what, count in counts.items())
        for name, counts in made["classes"].items()
    ]
    return "; ".join(said) + "." if said else "No class of errors occurred."
