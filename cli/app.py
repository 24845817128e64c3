"""The commands of `./caravan` in a checkout; remote ones come from the client package."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from caravan.commands.shared import RUNS, STACK, WORKSHOP, Arranged
from cli import plan
from workers.local.places import CHECKOUT, UserError, find_places

app = typer.Typer(
    cls=Arranged,
    help="Caravan, the control plane for agentic RL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(plan.app, name="plan", rich_help_panel=RUNS)
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
NOT_RUNNING = 3
VLLM = CHECKOUT / ".venv-vllm"


@app.command(rich_help_panel=STACK)
def up(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of the pages.")] = None,
    host: Annotated[str, typer.Option(help="Address the pages listen on.")] = "127.0.0.1",
    url: Annotated[str, typer.Option(help="What people type, if not that address.")] = "",
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy in front speaks TLS.")
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    demo: Annotated[bool, typer.Option(help="Launch the quick start once per database.")] = True,
    only: Annotated[str, typer.Option(help="Start only these services: postgres,valkey,...")] = "",
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when it is up; survives logout.")
    ] = False,
) -> None:
    """Start everything and watch over it until Ctrl-C."""
    from workers.local import control
    from workers.local.local_layout import Exposure
    from workers.local.stack import Options
    from workers.local.up import up as run_up

    exposure = Exposure(host, url, behind_proxy, tls_cert, tls_key)
    exposure.check()
    if detach:
        given = sys.argv[sys.argv.index("up") + 1 :]
        control.up_detached(find_places(), [a for a in given if a not in ("--detach", "-d")])
        return
    chosen = tuple(name for name in only.split(",") if name)
    run_up(find_places(), Options(exposure, port, demo, chosen))


@app.command(rich_help_panel=STACK)
def down() -> None:
    """Stop everything: runs save a checkpoint first and go on at the next `up`."""
    from workers.local import control

    control.down(find_places())


@app.command(rich_help_panel=STACK)
def status(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show what runs; exit code 0 if everything does, 3 if not."""
    from workers.local import control

    state, lines = control.status(find_places())
    watched = state.supervisor is not None and state.supervisor.find() is not None
    complete = watched and state.ready and all(line.pid for line in lines)
    if as_json:
        services = [asdict(line) for line in lines]
        print(json.dumps({"url": state.url, "up": complete, "services": services}, default=str))
    elif not lines:
        print("nothing is running: start it with `./caravan up`")
    else:
        table = Table("service", "process", "running since (UTC)", box=None)
        for line in lines:
            since = f"{line.since:%Y-%m-%d %H:%M:%S}" if line.since else "not running"
            table.add_row(line.service, str(line.pid or "-"), since)
        Console().print(table)
        if complete:
            print(f"pages: {state.url}")
        elif watched:
            print("not everything is up")
        else:
            print("nobody watches over it: `./caravan up` takes over, `./caravan down` ends it")
    raise typer.Exit(0 if complete else NOT_RUNNING)


