"""The commands of `./caravan`."""

import shlex
from typing import Annotated

import typer

from workers.local.places import find_places

app = typer.Typer(help="Caravan, the control plane for agentic RL.", no_args_is_help=True)


@app.command()
def up(
    port: Annotated[
        int | None, typer.Option(help="Port of the pages; a free one if left out.")
    ] = None,
    only: Annotated[
        str, typer.Option(help="Start only these services, comma-separated (postgres,valkey).")
    ] = "",
    demo: Annotated[bool, typer.Option(help="Launch the quick start once per database.")] = True,
) -> None:
    """Start everything and watch over it until Ctrl-C."""
    from workers.local.up import Options
    from workers.local.up import up as run_up

    chosen = tuple(name for name in only.split(",") if name)
    run_up(find_places(), Options(port=port, demo=demo, only=chosen))


@app.command()
def env() -> None:
    """Print the environment of this stack's processes, for `eval "$(./caravan env)"`."""
    from workers.local.up import environment

    for name, value in environment(find_places()).items():
        print(f"export {name}={shlex.quote(value)}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def test(context: typer.Context) -> None:
    """Run the tests on their own services; arguments go to pytest."""
    from cli.testing import run_tests

    raise typer.Exit(run_tests(context.args))
