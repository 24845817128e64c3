"""From YAML or JSON text to a spec, with every problem as a field path and a sentence."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, get_args

import yaml
from pydantic import ValidationError

from engine.rewards.presets import preset
from engine.spec.algorithms import with_our_names
from engine.spec.disagreements import disagreements
from engine.spec.dpo import with_our_loss
from engine.spec.experiment import ExperimentSpec, Stage
from engine.spec.optimizer import optimizers_in_full

TRUNCATED = (
    "Sampling from a part of the distribution is not offered: a token outside that part of the "
    "trained policy's distribution would have no log-probability, hence no importance weight. "
    "Remove this field; a lower temperature narrows the distribution."
)
KINDS = ", ".join(repr(one.model_fields["kind"].default) for one in get_args(get_args(Stage)[0]))
TOO_DEEP = "This is nested too deeply for a spec."
NOT_OFFERED = dict.fromkeys(("rollout.top_p", "rollout.top_k", "rollout.min_p"), TRUNCATED)


@dataclass(frozen=True)
class SpecProblem:
    """One thing wrong with a spec. `path` is dotted; empty when the whole text is at fault."""

    path: str
    message: str


class PlainLoader(yaml.SafeLoader):
    """Refuses keys that occur twice, and aliases: a few lines of them can stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "a spec has no aliases", None)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        found = super().construct_mapping(node, deep)
        if len(found) < len(node.value):
            counts = Counter(key.value for key, _ in node.value)
            twice = sorted(key for key, count in counts.items() if count > 1)
            raise yaml.constructor.ConstructorError(
                None, None, f"given twice: {', '.join(map(str, twice))}", node.start_mark
            )
        return found


def wrong_yaml(error: Exception) -> str:
    """What a parser of YAML raised as one sentence, with the place where it stopped."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if not problem or mark is None:
        return f"This is not valid YAML: {error}"
    return f"This is not valid YAML: line {mark.line + 1}, column {mark.column + 1}: {problem}"


def load_spec(text: str) -> tuple[ExperimentSpec | None, list[SpecProblem]]:
    """The spec in a YAML (or JSON) text, or what is wrong with it; exactly one is given."""
    try:
        data = yaml.load(text, PlainLoader)
    except (yaml.YAMLError, ValueError) as error:
        return None, [SpecProblem("", wrong_yaml(error))]
    except RecursionError:
        return None, [SpecProblem("", TOO_DEEP)]
    if not isinstance(data, dict):
        kind = type(data).__name__
        return None, [SpecProblem("", f"A spec is a mapping of fields to values, not {kind}.")]
    return problems_of(data)


def problems_of(data: dict[str, Any]) -> tuple[ExperimentSpec | None, list[SpecProblem]]:
    """Like `load_spec`, for data that is parsed already."""
    data, problems = _in_our_words(data)
    if problems:
        return None, problems
    try:
        # JSON mode: tuples arrive as lists and whole numbers may stand where floats are expected.
        spec = ExperimentSpec.model_validate_json(json.dumps(data))
    except ValidationError as error:
        return None, [_problem(item) for item in error.errors(include_url=False)]
    except (TypeError, ValueError) as error:
        return None, [SpecProblem("", f"A spec holds plain values only: {error}")]
    except RecursionError:
        return None, [SpecProblem("", TOO_DEEP)]
    problems = [
        SpecProblem(path, pair.message) for pair in disagreements(spec) for path in pair.paths
    ]
    return (None, problems) if problems else (spec, [])


def _in_our_words(data: dict[str, Any]) -> tuple[dict[str, Any], list[SpecProblem]]:
    """The data with names replaced by what they stand for: other projects' of algorithms and
    MuonClip, stage by stage, and that of a reward scheme."""
    problems = []
    if isinstance(data.get("reward"), str):
        try:
            data = {**data, "reward": preset(data["reward"]).model_dump(exclude_none=True)}
        except ValueError as error:
            problems.append(SpecProblem("reward", str(error)))
    stages = data.get("stages")
    if not isinstance(stages, list):
        return data, problems
    ours = []
    for index, stage in enumerate(stages):
        try:
            if isinstance(stage, dict):
                stage = optimizers_in_full(with_our_names(with_our_loss(stage)))
            ours.append(stage)
        except ValueError as error:
            problems.append(SpecProblem(f"stages.{index}", str(error)))
    return {**data, "stages": ours}, problems


def spec_hash(spec: ExperimentSpec) -> str:
    """SHA-256 of the spec's canonical JSON: equal specs have equal hashes."""
    canonical = json.dumps(spec.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _problem(item: Any) -> SpecProblem:
    parts = [str(part) for part in item["loc"]]
    if len(parts) > 2 and parts[0] == "stages":
        del parts[2]  # the stage's kind, which pydantic adds and the user never wrote
    path = ".".join(part for part in parts if part != "[key]")
    if item["type"] in ("union_tag_invalid", "union_tag_not_found"):
        expected = item["ctx"].get("expected_tags", KINDS)
        return SpecProblem(f"{path}.kind", f"This must be one of {expected}.")
    if item["type"] == "extra_forbidden":
        unknown = "This field does not exist; check the spelling or remove it."
        return SpecProblem(path, NOT_OFFERED.get(path, unknown))
    if item["type"] == "missing":
        return SpecProblem(path, "This field is required.")
    given = "" if isinstance(item["input"], dict | list) else f" (given: {item['input']!r})"
    return SpecProblem(path, item["msg"].removeprefix("Value error, ") + given)
