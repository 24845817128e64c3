"""The form of a new sweep: what people type, between a browser and a plan."""

import json
import re
from dataclasses import dataclass
from typing import Any

import yaml
from django.http import QueryDict

from engine.spec import load_spec
from webapp.experiments import spec_text
from webapp.problems import FieldProblem, RefusedError

KINDS = ("choice", "loguniform", "uniform", "int")
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
ROWS = 3  # empty ones that a new form shows


@dataclass(frozen=True)
class Field:
    """A row of the form, as typed."""

    path: str = ""
    kind: str = "choice"
    values: str = ""


@dataclass(frozen=True)
class Typed:
    """The whole form, as typed."""

    text: str  # YAML of the spec
    name: str = ""
    experiment: str = ""
    notes: str = ""
    method: str = "random"
    metric: str = "eval/completion_rate"
    direction: str = "maximise"
    trials: str = "20"
    steps: str = ""
    hours: str = ""
    at_once: str = "2"
    seeds: str = "1"
    priority: str = "0"
    min_steps: str = ""
    factor: str = "3"
    fields: tuple[Field, ...] = (Field(),) * ROWS


def typed(given: QueryDict) -> Typed:
    """What a browser sent."""
    names = [name for name in Typed.__dataclass_fields__ if name not in ("fields", "text")]
    rows = zip(given.getlist("path"), given.getlist("kind"), given.getlist("values"), strict=False)
    fields = tuple(Field(path.strip(), kind, values.strip()) for path, kind, values in rows)
    own = {name: str(given[name]) for name in names if name in given}
    return Typed(text=given.get("text", ""), fields=fields or (Field(),) * ROWS, **own)


def plan_of(form: Typed) -> dict[str, Any]:
    """The plan as data, for `read_plan`. Raises RefusedError for a row that cannot be read.

    Rows without a field are left out; what is no number is passed on, and the plan names it.
    """
    space = []
    problems = []
    for at, row in enumerate(one for one in form.fields if one.path):
        try:
            space.append({"kind": row.kind, "path": row.path, **_values(row)})
        except ValueError as error:
            problems.append(FieldProblem(f"space.{at}.values", str(error)))
    if problems:
        raise RefusedError("Some values cannot be read.", problems)
    budget = {name: getattr(form, name) for name in ("trials", "steps", "hours")}
    halving = None
    if form.min_steps.strip():
        halving = {"min_steps": _scalar(form.min_steps), "factor": _scalar(form.factor)}
    return {
        "method": form.method,
        "metric": form.metric.strip(),
        "direction": form.direction,
        "space": space,
        "budget": {name: _scalar(text) for name, text in budget.items() if text.strip()},
        "at_once": _scalar(form.at_once),
        "seeds": _scalar(form.seeds),
        "priority": _scalar(form.priority),
        "halving": halving,
    }


def placed(form: Typed, problems: list[FieldProblem]) -> list[tuple[str, str]]:
    """(where, what) of problems, with a field that varies by its own name."""
    rows = [one.path for one in form.fields if one.path]
    found = []
    for one in problems:
        first, _, rest = one.path.partition(".")
        at = rest.partition(".")[0]
        named = first == "space" and at.isdecimal() and int(at) < len(rows)
        found.append((rows[int(at)] if named else one.path, one.message))
    return found


def base_of(form: Typed) -> dict[str, Any]:
    """The spec as data. Raises RefusedError where the text is no mapping."""
    spec_text.check_length(form.text)
    data = spec_text.data_of(form.text)
    if not isinstance(data, dict):
        _, problems = load_spec(form.text)
        said = problems[0].message if problems else "A spec is a mapping of fields to values."
        raise RefusedError(said, [FieldProblem("text", said)])
    return data


def paths_of(text: str) -> list[tuple[str, str]]:
    """(path, value) of every field that a spec has, those left at their defaults among them."""
    spec, _ = load_spec(text)
    data = spec.model_dump(mode="json") if spec else spec_text.data_of(text)
    return [] if data is None else list(_leaves(data, ""))[:1000]


def _leaves(value: Any, path: str) -> list[tuple[str, str]]:
    if isinstance(value, dict) and value:
        parts = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        parts = [(str(at), item) for at, item in enumerate(value)]
    else:
        return [(path, json.dumps(value, ensure_ascii=False)[:60])]
    found = []
    for key, item in parts:
        found += _leaves(item, f"{path}.{key}" if path else key)
    return found


def _values(row: Field) -> dict[str, Any]:
    if row.kind == "choice":
        return {"values": _listed(row.values)}
    numbers = [_scalar(one) for one in re.findall(NUMBER, row.values)]
    most = 3 if row.kind == "int" else 2
    if not 2 <= len(numbers) <= most:
        step = ", and a step if you like" if row.kind == "int" else ""
        raise ValueError(f"Write where it begins and ends{step}, such as 1 .. 10.")
    return dict(zip(("low", "high", "step"), numbers, strict=False))


def _listed(text: str) -> list[Any]:
    """Values separated by commas; as JSON where they are lists or texts with commas."""
    try:
        found = json.loads(f"[{text}]")
        return list(found)
    except ValueError:
        return [_scalar(part) for part in text.split(",") if part.strip()]


def _scalar(text: str) -> Any:
    text = text.strip()
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return float(text) if re.fullmatch(NUMBER, text) else yaml.safe_load(text)
    except yaml.YAMLError:
        return text
