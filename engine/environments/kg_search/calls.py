"""The language of one turn: JSON calls and answers, typed errors, results. Pure functions.

A call is one flat object, `{"tool":"lookup","entity":"Lyon","relation":"country"}`, the final
answer `{"answer":"Euro"}`: compact keys in a fixed order cost a small model the fewest tokens.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

DEEPEST = 32  # levels of objects and lists in a turn


class ErrorCode(StrEnum):
    """Why a call gave no result."""

    INVALID_JSON = "invalid_json"
    NOT_AN_OBJECT = "not_an_object"
    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_ENTITY = "unknown_entity"
    NO_SUCH_RELATION = "no_such_relation"
    TIMEOUT = "timeout"
    TOOL_FAILED = "tool_failed"


INVALID_CALLS = frozenset(
    {
        ErrorCode.INVALID_JSON,
        ErrorCode.NOT_AN_OBJECT,
        ErrorCode.UNKNOWN_TOOL,
        ErrorCode.INVALID_ARGUMENTS,
    }
)


@dataclass(frozen=True)
class Lookup:
    entity: str
    relation: str


@dataclass(frozen=True)
class Answer:
    text: str


class CallError(Exception):
    """A typed error for the agent. `name` and `arguments`: what could be read of the call."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        name: str = "",
        arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.name = name
        self.arguments = arguments


def render_lookup(entity: str, relation: str) -> str:
    return _compact({"tool": "lookup", "entity": entity, "relation": relation})


def render_answer(text: str) -> str:
    return _compact({"answer": text})


def render_values(values: Sequence[str]) -> str:
    """The result of a lookup: one value, or all of several."""
    return _compact({"value": values[0]} if len(values) == 1 else {"values": list(values)})


def render_error(code: ErrorCode, message: str) -> str:
    return _compact({"error": code.value, "message": message})


def parse_turn(text: str, relations: Sequence[str]) -> Lookup | Answer:
    """Reads a policy turn. Raises CallError, never anything else."""
    turn = _parse_json(text)
    if not isinstance(turn, dict):
        raise CallError(ErrorCode.NOT_AN_OBJECT, "A turn is one JSON object.")
    if "answer" in turn and "tool" not in turn:
        if set(turn) != {"answer"} or not isinstance(turn["answer"], str):
            raise CallError(ErrorCode.INVALID_ARGUMENTS, "An answer is one string.", "answer", turn)
        return Answer(turn["answer"])
    name = turn.pop("tool", None)
    if name != "lookup":
        given = name if isinstance(name, str) else ""
        raise CallError(ErrorCode.UNKNOWN_TOOL, "The only tool is lookup.", given, turn)
    if set(turn) != {"entity", "relation"} or not all(isinstance(v, str) for v in turn.values()):
        raise CallError(
            ErrorCode.INVALID_ARGUMENTS, "lookup takes the strings entity and relation.", name, turn
        )
    if turn["relation"] not in relations:
        raise CallError(ErrorCode.INVALID_ARGUMENTS, "There is no such relation.", name, turn)
    return Lookup(**turn)


def tool_schemas(relations: Sequence[str]) -> list[dict[str, Any]]:
    """The tools as OpenAI function schemas."""
    return [
        {
            "type": "function",
            "function": {
                "name": "lookup",
                "description": "Looks up one relation of one entity in the knowledge graph.",
                "strict": True,
                "parameters": {
                    "type": "object",
                    "properties": {
                        "entity": {"type": "string", "description": "The entity's exact name"},
                        "relation": {"type": "string", "enum": list(relations)},
                    },
                    "required": ["entity", "relation"],
                    "additionalProperties": False,
                },
            },
        }
    ]


def cut(text: str, limit: int) -> str:
    """At most `limit` characters of a result; a longer one says how many bytes it had."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} [cut: {len(text[:limit].encode())} of {len(text.encode())} bytes]"


def _parse_json(text: str) -> Any:
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys)
        # An escaped lone surrogate is no text that could be stored or sent, NaN is no JSON, and
        # 1e999 becomes infinite.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        _refuse_depth(value)
    except (ValueError, RecursionError):
        raise CallError(ErrorCode.INVALID_JSON, "The turn is not valid JSON.") from None
    return value


def _refuse_depth(value: Any) -> None:
    """A call is flat: one nested far deeper would exhaust the stack of those who store it."""
    level = [value]
    for _ in range(DEEPEST):
        found = [one for one in level if isinstance(one, dict | list)]
        level = [item for one in found for item in (one.values() if isinstance(one, dict) else one)]
    if level:
        raise ValueError(f"It is nested over {DEEPEST} deep.")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("A key occurs twice.")
    return found


def _compact(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
