"""How good runs are beside each other: completion rates, paired by task where the tasks are the
same, over seeds where runs are grouped, and the tasks that one solves and the other does not."""

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from django.db.models import Q

from engine.evaluation.comparison import Comparison
from engine.evaluation.comparison import compare as compare_trials
from engine.evaluation.intervals import Interval, difference, wilson
from engine.evaluation.student import Sample, mean_difference, mean_interval, sample
from engine.evaluation.trials import ByTask, Trials
from engine.spec.fork import same_tasks
from webapp.experiments.evaluations import Evaluation, read, trials_of, trials_of_each
from webapp.experiments.models import Run
from webapp.experiments.queries import config_differences
from webapp.experiments.run_groups import VARIANT, group_key, without_labels
from webapp.monitoring.headline import HEADLINE
from webapp.monitoring.models import RunEvent, Series
from webapp.problems import RefusedError, invalid_field

RATE = HEADLINE["success"]
LOW, HIGH = f"{RATE}_low", f"{RATE}_high"
TASKS = "eval/tasks"  # how many tasks the evaluation had
PAIRED, INDEPENDENT = "paired", "independent"
MOST_DIFFERENCES = 3  # that name a variant


@dataclass(frozen=True)
class Rate:
    """A run's completion rate in its newest evaluation on held-out tasks, or as it logged it."""

    run: Run
    evaluation: Evaluation | None  # None: there is none that this code reads
    value: float | None
    interval: Interval | None  # 95%; None: not known
    tasks: int | None


@dataclass(frozen=True)
class RateDifference:
    """A run's rate minus that of the run which it is measured against.

    `method` paired: by task, a bootstrap over tasks, and McNemar's p where each was played once;
    independent: Newcombe's from the two intervals, as the tasks are not known to be the same.
    """

    interval: Interval
    method: str
    p: float | None
    tasks: int | None  # of both; None: not paired
    left_out: int  # tasks of one only
    gained: int  # tasks of which it solves a larger share
    lost: int
    played_alike: bool  # at one temperature and number of trials


def newest_evaluations(runs: Sequence[Run]) -> dict[str, Evaluation]:
    """By run id: the newest evaluation on all held-out tasks, else the newest of any."""
    by_id = {run.pk: run for run in runs}
    rows = RunEvent.objects.filter(kind="evaluation", run__in=list(by_id)).select_related("attempt")
    newest = rows.alias(is_whole=Q(data__tasks="held_out")).order_by(
        "run", "-is_whole", "-at", "-pk"
    )
    found = {}
    for row in newest.distinct("run"):
        row.run = by_id[row.run_id]
        found[row.run_id] = read(row)
    return {pk: one for pk, one in found.items() if one is not None}


def rates(runs: Sequence[Run]) -> list[Rate]:
    """In the order of the runs, in three queries however many there are."""
    made = newest_evaluations(runs)
    told = _logged([run for run in runs if run.pk not in made])
    found = []
    for run in runs:
        one = made.get(run.pk)
        if one and one.report.completion:
            completion = one.report.completion
            found.append(Rate(run, one, completion.value, completion, one.report.tasks))
        else:
            found.append(_as_logged(run, told.get(run.pk, {})))
    return found


