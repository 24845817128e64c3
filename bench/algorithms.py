"""The quick start's reinforcement under five algorithms, from one stored cold start.

The recipe `kg-search` is launched without its last stage; then one run for each algorithm starts
from its final checkpoint, with the recipe's tasks, steps and optimizer. They are ordinary runs: the
address of their Compare page is printed with the figures.
"""

from datetime import datetime
from typing import Any

import yaml

from bench._runs import to_the_end
from bench.figures import Figure, Options
from caravan import Client
from workers.local.places import UserError

RECIPE = "kg-search"
ALGORITHMS = ("cispo", "grpo", "gspo", "ppo", "reinforce_pp")
OF_CISPO = ("weight_max",)  # fields of the recipe that other losses refuse


def run(options: Options) -> list[Figure]:
    with Client() as client:
        try:
            return _figures(client)
        except UserError as error:
            return [
                Figure("algorithms", f"completion_{name}", None, "share", setup=str(error))
                for name in ALGORITHMS
            ]


def _figures(client: Client) -> list[Figure]:
    text = next(one for one in client.recipes() if one["name"] == RECIPE)["text"]
    recipe = yaml.safe_load(text)
    *cold_stages, last = recipe["stages"]
    cold = to_the_end(
        client,
        client.launch(
            spec={**recipe, "name": "cold-start", "stages": cold_stages},
            experiment="bench algorithms",
            name="cold-start",
            tags=["bench"],
        ),
    )
    checkpoint = next(one for one in client.checkpoints(cold["id"]) if one["final"])
    before = cold["stages"][-1]["summary"]["completion_rate"]
    figures = [Figure("algorithms", "completion_before", before, "share", setup=RECIPE)]
    runs = []
    for name in ALGORITHMS:
        found = _fork(client, checkpoint["id"], recipe, cold_stages[0], last, name)
        runs.append(found["id"])
        figures.append(_judged(name, found))
    compare = f"{client.http.url}/projects/{cold['project']['id']}/compare/?runs={','.join(runs)}"
    return [*figures, Figure("algorithms", "runs", float(len(runs)), "", setup=compare)]


def _fork(
    client: Client,
    checkpoint: str,
    recipe: dict[str, Any],
    synthesis: dict[str, Any],
    last: dict[str, Any],
    name: str,
) -> dict[str, Any]:
    """A run of reinforcement alone, to its end."""
    kept = {key: value for key, value in last.items() if name == "cispo" or key not in OF_CISPO}
    stage = {**kept, "algorithm": name}
    spec = {**recipe, "name": name, "stages": [synthesis, stage]}
    return to_the_end(client, client.fork(checkpoint, spec=spec, name=name, tags=["bench"]))


def _judged(name: str, found: dict[str, Any]) -> Figure:
    last = found["stages"][-1]
    summary = last["summary"]
    started, ended = (datetime.fromisoformat(last[key]) for key in ("started_at", "ended_at"))
    minutes = (ended - started).total_seconds() / 60
    low, high = summary["completion_rate_low"], summary["completion_rate_high"]
    return Figure(
        "algorithms",
        f"completion_{name}",
        summary["completion_rate"],
        "share",
        setup=f"95% [{low:.3f}, {high:.3f}], {minutes:.1f} minutes, {found['id']}",
    )
