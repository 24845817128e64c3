"""A run's spec as YAML: what it was launched with, and what was asked for."""

import json
from typing import Any

import yaml

from engine.spec import ExperimentSpec, problems_of
from webapp.experiments.models import Run

DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # four times as fast where it is built


def asked_text(run: Run) -> str:
    """What was asked for, as YAML; see `Run.asked_spec`."""
    return _yaml(run.asked_spec)


def spec_text(run: Run) -> str:
    """The frozen spec as YAML."""
    return _yaml(run.spec)


def _yaml(spec: dict[str, Any]) -> str:
    """Its fields in the order of the schema, which the database does not keep. As JSON, which is
    YAML too, where it is nested too deeply for its writer."""
    try:
        found, _ = problems_of(spec)
        like = dict.fromkeys(ExperimentSpec.model_fields) if found is None else found.model_dump()
        text = yaml.dump(_ordered(spec, like), Dumper=DUMPER, sort_keys=False, allow_unicode=True)
        return str(text)
    except RecursionError:
        return json.dumps(spec, ensure_ascii=False)


def _ordered(value: Any, like: Any) -> Any:
    """The value with the keys of its mappings in the order of those of `like`; others follow."""
    if isinstance(value, dict) and isinstance(like, dict):
        names = [*(name for name in like if name in value), *(n for n in value if n not in like)]
        return {name: _ordered(value[name], like.get(name)) for name in names}
    if isinstance(value, list) and isinstance(like, list) and len(value) == len(like):
        return [_ordered(*pair) for pair in zip(value, like, strict=True)]
    return value
