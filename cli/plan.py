"""`caravan plan`: what a model costs, before anything is launched."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workers.local.places import CHECKOUT, UserError

if TYPE_CHECKING:
    from engine.planner import Architecture, Flops
    from engine.spec import ExperimentSpec

app = typer.Typer(help="Say what a model costs, before anything is launched.", no_args_is_help=True)
LENGTH = re.compile(r"(\d{1,9})([km]?)", re.IGNORECASE)
RECIPES = CHECKOUT / "recipes"


@dataclass(frozen=True)
class Length:
    """Tokens, and how a person wrote them."""

    asked: str
    tokens: int


@app.command()
def flops(
    config: Annotated[
        str,
        typer.Argument(
            help="A shipped model (minimax-m1, deepseek-r1, qwen3-235b-a22b, minimax-m1-softmax), "
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

    recipe = RECIPES / f"{spec}.yaml"
    given = _read_spec(recipe if recipe.is_file() else Path(spec))
    plan = plan_run(given)
    if as_json:
        print(json.dumps({"model": _of_model(plan.model), **plan.figures()}))
    else:
        show_run(given, plan)


def read_lengths(text: str) -> list[Length]:
    """Lengths separated by commas. Raises UserError.

    k and m stand for 1,024 and 1,024^2 behind a power of two, as context windows are named (64k,
    256k, 1m), and for 1,000 and 1,000,000 behind any other number (100k).
    """
    lengths = []
    for part in text.split(","):
        match = LENGTH.fullmatch(part.strip())
        if match is None or int(match[1]) == 0:
            raise UserError(
                f"--at {part.strip()!r} is no length: write tokens as 4096, 64k, 100k or 1m."
            )
        number, unit = int(match[1]), match[2].lower()
        base = 1024 if number & (number - 1) == 0 else 1000
        lengths.append(Length(part.strip(), number * base ** ("", "k", "m").index(unit)))
    return lengths


def read_model(given: str) -> "Architecture":
    """The model that a person named. Raises UserError."""
    from engine.planner import ConfigError, read_config_file, shipped, shipped_names

    path, recipe = Path(given), RECIPES / f"{given}.yaml"
    try:
        if given in shipped_names():
            return shipped(given)
        if path.suffix in (".yaml", ".yml"):
            return _of_recipe(path)
        if path.exists():
            return read_config_file(path)
    except ConfigError as error:
        raise UserError(str(error)) from None
    if recipe.is_file():
        return _of_recipe(recipe)
    raise UserError(
        f"There is no model {given!r}: give a config.json, a checkpoint folder, a recipe or one of "
        f"{', '.join(shipped_names())}."
    )


def _of_recipe(path: Path) -> "Architecture":
    from engine.planner import from_spec

    spec = _read_spec(path)
    return from_spec(spec.model, spec.name)


def _read_spec(path: Path) -> "ExperimentSpec":
    from engine.spec import load_spec

    try:
        spec, problems = load_spec(path.read_text(errors="replace"))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).") from None
    if spec is None:
        first = problems[0]
        where = f"{first.path}: " if first.path else ""
        sentence = " ".join(first.message.split())  # a parser's excerpt has lines of its own
        raise UserError(f"{path} is no specification: {where}{sentence}")
    return spec


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
