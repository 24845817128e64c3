"""`caravan plan`: what a model costs, before anything is launched."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.plan_fit import fit
from cli.plan_input import Length, read_length, read_lengths, read_model, read_spec
from workers.local.places import UserError

if TYPE_CHECKING:
    from engine.planner import Architecture, Flops

app = typer.Typer(help="Say what a model costs, before anything is launched.", no_args_is_help=True)
app.command()(fit)


@app.command()
def flops(
    config: Annotated[
        str,
        typer.Argument(
            help="A shipped model (minimax-m1, minimax-m1-softmax, deepseek-r1, qwen2.5-7b, ...), "
            "a config.json, a checkpoint folder, or a recipe."
        ),
    ],
    at: Annotated[
        str, typer.Option(help="Lengths in tokens, with commas. 64k = 65,536; 100k = 100,000.")
    ] = "64k,100k,256k,1m",
    versus: Annotated[
        list[str] | None, typer.Option(help="A model to compare with; may be given again.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """FLOPs and memory of prefill, generation and training, from a configuration alone."""
    from cli.plan_tables import show_flops

    lengths = read_lengths(at)
    model, *others = (read_model(name) for name in (config, *(versus or [])))
    if as_json:
        print(json.dumps(report(model, others, lengths)))
    else:
        show_flops(model, others, lengths)


@app.command()
def run(
    spec: Annotated[str, typer.Argument(help="A specification's .yaml, or a recipe's name.")],
    mean: Annotated[
        str | None, typer.Option(help="Tokens of a trajectory on average, where they are known.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(help="Advise for these, as 8xH100-80; the run's cores otherwise.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Memory by phase and component, FLOPs, time and tokens of a run; what fits the devices."""
    from cli.plan_run_tables import show_run
    from engine.planner import ConfigError, advise_run, own_cluster, plan_run, read_cluster
    from engine.planner.report import advice_figures

    given = read_spec(spec)
    plan = plan_run(given, read_length(mean, "--mean") if mean else None)
    try:
        cluster = read_cluster(devices) if devices else own_cluster(given)
        advice = advise_run(given, cluster)
    except ConfigError as error:
        raise UserError(str(error)) from None
    if as_json:
        figures = {**plan.figures(), "advice": advice_figures(advice)}
        print(json.dumps({"model": _of_model(plan.model), **figures}))
    else:
        show_run(given, plan, advice)


def report(
    model: "Architecture", others: list["Architecture"], lengths: list[Length]
) -> dict[str, Any]:
    """What `--json` prints: FLOPs, bytes and shares as numbers."""
    from engine.planner import conventions, costs, memory, ratio

    models = [model, *others]
    return {
        "models": [_of_model(one) for one in models],
        "at": [
            {
                "asked": length.asked,
                "tokens": length.tokens,
                "flops": {
                    one.name: {
                        counted: {
                            part: flops and _of_flops(flops)
                            for part, flops in vars(costs(one, length.tokens, counted)).items()
                            if part != "convention"
                        }
                        for counted in conventions(one)
                    }
                    for one in models
                },
                "bytes": {one.name: asdict(memory(one, length.tokens)) for one in models},
                "share_of": {
                    other.name: {
                        found.convention: {
                            "generation": found.generation,
                            "next_token": found.next_token,
                        }
                        for counted in conventions(model, other)
                        for found in [ratio(model, other, length.tokens, counted)]
                    }
                    for other in others
                },
            }
            for length in lengths
        ],
    }


def _of_model(model: "Architecture") -> dict[str, Any]:
    from engine.planner import LayerKind, kv_bytes_per_token, parameters, state_bytes

    return {
        "name": model.name,
        "source": model.source,
        "layers": {kind: model.count(kind) for kind in LayerKind},
        "parameters": asdict(parameters(model)),
        "kv_bytes_per_token": kv_bytes_per_token(model),
        "state_bytes": state_bytes(model),
    }


def _of_flops(flops: "Flops") -> dict[str, float]:
    return {**asdict(flops), "total": flops.total}
