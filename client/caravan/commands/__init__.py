"""The remote commands: `caravan launch`, `runs`, `watch`, ... Everything heavy loads on use."""

import typer

from caravan.commands import (
    checkpoints,
    compare,
    datasets,
    fork,
    jobs,
    launch,
    login,
    queue,
    recipes,
    review,
    rewards,
    runs,
    sweep,
    sync,
    tokens,
    trajectories,
    tried,
)
from caravan.commands.shared import ACCESS, MATERIAL, RUNS, Arranged, arrange

app = typer.Typer(
    cls=Arranged,
    help="Caravan, the control plane for agentic RL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for module in (login, launch, fork, tried, runs, compare, sync):
    module.add_to(app)
GROUPS = (
    recipes, queue, sweep, trajectories, checkpoints, rewards, datasets, review, jobs, tokens,
)  # fmt: skip
for group in GROUPS:
    app.add_typer(group.app)
arrange(
    app,
    {
        RUNS: ("launch", "runs", "watch", "stop", "resume", "compare", "fork", "evaluate", "try",
                 "archive", "delete", "sweep", "queue"),
        MATERIAL: (
            "recipes", "trajectories", "checkpoints", "rewards", "datasets", "review", "jobs"),
        ACCESS: ("login", "tokens", "sync"),
    },
)  # fmt: skip


def main() -> None:
    """The command `caravan` of the installed distribution."""
    app(prog_name="caravan")