@app.command(rich_help_panel=STACK)
def logs(
    service: Annotated[str, typer.Argument(help="postgres, valkey, ray-head, web, ...")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many to show.")] = 100,
) -> None:
    """Show what a service wrote."""
    from workers.local import control

    path = control.log_file(find_places(), service)
    for line in control.last_lines(path, lines) if lines else []:
        print(line)
    if follow:
        with contextlib.suppress(KeyboardInterrupt):
            for text in control.follow(path):
                print(text, end="", flush=True)


@app.command("login-link", rich_help_panel=STACK)
def login_link(
    email: Annotated[str, typer.Option(help="Whom to sign in; the first admin if left out.")] = "",
) -> None:
    """Print a link that signs you in once."""
    _manage("login_link", *(["--email", email] if email else []))


@app.command(rich_help_panel=STACK)
def invite(
    email: Annotated[str, typer.Argument(help="The colleague's address.")],
    role: Annotated[
        Literal["viewer", "editor", "admin"], typer.Option(help="What they may do.")
    ] = "editor",
    project: Annotated[str, typer.Option(help="Name or id; the oldest if left out.")] = "",
) -> None:
    """Print a one-time link that brings a colleague into a project."""
    _manage("invite", email, "--role", role, *(["--project", project] if project else []))


@app.command(context_settings=PASS_ON, rich_help_panel=WORKSHOP)
def manage(context: typer.Context) -> None:
    """Run a command of Django's, with the environment of this stack."""
    raise typer.Exit(subprocess.run(**_managing(context.args), check=False).returncode)


@app.command("seed-demo", context_settings=PASS_ON, rich_help_panel=STACK)
def seed_demo(
    context: typer.Context,
    runs: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    project: Annotated[str, typer.Option(help="Name or id; the oldest if left out.")] = "",
    live: Annotated[bool, typer.Option("--live", help="One more, in real time.")] = False,
    beside: Annotated[
        bool, typer.Option("--beside-real-runs", help="Although there are runs of your own.")
    ] = False,
) -> None:
    """Fill a project with made-up runs to look at, and what three people made of them."""
    given = [*(["--live"] if live else []), *(["--beside-real-runs"] if beside else [])]
    where = ["--project", project] if project else []
    _manage("seed_demo", "--runs", str(runs), *where, *given, *context.args)


@app.command(rich_help_panel=WORKSHOP)
def env() -> None:
    """Print the environment of this stack's processes, for `eval "$(./caravan env)"`."""
    from workers.local.stack import environment

    for name, value in environment(find_places()).items():
        print(f"export {name}={shlex.quote(value)}")


@app.command(context_settings=PASS_ON, rich_help_panel=WORKSHOP)
def test(context: typer.Context) -> None:
    """Run the tests on their own services; arguments go to pytest."""
    from cli.testing import run_tests

    raise typer.Exit(run_tests(context.args))


@app.command(rich_help_panel=WORKSHOP)
def check() -> None:
    """Check format, lint, types, migrations, API schema, templates, page scripts, compose file."""
    from cli.check import run_checks

    raise typer.Exit(run_checks())


@app.command(rich_help_panel=WORKSHOP)
def install(
    what: Annotated[str, typer.Argument(help="vllm: vLLM for CPUs, about 0.8 GB to download.")],
) -> None:
    """Build an environment of its own for a program that Caravan can work with."""
    from cli.bootstrap import BootstrapError, is_current
    from cli.bootstrap import install as build

    if what != "vllm":
        raise UserError(f"Nothing called {what!r} can be installed: there is vllm.")
    if not is_current(VLLM, what):
        try:
            build(VLLM, what)
        except BootstrapError as error:
            raise UserError(str(error)) from None
    serve = "-m vllm.entrypoints.openai.api_server --model FOLDER --host 127.0.0.1"
    print(f"Serve a model with: {VLLM / 'bin/python'} {serve}")


@app.command(rich_help_panel=WORKSHOP)
def bench(
    name: Annotated[str, typer.Argument(help="Which one; all names if left out.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One object per figure.")] = False,
    stored: Annotated[bool, typer.Option("--stored", help="Judge the last stored result.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of what learns.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs at once (signature.*).")] = 1,
    minutes: Annotated[float | None, typer.Option(min=2, help="A page stays open (ui).")] = None,
) -> None:
    """Measure, print the figures and keep them with their commit; exit code 0 if all pass."""
    from bench.figures import Options
    from cli import bench as benches

    if not name:
        for known, description in benches.names().items():
            print(f"{known:20} {description}")
        return
    if stored:
        figures = benches.stored(name, find_places())
    else:
        figures = benches.run_bench(name, Options(seeds, workers, minutes=minutes), find_places())
    benches.show(figures, as_json)
    raise typer.Exit(0 if figures and all(figure.passed for figure in figures) else 1)


@app.command(rich_help_panel=WORKSHOP)
def tour() -> None:
    """Take the pictures of docs/tour.md anew, on a stack of their own."""
    from cli.tour import take

    take()


def _manage(*arguments: str) -> None:
    """Run a command of ours; what it refuses is said as all commands say it."""
    done = subprocess.run(
        **_managing(arguments), check=False, stderr=subprocess.PIPE, encoding="utf-8"
    )
    before, refused, reason = done.stderr.rpartition("CommandError: ")
    if done.returncode != 0 and refused:
        raise UserError(reason.strip())
    sys.stderr.write(before + refused + reason)
    if done.returncode != 0:
        raise typer.Exit(done.returncode)


def _managing(arguments: Sequence[str]) -> dict[str, Any]:
    """How to run a management command in this stack. Raises UserError where none runs."""
    from workers.local import control
    from workers.local.stack import environment

    places = find_places()
    surroundings = environment(places)
    if not control.is_running(places, "postgres"):
        raise UserError("Caravan is not running: start it with `./caravan up`.")
    command = [sys.executable, "-m", "webapp.manage", *arguments]
    return {"args": command, "env": {**os.environ, **surroundings}}


def add_client_commands() -> None:
    """Put the client's remote commands (launch, runs, watch, ...) beside ours."""
    from caravan import commands

    os.environ.setdefault("CARAVAN_HOME", str(find_places().home))  # whose token they take
    app.registered_commands.extend(commands.app.registered_commands)
    app.registered_groups.extend(commands.app.registered_groups)
