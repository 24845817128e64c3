"""What people type for `caravan plan`: models, lengths, counts, specifications."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workers.local.places import CHECKOUT, UserError

if TYPE_CHECKING:
    from engine.planner import Architecture
    from engine.spec import ExperimentSpec

LENGTH = re.compile(r"(\d{1,9})([km]?)", re.IGNORECASE)
COUNT = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([mbt])", re.IGNORECASE)
UNITS = {"m": 1e6, "b": 1e9, "t": 1e12}
RECIPES = CHECKOUT / "recipes"


@dataclass(frozen=True)
class Length:
    """Tokens, and how a person wrote them."""

    asked: str
    tokens: int


def read_lengths(text: str, option: str = "--at") -> list[Length]:
    """Lengths separated by commas. Raises UserError.

    k and m stand for 1,024 and 1,024^2 behind a power of two, as context windows are named (64k,
    256k, 1m), and for 1,000 and 1,000,000 behind any other number (100k).
    """
    lengths = []
    for part in text.split(","):
        match = LENGTH.fullmatch(part.strip())
        if match is None or int(match[1]) == 0:
            raise UserError(
                f"{option} {part.strip()!r} is no length: write tokens as 4096, 64k, 100k or 1m."
            )
        number, unit = int(match[1]), match[2].lower()
        base = 1024 if number & (number - 1) == 0 else 1000
        lengths.append(Length(part.strip(), number * base ** ("", "k", "m").index(unit)))
    return lengths


def read_length(text: str, option: str) -> int:
    """One length in tokens. Raises UserError."""
    lengths = read_lengths(text, option)
    if len(lengths) > 1:
        raise UserError(f"{option} {text!r} is several lengths: give one.")
    return lengths[0].tokens


def read_count(text: str, option: str) -> float:
    """Parameters or bytes written as 350m, 34.4b or 2t. Raises UserError."""
    match = COUNT.fullmatch(text.strip())
    if match is None:
        raise UserError(f"{option} {text!r} is no size: write it as 350m, 34.4b or 2t.")
    return float(match[1]) * UNITS[match[2].lower()]


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


def read_spec(given: str) -> "ExperimentSpec":
    """The specification in a file, or of a recipe. Raises UserError."""
    recipe, path = RECIPES / f"{given}.yaml", Path(given)
    if not recipe.is_file() and not path.exists():
        known = ", ".join(sorted(file.stem for file in RECIPES.glob("*.yaml")))
        raise UserError(f"There is no file {given}, and no such recipe: there are {known}.")
    return _read_spec(recipe if recipe.is_file() else path)


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
