"""The form of a reward scheme: between what was posted, a definition, and the rows of the page."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from engine.rewards.scheme import TERM_FIELDS, RewardCurriculum, TermField, TermKind

TERM_KINDS: tuple[TermKind, ...] = get_args(TermKind)
CURRICULUM_FIELDS = [name for name in RewardCurriculum.model_fields if name != "process"]


@dataclass(frozen=True)
class Field:
    """A number that the form asks for. `name` is that of the input."""

    name: str
    label: str
    value: Any
    hint: str = ""
    error: str = ""


@dataclass(frozen=True)
class TermRow:
    kind: str
    used: bool
    fields: list[Field]  # the weight first
    is_process: bool
    can_be_process: bool
    error: str


def posted(post: Mapping[str, str], name: str) -> dict[str, Any]:
    """A definition as it was typed; what is no number is left for the validation."""
    terms = [
        {"kind": kind, **_numbers(post, f"{kind}", ("weight", *TERM_FIELDS.get(kind, ())))}
        for kind in TERM_KINDS
        if post.get(f"use.{kind}")
    ]
    process = [kind for kind in TERM_KINDS if post.get(f"process.{kind}")]
    given: dict[str, Any] = {"name": name, "terms": terms}
    if process:
        curriculum = _numbers(post, "curriculum", CURRICULUM_FIELDS)
        said = {field: value for field, value in curriculum.items() if value != ""}
        given["curriculum"] = {"process": process, **said}
    return given


def term_rows(definition: dict[str, Any], errors: Mapping[str, str]) -> list[TermRow]:
    """One row for each kind there is."""
    terms = {term["kind"]: (index, term) for index, term in enumerate(definition["terms"])}
    process = (definition.get("curriculum") or {}).get("process", [])
    rows = []
    for kind in TERM_KINDS:
        index, term = terms.get(kind, (-1, {}))
        fields = [
            Field(
                f"{name}.{kind}",
                name,
                _shown(term, name),
                "",
                errors.get(f"terms.{index}.{name}", ""),
            )
            for name in ("weight", *TERM_FIELDS.get(kind, ()))
        ]
        rows.append(
            TermRow(
                kind,
                kind in terms,
                fields,
                kind in process,
                kind != "exact_answer",
                errors.get(f"terms.{index}", ""),
            )
        )
    return rows


def curriculum_fields(definition: dict[str, Any], errors: Mapping[str, str]) -> list[Field]:
    given = definition.get("curriculum") or {}
    fields = RewardCurriculum.model_fields
    return [
        Field(
            f"{name}.curriculum",
            name.replace("_", " "),
            given.get(name, fields[name].default),
            fields[name].description or "",
            errors.get(f"curriculum.{name}", ""),
        )
        for name in CURRICULUM_FIELDS
    ]


def flat(definition: dict[str, Any]) -> dict[str, Any]:
    """Every value of a definition under a name that people read, to compare two."""
    return dict(_flat(definition))


def _flat(definition: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for term in definition["terms"]:
        yield term["kind"], term["weight"]
        for name in get_args(TermField):
            if term.get(name) is not None:
                yield f"{term['kind']} {name}", term[name]
    for name, value in (definition.get("curriculum") or {}).items():
        yield f"curriculum {name}", ", ".join(value) if isinstance(value, list) else value


def _numbers(post: Mapping[str, str], owner: str, names: Any) -> dict[str, Any]:
    return {name: _number(post.get(f"{name}.{owner}", "").strip()) for name in names}


def _number(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _shown(term: dict[str, Any], name: str) -> Any:
    value = term.get(name)
    return "" if value is None else value
