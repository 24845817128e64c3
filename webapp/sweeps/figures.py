"""Pictures of a sweep as coordinates: the metric over trials, and over each field that varies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webapp.sweeps.models import Trial, TrialState
from webapp.sweeps.plan import Choice, Dimension, LogUniform, SweepPlan
from webapp.sweeps.queries import SweepDetail
from webapp.templating import significant, written

WIDTH, HEIGHT = 320, 150  # of the area in which dots lie, in units of the picture
TICKS = 6  # names of choices below a picture, at most


@dataclass(frozen=True)
class Dot:
    x: str
    y: str
    look: str  # best, complete or pruned
    label: str
    band: str  # path of the interval of a mean over seeds; else empty


@dataclass(frozen=True)
class Tick:
    x: str
    anchor: str  # start, middle or end: where the text stands
    text: str


@dataclass(frozen=True)
class Picture:
    title: str
    dots: list[Dot]
    ticks: list[Tick]
    low: str  # of the metric
    high: str
    best: str  # path of the best value so far, over trials; else empty


@dataclass(frozen=True)
class Heights:
    """Where the values of trials lie, with the ends of their intervals over seeds."""

    of: list[float]
    bands: list[tuple[float, float] | None]
    low: float  # of the metric, at the bottom
    high: float


def pictures(detail: SweepDetail, shown: Sequence[Trial]) -> list[Picture]:
    """One over trials and one for each field; none before two trials have a value.

    `shown`: trials with a value, by their number."""
    if len(shown) < 2:
        return []
    heights = _heights(shown)
    best = detail.best.pk if detail.best else None
    found = [_over_trials(detail.plan, shown, heights, best)]
    return found + [_over_field(one, shown, heights, best) for one in detail.plan.space]


def _heights(shown: Sequence[Trial]) -> Heights:
    values = [one.value for one in shown if one.value is not None]
    bands = [one.band for one in shown]
    ends = [end for band in bands if band for end in (band.lower, band.upper)]
    low, high = min([*values, *ends]), max([*values, *ends])

    def scaled(*of: float) -> list[float]:
        return _scaled(list(of), low, high, HEIGHT, upwards=True)

    lines = [None if band is None else tuple(scaled(band.lower, band.upper)) for band in bands]
    return Heights(scaled(*values), [(one[0], one[1]) if one else None for one in lines], low, high)


def _over_trials(
    plan: SweepPlan, shown: Sequence[Trial], heights: Heights, best: int | None
) -> Picture:
    numbers = [float(one.number) for one in shown]
    across = _scaled(numbers, 0, max(numbers), WIDTH)
    ticks = [Tick("0", "start", "1"), Tick(f"{WIDTH}", "end", str(shown[-1].number + 1))]
    return _picture(
        "trial", shown, across, heights, ticks, best, _best_so_far(plan, shown, across, heights.of)
    )


def _over_field(
    one: Dimension, shown: Sequence[Trial], heights: Heights, best: int | None
) -> Picture:
    given = [trial.params.get(one.path) for trial in shown]
    if isinstance(one, Choice):
        last = max(len(one.values) - 1, 1)
        across = [WIDTH * _position(one.values, value) / last for value in given]
        ticks = [
            Tick(f"{WIDTH * at / last:.1f}", _anchor(at, last), str(value)[:12])
            for at, value in enumerate(one.values)
            if len(one.values) <= TICKS or at in (0, last)
        ]
    else:
        scale = math.log if isinstance(one, LogUniform) else float
        low, high = scale(one.low), scale(one.high)
        across = _scaled([scale(value) for value in given], low, high, WIDTH)
        ticks = [
            Tick("0", "start", written(float(one.low))),
            Tick(f"{WIDTH}", "end", written(float(one.high))),
        ]
    return _picture(one.path, shown, across, heights, ticks, best)


def _picture(
    title: str,
    shown: Sequence[Trial],
    across: list[float],
    heights: Heights,
    ticks: list[Tick],
    best: int | None,
    line: str = "",
) -> Picture:
    dots = [
        Dot(
            f"{x:.1f}",
            f"{y:.1f}",
            "best" if trial.pk == best else str(trial.state),
            f"{trial.number + 1}: {significant(trial.value or 0.0)}",
            f"M{x:.1f} {band[0]:.1f}V{band[1]:.1f}" if band else "",
        )
        for trial, x, y, band in zip(shown, across, heights.of, heights.bands, strict=True)
    ]
    dots.sort(key=lambda dot: dot.look == "best")  # drawn last, above the others
    return Picture(title, dots, ticks, significant(heights.low), significant(heights.high), line)


def _best_so_far(
    plan: SweepPlan, shown: Sequence[Trial], across: list[float], heights: list[float]
) -> str:
    """A line in steps over complete trials; pictures grow downwards, so better may be lower."""
    path: list[str] = []
    best: float | None = None
    for trial, x, y in zip(shown, across, heights, strict=True):
        if trial.state != TrialState.COMPLETE:
            continue
        if best is None:
            best = y
            path.append(f"M{x:.1f} {y:.1f}")
        better = min(best, y) if plan.maximises else max(best, y)
        path.append(f"H{x:.1f}" if better == best else f"H{x:.1f}V{better:.1f}")
        best = better
    return "".join(path)


def _scaled(
    values: list[float], low: float, high: float, size: int, upwards: bool = False
) -> list[float]:
    if high <= low:
        return [size / 2] * len(values)
    shares = [(value - low) / (high - low) for value in values]
    return [size * (1 - share if upwards else share) for share in shares]


def _position(values: list[Any], value: Any) -> int:
    return values.index(value) if value in values else 0


def _anchor(at: int, last: int) -> str:
    return "start" if at == 0 else "end" if at == last else "middle"
