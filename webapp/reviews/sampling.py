"""Which trajectories of a run a review queue takes, and why: the newest, a random sample, groups
that disagree, outliers of the reward, tasks that were solved before and fail now."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Literal, NamedTuple

from engine.evaluation.trials import SOLVED, ByTask
from webapp.experiments.evaluations import evaluations_of, trials_of, trials_of_each
from webapp.experiments.models import Run
from webapp.problems import invalid_field
from webapp.reviews.models import QueueItem
from webapp.reviews.queries import NEWEST_FIRST, Filter, matching
from webapp.reviews.rubric import Style

Kind = Literal["newest", "random", "disagreement", "outliers", "newly_failing"]
MOST_LOOKED_AT = 100_000  # trajectories of a run, the newest
OUTLIER_Z = 3.5  # Iglewicz and Hoaglin (1993), section 3.3
LEAST_OF_PEERS = 20  # rewards of which one can lie beyond a twentieth
EARLIER = 20  # evaluations before the newest one in which a task may have been solved


class Row(NamedTuple):
    id: str
    group: str
    task: str
    category: str
    reward: float | None
    success: bool


@dataclass(frozen=True)
class Pick:
    """`reason` is shown to reviewers; `other` is the second of two, in a pairwise queue."""

    trajectory: str
    reason: dict[str, Any] = field(default_factory=dict)
    other: str | None = None


@dataclass(frozen=True)
class Picked:
    """`matching` trajectories pass the filter, `found` items could be taken, `picks` are."""

    matching: int
    found: int
    picks: list[Pick]


def pick(
    run: Run, wanted: Filter, kind: Kind, size: int, *, style: Style = "single", seed: int = 0
) -> Picked:
    """At most `size` items. `seed`: of what is random, so that a preview shows what will be made.

    Raises RefusedError where the run has nothing that this kind could go by.
    """
    rows = _rows(run, wanted)
    rng = random.Random(seed)
    if kind == "newest":
        found: list[Pick] = [Pick(row.id) for row in rows]
    elif kind == "random":
        found = [Pick(row.id) for row in rng.sample(rows, len(rows))]
    elif kind == "disagreement":
        found = disagreeing(rows, _labels(run), rng)
    elif kind == "outliers":
        found = outliers(rows)
    else:
        found = _newly_failing(run, rows)
    if style == "pairwise":
        found = list(paired(found, rows, rng))
    kept = found[:size]
    if kind == "disagreement" and style == "single" and len(kept) < len(found):
        kept = kept[: size - size % 2]  # both sides of a group, or neither
    return Picked(len(rows), len(found), kept)


def _rows(run: Run, wanted: Filter) -> list[Row]:
    columns = ("id", "group_id", "task_id", "category", "reward", "success", "cursor")
    found = matching(run, wanted).order_by(*NEWEST_FIRST).values_list(*columns)
    return [Row(*row[:-1]) for row in found[:MOST_LOOKED_AT]]


def _labels(run: Run) -> dict[str, bool]:
    """Whether people accepted a trajectory, by its id, where they agreed."""
    judged = QueueItem.objects.filter(
        trajectory__run=run, other=None, outcome__in=["accepted", "rejected"]
    )
    return {pk: said == "accepted" for pk, said in judged.values_list("trajectory", "outcome")}


def _groups(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Without those of no group: a trainer of one's own may name none."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.group:
            found.setdefault(row.group, []).append(row)
    return found


def disagreeing(rows: Sequence[Row], labels: dict[str, bool], rng: random.Random) -> list[Pick]:
    """Two of each group at a time, one of each side: solved and failed, or where all came to the
    same, one that people judged otherwise than the reward and one that they did not."""
    rounds: list[list[Pick]] = []
    for members in _groups(rows).values():
        one = [row for row in members if row.success]
        two = [row for row in members if not row.success]
        reason = {"kind": "outcomes", "solved": len(one), "failed": len(two)}
        if not (one and two):
            one = [r for r in members if r.id in labels and labels[r.id] != r.success]
            contradicted = {r.id for r in one}
            two = [r for r in members if r.id not in contradicted]
            reason = {"kind": "labels", "contradicted": len(one), "members": len(members)}
        for index, both in enumerate(zip(one, two, strict=False)):
            if index == len(rounds):
                rounds.append([])
            rounds[index] += [Pick(row.id, reason) for row in rng.sample(both, 2)]
    return [pick for same_round in rounds for pick in same_round]


def robust_z(values: Sequence[float]) -> list[float]:
    """Distances from the median in robust standard deviations: the span from the 5th to the 95th
    percentile, which is 3.29 of a normal distribution's, or 1.2533 mean absolute deviations where
    that span is nothing.

    The median absolute deviation of Iglewicz and Hoaglin (1993) takes the lesser peak of two for
    outliers, up to half of all values. Here nothing between the two percentiles ever has a z of
    3.29, however many peaks there are: at most a twentieth on each side lies beyond.
    """
    rising, middle = sorted(values), median(values)
    beyond = len(rising) // 20  # values on each side, which the span leaves out
    span = rising[-1 - beyond] - rising[beyond]
    scale = span / 3.2897 or 1.253314 * fmean(abs(value - middle) for value in values)
    return [(value - middle) / scale if scale else 0.0 for value in values]


def outliers(rows: Sequence[Row]) -> list[Pick]:
    """The farthest from the middle of their peers first. Peers are of one category and came to the
    same, solved or not, as a reward has a peak for each of the two."""
    peers: dict[tuple[str, bool], list[tuple[str, float]]] = {}
    for row in rows:
        if row.reward is not None:
            peers.setdefault((row.category, row.success), []).append((row.id, row.reward))
    found = []
    for (_, solved), members in peers.items():
        if len(members) < LEAST_OF_PEERS:
            continue
        scores = robust_z([reward for _, reward in members])
        for (pk, _), z in zip(members, scores, strict=True):
            if abs(z) >= OUTLIER_Z:
                found.append((z, pk, solved))
    return [
        Pick(pk, {"kind": "outlier", "z": round(z, 1), "solved": solved})
        for z, pk, solved in sorted(found, key=lambda one: -abs(one[0]))
    ]


def paired(picks: Sequence[Pick], rows: Sequence[Row], rng: random.Random) -> Iterator[Pick]:
    """Each trajectory with another of its group, of the other outcome if there is one; each in one
    pair only, in an order that says nothing."""
    by_id, groups, used = {row.id: row for row in rows}, _groups(rows), set[str]()
    for pick in picks:
        if pick.trajectory in used:
            continue
        row = by_id[pick.trajectory]
        others = [r for r in groups.get(row.group, ()) if r.id != row.id and r.id not in used]
        if not others:
            continue
        other = next((r for r in others if r.success != row.success), others[0])
        used |= {row.id, other.id}
        first, second = rng.sample([row.id, other.id], 2)
        yield Pick(first, pick.reason, second)


def _newly_failing(run: Run, rows: Sequence[Row]) -> list[Pick]:
    """Failed trajectories of the run's newest evaluation whose tasks an earlier one, one of the run
    it started from, or the newest of the experiment's baseline solved in at least half of its
    trials."""
    own = evaluations_of(run)
    newest = next((one for one in reversed(own) if one.run.pk == run.pk), None)
    if newest is None:
        raise invalid_field("sample", "This run has no evaluation: none of its tasks fails newly.")
    earlier = [one for one in own if one.at < newest.at][-EARLIER:]
    if run.parent is not None:
        earlier = evaluations_of(run.parent)[-1:] + earlier
    baseline = run.experiment.baseline
    if baseline is not None and baseline.pk != run.pk:
        earlier = evaluations_of(baseline)[-1:] + earlier
    played = trials_of(newest)
    failing = _shown(played, False).keys()
    now = {
        pk
        for of in played.values()
        for pk, said in zip(of.trajectories, of.results, strict=True)
        if said != SOLVED
    }
    shown: dict[int, dict[str, str]] = {}
    for one, trials in trials_of_each(earlier, ids=True):
        # One whose trials were not all reported says nothing about any task.
        solved = _shown(trials or {}, True)
        shown[one.id] = {task: pk for task, pk in solved.items() if task in failing}
    before: dict[str, dict[str, Any]] = {}
    for one in earlier:
        for task, trajectory in shown.get(one.id, {}).items():
            before[task] = {
                "kind": "newly_failing",
                "run": one.run.pk,
                "name": one.run.name,
                "step": one.step,
                "trajectory": trajectory,
            }
    return [Pick(row.id, before[row.task]) for row in rows if row.id in now and row.task in before]


def _shown(played: ByTask, solved: bool) -> dict[str, str]:
    """By task that was solved in at least half of its rated trials (or was not), a trajectory that
    shows it."""
    return {
        task: of_task.example(solved)
        for task, of_task in played.items()
        if of_task.rated and (of_task.rate >= 0.5) == solved
    }
