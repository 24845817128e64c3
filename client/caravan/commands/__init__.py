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

app = typer.Typer(
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


def main() -> None:
    """The command `caravan` of the installed distribution."""
    app(prog_name="caravan")
