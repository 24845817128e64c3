"""How good a run's weights are: its evaluations, one of them in full, two of them compared."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from engine.evaluation.comparison import Comparison, Flip
from engine.evaluation.funnel import CallFunnel
from engine.evaluation.pass_k import PassK
from webapp.experiments.evaluations import Evaluation, compared, evaluations_of
from webapp.experiments.models import Run
from webapp.experiments.pages.run import RUNS, run_context
from webapp.monitoring.overview import EVALUATION_PANELS, chart_data
from webapp.pages import page_of, show
from webapp.problems import RefusedError
from webapp.reviews.models import Trajectory

MOST_FLIPS = 50  # shown of each kind
WIDTH, HEIGHT, LEFT, BOTTOM = 320, 150, 40, 22  # px of the drawing of pass@k


@page_of(RUNS)
def evaluation(request: HttpRequest, run: Run) -> HttpResponse:
    """`?shown=` is the evaluation in full, `?first=` and `?second=` are compared; ids of ours."""
    made = evaluations_of(run)
    by_id = {str(one.id): one for one in made}
    shown = by_id.get(request.GET.get("shown", "")) or _newest(made)
    pair = [by_id.get(request.GET.get(name, "")) for name in ("first", "second")]
    context: dict[str, Any] = {
        "evaluations": list(reversed(made)),
        "shown": shown,
        "first": pair[0],
        "second": pair[1],
        "judging": run.children.filter(ended_at=None, spec__stages__1__kind="evaluate"),
        "story": _story([one for one in made if one.run == run]),
    }
    if shown:
        context |= {
            "funnel": _funnel(shown.report.calls),
            "curve": _curve(shown.report.passes),
        }
    if pair[0] and pair[1]:
        context |= _compared(pair[0], pair[1])
    context |= run_context(run, "evaluation") | chart_data(run, EVALUATION_PANELS)
    return show(request, "experiments/run_evaluation.html", context)


def _newest(made: list[Evaluation]) -> Evaluation | None:
    """Of all held-out tasks, where there is one."""
    final = [one for one in made if one.tasks == "held_out"]
    return next(reversed(final or made), None)


def _funnel(calls: CallFunnel) -> list[tuple[str, int, float]]:
    """(what, calls, share of all attempted) of each stage."""
    named = [
        (_("attempted"), calls.attempted),
        (_("parseable"), calls.parseable),
        (_("known tool"), calls.known_tool),
        (_("valid arguments"), calls.valid_arguments),
        (_("executed"), calls.executed),
        (_("useful"), calls.useful),
    ]
    return [(name, count, count / max(1, calls.attempted)) for name, count in named]


@dataclass(frozen=True)
class Curve:
    """Both curves as points of polylines, the ticks of k, and the lines of 0, 50 and 100%."""

    rows: list[PassK]
    at: list[tuple[float, float]]
    hat: list[tuple[float, float]]
    ticks: list[tuple[float, int]]
    levels: list[tuple[float, str]]
    width: int = WIDTH
    height: int = HEIGHT


def _curve(passes: list[PassK]) -> Curve | None:
    """None for one trial: nothing tells the two apart."""
    if len(passes) < 2:
        return None
    span, most = WIDTH - LEFT - 12, len(passes) - 1

    def y(share: float) -> float:
        return round(8 + (1 - share) * (HEIGHT - BOTTOM - 8), 1)

    xs = [round(LEFT + span * place / most, 1) for place in range(len(passes))]
    every = max(1, len(passes) // 8)
    return Curve(
        rows=passes,
        at=[(x, y(one.at)) for x, one in zip(xs, passes, strict=True)],
        hat=[(x, y(one.hat)) for x, one in zip(xs, passes, strict=True)],
        ticks=[(x, one.k) for x, one in zip(xs, passes, strict=True)][::every],
        levels=[(y(share), f"{share:.0%}") for share in (0.0, 0.5, 1.0)],
    )


def _story(made: list[Evaluation]) -> dict[str, float] | None:
    """First and last completion, and how many demonstrated tokens were the likeliest then."""
    told = [
        (one.report.completion.value, one.demonstrations["token_accuracy"])
        for one in made
        if one.report.completion and "token_accuracy" in one.demonstrations and one.is_scheduled
    ]
    if len(told) < 2:
        return None
    (first, accuracy), (last, last_accuracy) = told[0], told[-1]
    return {
        "first": first,
        "last": last,
        "accuracy": accuracy,
        "last_accuracy": last_accuracy,
        "parts": last > first and last_accuracy < accuracy,
    }


def _compared(first: Evaluation, second: Evaluation) -> dict[str, Any]:
    try:
        found = compared(first, second)
    except RefusedError as refused:
        return {"problem": refused.detail}
    stored = _stored(found, first.run.project_id)
    return {
        "comparison": found,
        "flips": [
            (_("solved now"), "good", _rows(found.gained, stored), len(found.gained)),
            (_("lost"), "bad", _rows(found.lost, stored), len(found.lost)),
        ],
    }


def _stored(found: Comparison, project: str) -> set[str]:
    """Ids of the trajectories of flipped tasks whose replays are there."""
    flips = [*found.gained[:MOST_FLIPS], *found.lost[:MOST_FLIPS]]
    wanted = [pk for flip in flips for pk in (flip.before_trajectory, flip.after_trajectory)]
    rows = Trajectory.objects.filter(pk__in=wanted, project=project)
    return set(rows.values_list("pk", flat=True))


def _rows(flips: list[Flip], stored: set[str]) -> list[dict[str, Any]]:
    return [
        {
            "flip": flip,
            "before": flip.before_trajectory if flip.before_trajectory in stored else "",
            "after": flip.after_trajectory if flip.after_trajectory in stored else "",
        }
        for flip in flips[:MOST_FLIPS]
    ]
