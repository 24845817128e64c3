"""What a run that starts from another run's checkpoint must have in common with it."""

from collections.abc import Iterable, Iterator
from typing import Any

from engine.spec.base import Disagreement
from engine.spec.experiment import ExperimentSpec

# What the parent's tasks, tokenizer and demonstrations were made of: the fork takes these.
_OF_SYNTHESIS = ("seed", "environment", "stages.0")
_OF_JUDGED = ("evaluation.tasks", "evaluation.quick_tasks", "evaluation.hops")
_NOT_OF_SHAPE = ("init_std", "embedding_std", "router_aux_weight")

Difference = tuple[str, Any]  # path of a field, the value that it has in the parent


def fork_disagreements(spec: ExperimentSpec, parent: ExperimentSpec) -> Iterator[Disagreement]:
    """Fields of a fork that do not fit the weights and tasks that it takes from its parent."""
    ours, theirs = spec.model_dump(mode="json"), parent.model_dump(mode="json")
    own = spec.evaluation.dataset is not None  # then it is judged by tasks of its own
    made = [*_differing(_OF_SYNTHESIS + (() if own else _OF_JUDGED), ours, theirs)]
    if made:
        yield Disagreement(
            "A run takes tasks, tokenizer and demonstrations from the run whose checkpoint it "
            f"starts from, which were made with {_said(made)}: leave these as they were.",
            tuple(path for path, _ in made),
        )
    names = [f"model.{name}" for name in ours["model"] if name not in _NOT_OF_SHAPE]
    shape = [*_differing(names, ours, theirs)]
    if shape:
        yield Disagreement(
            f"The weights of the checkpoint are of a model with {_said(shape)}: leave its shape as "
            "it was.",
            tuple(path for path, _ in shape),
        )


def same_tasks(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether the tasks of two specs, as data, are made of the same: equal ids are equal tasks."""
    own = _found(ours, "evaluation.dataset")
    made_of = _OF_SYNTHESIS + _OF_JUDGED if own is None else ("environment",)
    return own == _found(theirs, "evaluation.dataset") and all(
        _found(ours, path) == _found(theirs, path) for path in made_of
    )


def _found(data: dict[str, Any], path: str) -> Any:
    """None where specs of older code, or of a trainer of one's own, have no such field."""
    try:
        return _at(data, path)
    except (KeyError, IndexError, TypeError):
        return None


def _differing(
    paths: Iterable[str], ours: dict[str, Any], theirs: dict[str, Any]
) -> Iterator[Difference]:
    """(path, the parent's value) of every field at or below the paths that is not the same."""
    for path in paths:
        yield from _below(path, _at(ours, path), _at(theirs, path))


def _below(path: str, ours: Any, theirs: Any) -> Iterator[Difference]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted(ours.keys() | theirs.keys()):
            yield from _below(f"{path}.{name}", ours.get(name), theirs.get(name))
    elif ours != theirs:
        yield path, theirs


def _at(data: Any, path: str) -> Any:
    for step in path.split("."):
        data = data[int(step)] if isinstance(data, list) else data[step]
    return data


def _said(pairs: list[Difference]) -> str:
    return ", ".join(f"{path} {theirs!r}" for path, theirs in pairs)
