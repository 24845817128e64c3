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
for group in (recipes, queue, sweep, trajectories, checkpoints, rewards, datasets, jobs, tokens):
    app.add_typer(group.app)


def main() -> None:
    """The command `caravan` of the installed distribution."""
    app(prog_name="caravan")
