"""`caravan plan`: what a model costs, before anything is launched."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.plan_fit import fit
from cli.plan_input import Length, read_lengths, read_model, read_spec

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
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Memory by component, FLOPs and tokens at the most of a specification's run."""
    from cli.plan_tables import show_run
    from engine.planner import plan_run

    given = read_spec(spec)
    plan = plan_run(given)
    if as_json:
        print(json.dumps({"model": _of_model(plan.model), **plan.figures()}))
    else:
        show_run(given, plan)


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
