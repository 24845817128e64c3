"""Recipes are files of the checkout, presets are recipes that a project saved."""

import copy
from dataclasses import dataclass
from typing import Any

import yaml
from django.conf import settings

from engine.spec.loading import TOO_DEEP, PlainLoader, wrong_yaml
from webapp.experiments.spec_text import check_length
from webapp.problems import RefusedError, invalid_field


@dataclass(frozen=True)
class Recipe:
    name: str
    description: str
    text: str  # YAML, as written


def recipes() -> list[Recipe]:
    """All recipes of the checkout, by name."""
    found = []
    for path in sorted(settings.CARAVAN_RECIPES.glob("*.yaml")):
        text = path.read_text()
        data = yaml.safe_load(text)
        description = data.get("description", "") if isinstance(data, dict) else ""
        found.append(Recipe(path.stem, str(description), text))
    return found


def recipe(name: str) -> Recipe:
    """Raises RefusedError, naming the recipes that exist."""
    known = {item.name: item for item in recipes()}
    if name not in known:
        raise invalid_field(
            "recipe", f"There is no recipe {name!r}; there are: {', '.join(known) or 'none'}."
        )
    return known[name]


def with_overrides(recipe: str | dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """The data of a recipe (YAML or data) with values replaced: {"stages.1.steps": 10}.

    Raises RefusedError where a path leads nowhere; whether the last key exists is for validation.
    """
    data = copy.deepcopy(recipe) if isinstance(recipe, dict) else _parsed(recipe)
    for path, value in overrides.items():
        *steps, last = path.split(".")
        place = data
        for step in steps:
            place = _child(place, step, path)
        if isinstance(place, list):
            place[_index(place, last, path)] = value
        elif isinstance(place, dict):
            place[last] = value
        else:
            raise invalid_field(path, f"{'.'.join(steps)} is a plain value, it has no {last!r}.")
    if not isinstance(data, dict):
        raise RefusedError("A recipe is a mapping of fields to values.")
    return data


def _parsed(text: str) -> Any:
    check_length(text)
    try:
        return yaml.load(text, PlainLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise RefusedError(wrong_yaml(error)) from None
    except RecursionError:
        raise RefusedError(TOO_DEEP) from None


def _child(place: Any, step: str, path: str) -> Any:
    if isinstance(place, list):
        return place[_index(place, step, path)]
    if isinstance(place, dict):
        return place.setdefault(step, {})
    raise invalid_field(path, f"{step!r} lies in a plain value.")


def _index(place: list[Any], step: str, path: str) -> int:
    if not step.isdecimal() or int(step) >= len(place):
        raise invalid_field(path, f"{step!r} is no position in a list of {len(place)}.")
    return int(step)
