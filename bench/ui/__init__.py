"""The pages against their bars: server time, browser time, memory, live points, accessibility."""

from collections.abc import Callable

from bench.figures import Figure, Options
from bench.ui import _backtest, _lists, _live, _pages, _usable
from bench.ui._place import Place, done, place_of
from workers.local.scratch import scratch_stack

SERVICES = ("postgres", "valkey", "web", "ingest", "jobs", "beat")
MINUTES = 10.0  # that a run's page stays open


def run(options: Options) -> list[Figure]:
    with scratch_stack(SERVICES, durable=True) as stack:
        done(
            stack.python("-m", "webapp.manage", "seed_demo", "--runs", "21", "--scale"),
            lambda line: options.say(f"  {line}"),
        )
        with place_of(stack, options.say) as place:
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
        ("accessibility", lambda: _usable.everywhere(place)),
    )
    for name, part in parts:
        place.say(name)
        for figure in part():
            place.say(f"  {figure.metric} {figure.value:.4g} {figure.unit}: {figure.setup}")
            figures.append(figure)
    return figures
