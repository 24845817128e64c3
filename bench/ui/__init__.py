"""The pages against their bars: server time, browser time, memory, live points, accessibility."""

from collections.abc import Callable

from bench.figures import Figure, Options
from bench.ui import _backtest, _lists, _live, _pages, axe
from bench.ui._place import Place, scaled_place

MINUTES = 10.0  # that a run's page stays open


def run(options: Options) -> list[Figure]:
    with scaled_place(options.say) as place:
        return measure(place, options.minutes or MINUTES)


def measure(place: Place, minutes: float) -> list[Figure]:
    """Every figure, on a server whose database `seed_demo --runs 21 --scale` has filled."""
    figures = []
    parts: tuple[tuple[str, Callable[[], list[Figure]]], ...] = (
        ("a chart of a million points", lambda: _lists.long_chart(place)),
        ("the table of runs", lambda: _lists.runs_table(place)),
        ("Compare", lambda: _pages.compare(place)),
        ("a long replay", lambda: _pages.replay(place)),
        ("a backtest", lambda: _backtest.backtest(place)),
        (f"live panels, {minutes:g} minutes", lambda: _live.live_panels(place, minutes)),
        ("accessibility", lambda: axe.everywhere(place)),
    )
    for name, part in parts:
        place.say(name)
        for figure in part():
            place.say(f"  {figure.metric} {figure.value:.4g} {figure.unit}: {figure.setup}")
            figures.append(figure)
    return figures
