"""`caravan try`: one task played on a checkpoint, and what the agent did."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from caravan.commands.shared import RUN_FAILED, AsJson, command, connect, emit
from caravan.commands.watch import ENDED, follow
from caravan.errors import RefusedError
from caravan.text import one_line

if TYPE_CHECKING:
    from caravan.client import Client

ARRIVES_S = 30.0  # after the run has ended, its trajectory is on its way


def add_to(app: typer.Typer) -> None:
    command(app, "try")(try_)


def try_(
    checkpoint: Annotated[
        str, typer.Argument(help="Its id, or a run by id or name: that one's newest checkpoint.")
    ],
    task: Annotated[
        int | None, typer.Option(min=0, help="Place of a held-out task; one at random if left out.")
    ] = None,
    question: Annotated[str | None, typer.Option(help="Your own question.")] = None,
    answer: Annotated[str | None, typer.Option(help="Its right answer.")] = None,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.0,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Until it is played.")] = True,
    as_json: AsJson = False,
) -> None:
    """Play one task with a checkpoint's weights, and show what came of it."""
    from caravan.pulling import choose_checkpoint

    with connect() as client:
        if not checkpoint.startswith("ckp_"):
            checkpoint = choose_checkpoint(client, client.run_id(checkpoint), "")["id"]
        run = client.try_checkpoint(
            checkpoint, position=task, question=question, answer=answer, temperature=temperature
        )
        if not wait:
            emit(run) if as_json else print(f"{run['id']}  {client.url}/runs/{run['id']}/played")
            return
        code = _quiet(client, run["id"]) if as_json else follow(client, run["id"])
        found = _played(client, run["id"]) if code == 0 else None
        if found is None:
            if code == 0:
                raise RefusedError(
                    f"Run {run['id']} has ended, and sent no trajectory: `caravan "
                    f"trajectories export {run['id']}` in a moment."
                )
            raise typer.Exit(code)
        if as_json:
            emit(found)
        else:
            _tell(client, found)


def _quiet(client: "Client", run_id: str) -> int:
    while (state := client.run(run_id)["state"]) not in ENDED:
        time.sleep(1.0)
    return 0 if state == "succeeded" else RUN_FAILED


def _played(client: "Client", run_id: str) -> dict[str, Any] | None:
    """Its trajectory, as lists show it."""
    until = time.monotonic() + ARRIVES_S
    while time.monotonic() < until:
        found = client.http.get(f"/runs/{run_id}/trajectories", purpose="evaluate")["items"]
        if found:
            return dict(found[0])
        time.sleep(1.0)
    return None


def _tell(client: "Client", found: dict[str, Any]) -> None:
    solved = "solved" if found["success"] else "not solved"
    print(one_line(found["prompt"], 500))
    print(f"{solved}: {found['stop_reason']}, {found['steps']} steps, {found['calls']} calls")
    print(f"{client.url}/trajectories/{found['id']}/")