def _logged(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """By run and metric the newest finite values of what an evaluation logs of its rate."""
    rows = Series.objects.filter(
        run__in=[run.pk for run in runs], name__in=(RATE, LOW, HIGH, TASKS)
    )
    found: dict[str, dict[str, float]] = {}
    for run, name, value in rows.order_by("attempt__number").values_list(
        "run_id", "name", "last_value"
    ):
        if value is not None and math.isfinite(value):
            found.setdefault(run, {})[name] = value
    return found


def _as_logged(run: Run, told: dict[str, float]) -> Rate:
    """With the interval that was logged around it, else Wilson's from the number of tasks, if one
    was."""
    value = told.get(RATE, run.headline.get(RATE))
    tasks = int(told[TASKS]) if 1 <= told.get(TASKS, 0) < 2**53 else None
    interval = None
    if value is None or not 0 <= value <= 1:
        pass  # no rate, whatever was logged beside it
    elif 0 <= told.get(LOW, -1) <= value <= told.get(HIGH, -1) <= 1:
        interval = Interval(value, told[LOW], told[HIGH])
    elif tasks:
        interval = wilson(round(value * tasks), tasks)
    return Rate(run, None, value, interval, tasks)


def against_base(found: Sequence[Rate]) -> list[RateDifference | None]:
    """Each run against the first one; None for the first and where either has no rate."""
    if not found:
        return []
    base, *others = found
    paired = _paired(base, others)
    return [None, *(_difference(one, base, paired.get(one.run.pk)) for one in others)]


def _difference(one: Rate, base: Rate, paired: Comparison | None) -> RateDifference | None:
    if one.interval is None or base.interval is None:
        return None
    alike = True
    if one.evaluation and base.evaluation:
        alike = _conditions(one.evaluation) == _conditions(base.evaluation)
    if paired is None:
        apart = difference(one.interval, base.interval)
        return RateDifference(apart, INDEPENDENT, None, None, 0, 0, 0, alike)
    return RateDifference(
        paired.gain,
        PAIRED,
        paired.p,
        paired.tasks,
        paired.left_out,
        len(paired.gained),
        len(paired.lost),
        alike,
    )


def _conditions(one: Evaluation) -> tuple[int, float]:
    return one.trials, one.temperature


def _paired(base: Rate, others: Sequence[Rate]) -> dict[str, Comparison]:
    """By run id; those are missing whose tasks are not known to be the base's, or not known at
    all."""
    theirs = [one.evaluation for one in others if one.evaluation]
    if base.evaluation is None or not theirs:
        return {}
    ((_, before),) = trials_of_each([base.evaluation])
    found: dict[str, Comparison] = {}
    for one, after in trials_of_each(theirs):
        if before is None or after is None or not are_paired(base.run, one.run, before, after):
            continue
        with suppress(ValueError):  # nothing in common
            found[one.run.pk] = compare_trials(before, after)
    return found


def are_paired(first: Run, second: Run, before: ByTask, after: ByTask) -> bool:
    """Whether equal ids name equal tasks: the specs make the same ones, or all ids are the same.

    Ids are digests of a question's entity and relations; worlds of different seeds share a few of
    them by chance, with other answers.
    """
    return same_tasks(first.spec, second.spec) or before.keys() == after.keys()


@dataclass(frozen=True)
class Flips:
    """Two runs task by task: `comparison` is of the category that was asked for, or of all."""

    first: Evaluation
    second: Evaluation
    comparison: Comparison
    categories: dict[str, int]  # tasks of both by category


def flips(first: Run, second: Run, category: str = "") -> Flips:
    """Tasks that one of two runs solves and the other does not.

    Raises RefusedError: a run without an evaluation, tasks that are not the same, trials that were
    not reported, a category that no common task has.
    """
    made = newest_evaluations([first, second])
    for run in (first, second):
        if run.pk not in made:
            raise RefusedError(f"{run.name} has no evaluation on held-out tasks yet.", status=409)
    pair = made[first.pk], made[second.pk]
    before, after = trials_of(pair[0]), trials_of(pair[1])
    both = before.keys() & after.keys()
    if not both or not are_paired(first, second, before, after):
        raise RefusedError(
            f"{first.name} and {second.name} were not judged on the same tasks: their seed, "
            "environment or number of tasks differs.",
            status=409,
        )
    categories = Counter(before[task].category for task in both)
    if category and category not in categories:
        raise invalid_field("category", f"No common task is of the category {category!r}.")
    if category:
        before, after = _of_category(before, category), _of_category(after, category)
    try:
        compared = compare_trials(before, after)
    except ValueError:
        raise RefusedError("No task has a rated trial of both runs.", status=409) from None
    return Flips(*pair, compared, dict(sorted(categories.items())))


def _of_category(by_task: ByTask, category: str) -> dict[str, Trials]:
    return {task: of for task, of in by_task.items() if of.category == category}


@dataclass(frozen=True)
class RunGroup:
    """Runs that stand for one thing: repeats of a variant, or runs that agree in a field."""

    key: str | None
    label: str
    runs: list[Run]


def grouped(runs: Sequence[Run], word: str) -> list[RunGroup]:
    """The groups in the order of their first runs. `word`: see `run_groups.group_key`."""
    keys = dict(
        Run.objects.filter(pk__in=[run.pk for run in runs])
        .annotate(group_key=group_key(word))
        .values_list("pk", "group_key")
    )
    members: dict[str | None, list[Run]] = {}
    for run in runs:
        members.setdefault(keys[run.pk], []).append(run)
    labels = _variant_labels(members) if word == VARIANT else {}
    return [
        RunGroup(key, labels.get(key) or f"{word}={'not set' if key is None else key}", of)
        for key, of in members.items()
    ]


def _variant_labels(members: dict[str | None, list[Run]]) -> dict[str | None, str]:
    """What tells each variant from the others; the name of its first run where nothing does."""
    firsts = [of[0] for of in members.values()]
    told = config_differences([without_labels(run.spec) for run in firsts])[:MOST_DIFFERENCES]
    return {
        key: ", ".join(f"{row.path.rpartition('.')[2]}={row.values[at]}" for row in told)
        or firsts[at].name
        for at, key in enumerate(members)
    }


@dataclass(frozen=True)
class GroupRate:
    """Completion rates of a group's runs: their mean, and its difference from the first group's
    (Welch's interval). None: too few runs to say."""

    group: RunGroup
    sample: Sample | None
    interval: Interval | None
    difference: Interval | None


def group_rates(groups: Sequence[RunGroup], found: Sequence[Rate]) -> list[GroupRate]:
    by_run = {one.run.pk: one.value for one in found if one.value is not None}
    samples = []
    for group in groups:
        values = [by_run[run.pk] for run in group.runs if run.pk in by_run]
        samples.append(sample(values) if values else None)
    base = samples[0] if samples else None
    return [
        GroupRate(
            group,
            of,
            mean_interval(of) if of else None,
            mean_difference(of, base) if place and of and base else None,
        )
        for place, (group, of) in enumerate(zip(groups, samples, strict=True))
    ]
