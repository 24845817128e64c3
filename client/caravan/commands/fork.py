"""`caravan fork` and `caravan evaluate`: runs that start from another run's checkpoint."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from caravan.commands.dry_run import tried
from caravan.commands.launch import DryRun, Overrides, Tags, override
from caravan.commands.shared import AsJson, RunArgument, command, connect, emit
from caravan.commands.watch import follow
from caravan.text import one_line
from caravan.yaml_files import read_text

if TYPE_CHECKING:
    from caravan.client import Client

Which = Annotated[str, typer.Option("--checkpoint", help="Its id; the last one if left out.")]
Watch = Annotated[bool, typer.Option("--watch", help="Follow it to its end.")]


def add_to(app: typer.Typer) -> None:
    command(app)(fork)
    command(app)(evaluate)


def fork(
    run: RunArgument,
    checkpoint: Which = "",
    spec: Annotated[Path | None, typer.Option(help="YAML; that of the run if left out.")] = None,
    watch: Watch = False,
    overrides: Overrides = [],  # noqa: B006  (typer copies it)
    name: Annotated[str, typer.Option(help="Of the new run; numbered if left out.")] = "",
    notes: Annotated[str, typer.Option(help="Markdown.")] = "",
    tags: Tags = [],  # noqa: B006
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Launch a run that starts from a checkpoint's weights, with that run's tasks and tokenizer."""
    from caravan.pulling import choose_checkpoint

    with connect() as client:
        chosen = choose_checkpoint(client, client.run_id(run), checkpoint)
        new = client.fork(
            chosen["id"],
            spec=read_text(spec) if spec is not None else None,
            overrides=dict(override(given) for given in overrides),
            name=name,
            notes=notes,
            tags=tags,
            dry_run=dry_run,
        )
        if dry_run and as_json:
            raise typer.Exit(tried(client, new["id"], as_json))
        _launched(client, new, watch and not dry_run, as_json)
        if dry_run:
            raise typer.Exit(tried(client, new["id"], as_json))


def evaluate(
    run: RunArgument,
    checkpoint: Which = "",
    tasks: Annotated[str, typer.Option(help="held_out or quick.")] = "held_out",
    dataset: Annotated[
        str, typer.Option(help="Id of a dataset's version whose tasks are played instead.")
    ] = "",
    hops: Annotated[
        list[int] | None, typer.Option(help="Only tasks of so many hops; several times.")
    ] = None,
    number: Annotated[int | None, typer.Option(help="So many tasks; all if left out.")] = None,
    trials: Annotated[int, typer.Option(help="How often each task is played.")] = 1,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.0,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Judge a checkpoint on held-out tasks, in a run of its own."""
    from caravan.pulling import choose_checkpoint

    with connect() as client:
        chosen = choose_checkpoint(client, client.run_id(run), checkpoint)
        new = client.evaluate(
            chosen["id"],
            tasks=tasks,
            dataset=dataset or None,
            hops=hops or None,
            number=number,
            trials=trials,
            temperature=temperature,
        )
        _launched(client, new, watch, as_json)


def _launched(client: "Client", run: dict[str, Any], watch: bool, as_json: bool) -> None:
    if as_json:
        emit(run)
    else:
        print(f"{run['id']}  {one_line(run['name'])}  {client.url}/runs/{run['id']}/")
    if watch:
        raise typer.Exit(follow(client, run["id"], as_json))
