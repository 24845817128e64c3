"""Following a run: a panel that redraws itself on a terminal, a line per change elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from caravan.commands.shared import (
    INTERRUPTED,
    RUN_FAILED,
    cell,
    emit,
    number,
    percent,
    span,
    table,
)
from caravan.errors import AccessError
from caravan.text import one_line, sparkline

if TYPE_CHECKING:
    from rich.console import RenderableType

    from caravan.client import Client

ENDED = ("succeeded", "stopped", "failed", "interrupted", "lost")
COMPLETION = "eval/completion_rate"
# Label -> metric, in the order of the panel.
SHOWN = {
    "completion, held out": COMPLETION,
    "completion, rollouts": "rollout/success",
    "reward": "rollout/reward_mean",
    "loss of SFT": "sft/loss",
    "loss": "train/loss",
}
RATES = (COMPLETION, "rollout/success")
POLL_S = 1.0
PATIENCE_S = 60.0  # an outage of the web tier ends no watch that is shorter


@dataclass
class Followed:
    """What is known of the run that is watched."""

    run: dict[str, Any]
    values: dict[str, list[float]] = field(default_factory=dict)  # metric -> finite, in time
    cursor: int = 0
    silent_since: float | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """What a change is told of."""
        names = ("id", "state", "state_reason", "phase", "stage", "step", "steps", "headline")
        return {name: self.run[name] for name in names}


def follow(client: "Client", run_id: str, as_json: bool = False) -> int:
    """Show a run until it ends; the exit code. Ctrl-C leaves it running."""
    followed = Followed(client.run(run_id))
    live = not as_json and sys.stdout.isatty()
    try:
        with _screen(followed) if live else nullcontext() as screen:
            told: dict[str, Any] = {}
            for _ in _polls(client, followed):
                if screen is not None:
                    screen.update(panel(followed))
                elif _told(followed) != told:
                    told = _told(followed)
                    emit(followed.summary) if as_json else print(line(followed), flush=True)
    except KeyboardInterrupt:
        print(f"\nThe run goes on; `caravan watch {run_id}` follows it again.", file=sys.stderr)
        return INTERRUPTED
    run = followed.run
    if not as_json:
        reason = f": {one_line(run['state_reason'], 500)}" if run["state_reason"] else "."
        print(f"{run['id']} {run['state']} after {span(run['elapsed_s'])}{reason}")
    return 0 if run["state"] == "succeeded" else RUN_FAILED


def _polls(client: "Client", followed: Followed) -> Iterator[None]:
    """Once for each time that the run was asked for, until it has ended."""
    while True:
        try:
            read_points(client, followed)
            followed.silent_since = None
        except AccessError:
            now = time.monotonic()
            followed.silent_since = followed.silent_since or now
            if now - followed.silent_since > PATIENCE_S:
                raise
        yield
        if followed.run["state"] in ENDED:
            return
        time.sleep(POLL_S)
        try:
            followed.run = client.run(followed.run["id"])
        except AccessError:
            followed.silent_since = followed.silent_since or time.monotonic()


def read_points(client: "Client", followed: Followed) -> None:
    while True:
        found = client.points(followed.run["id"], list(SHOWN.values()), followed.cursor)
        news = [
            (at, series["name"], value)
            for series in found["series"]
            for _, at, value in series["points"]
            if isinstance(value, int | float)
        ]
        for _, name, value in sorted(news):
            followed.values.setdefault(name, []).append(value)
        followed.cursor = found["cursor"]
        if not found["more"]:
            return


def line(followed: Followed) -> str:
    """One line for a log: time, state, where it is, completion rate."""
    run = followed.run
    parts = [f"{datetime.now(UTC):%H:%M:%S}Z", run["state"], *_where(run)]
    if COMPLETION in run["headline"]:
        parts.append(f"completion {percent(run['headline'][COMPLETION])}")
    return "  ".join(parts)


def panel(followed: Followed) -> "RenderableType":
    """The run on a terminal: state, stage, step with its bar, and the metrics with sparklines."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    run = followed.run
    head = Text.assemble((one_line(run["name"]), "bold"), f"  {run['id']}  ")
    head.append(run["state"], "bold")
    head.append("  " + "  ".join(_where(run)))
    if followed.silent_since is not None:
        head.append("  the server is not reached, trying again", "yellow")
    rows = table("", "", "")
    for label, name in SHOWN.items():
        values = followed.values.get(name, [])
        if values:
            value = (percent if name in RATES else number)(values[-1])
            rows.add_row(cell(label), cell(value), Text(sparkline(values)))
    times = f"{span(run['elapsed_s'])} so far"
    if run["left_s"] is not None:
        times += f", about {span(run['left_s'])} left"
    bar = ProgressBar(total=max(run["steps"], 1), completed=run["step"], width=60)
    return Group(head, bar, Text(times, "dim"), rows)


def _where(run: dict[str, Any]) -> list[str]:
    # Counted from 0, as in `stages.2.steps`; how far it has come is said beside it.
    stage = f"stage {run['stage']} ({run['stage'] + 1} of {len(run['spec'].get('stages', ()))})"
    step = f"step {run['step']}/{run['steps']}" if run["steps"] else f"step {run['step']}"
    return [one_line(run["phase"]) or "waiting", stage, step]


def _told(followed: Followed) -> dict[str, Any]:
    """What is worth a new line: not every step of a long stage."""
    run = followed.run
    tenth = 10 * run["step"] // run["steps"] if run["steps"] else 0
    names = ("state", "phase", "stage")
    return {**{name: run[name] for name in names}, "tenth": tenth, "completion": _rate(run)}


def _rate(run: dict[str, Any]) -> float | None:
    found: float | None = run["headline"].get(COMPLETION)
    return found


def _screen(followed: Followed) -> AbstractContextManager[Any]:
    from rich.live import Live

    return Live(panel(followed), refresh_per_second=4)
