"""The valid tool call that is nearest to a broken one, by insertions, deletions and substitutions.

A call is one flat JSON object, `{"tool":"NAME","ARGUMENT":"VALUE",...}`, all values strings; an
answer is `{"answer":"TEXT"}`. Values are copied as they stand, so that a repair mends the syntax
and keeps what was asked for: text that is no JSON is aligned with the syntax of every tool, an
object that is no valid call is read by its keys. A value that does not stand in the text in one
piece is not put together from several.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Of a tool's syntax, the share that may be missing or wrong: beyond, nothing of a call is left.
MOST_BROKEN = 0.5
MOST_CHARS = 4000  # of a turn; longer ones are no call that went wrong
ESCAPES = frozenset('"\\/bfnrtu')


@dataclass(frozen=True)
class Syntax:
    """The literal parts of a call, with the value of an argument between any two; `choices` limit
    a value. `tool` is empty where this is an answer."""

    tool: str
    arguments: tuple[str, ...]
    literals: tuple[str, ...]
    choices: tuple[tuple[str, ...] | None, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.literals))


ANSWER = Syntax("", ("answer",), ('{"answer":"', '"}'), (None,))


def syntax_of(schema: Mapping[str, Any]) -> Syntax:
    """The syntax of a tool from its OpenAI function schema.

    Raises ValueError where an argument is optional or no string: its repair would be a guess.
    """
    function = schema["function"]
    properties = function["parameters"]["properties"]
    required = function["parameters"].get("required", [])
    for name, argument in properties.items():
        if argument.get("type") != "string" or name not in required:
            raise ValueError(
                f"Calls of {function['name']} cannot be repaired: its argument {name} is "
                f"{argument.get('type')}{'' if name in required else ', optional'}; only required "
                "strings can be."
            )
    head = f'{{"tool":{json.dumps(function["name"])}'
    literals = [head]
    for name in properties:
        literals[-1] += f",{json.dumps(name)}:" + '"'
        literals.append('"')
    literals[-1] += "}"
    choices = [argument.get("enum") for argument in properties.values()]
    return Syntax(
        function["name"],
        tuple(properties),
        tuple(literals),
        tuple(tuple(one) if one else None for one in choices),
    )


def nearest_call(text: str, syntaxes: Sequence[Syntax]) -> str | None:
    """The valid call or answer nearest to the text, as text; None where it is near to none, or
    where a value is missing and would have to be made up."""
    if len(text) > MOST_CHARS:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        found = [(*align(text, syntax), syntax) for syntax in syntaxes]
        near = [
            (far, values, syntax)
            for far, values, syntax in found
            if far <= MOST_BROKEN * syntax.size and all(value in text for value in values)
        ]
        whole = [(far, _with_values(syntax, values)) for far, values, syntax in near]
    else:
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, dict):
            return None
        read = [_with_values(syntax, _values_by_key(value, syntax)) for syntax in syntaxes]
        whole = [(distance(text, one), one) for one in read if one is not None]
    ranked = [(far, place, one) for place, (far, one) in enumerate(whole) if one is not None]
    return min(ranked)[2] if ranked else None


def _values_by_key(given: Mapping[str, Any], syntax: Syntax) -> list[str]:
    """The value of each argument, under its key, under one that is near, or under the only other;
    empty where there is none."""
    if ("tool" in given) != bool(syntax.tool) and set(given) & {"tool", "answer"}:
        return [""] * len(syntax.arguments)
    keys = {name: name for name in syntax.arguments if name in given}
    free = [key for key in given if key not in (*keys, "tool")]
    for name in syntax.arguments:
        near = nearest_word(name, free) if name not in keys else None
        if near is not None:
            keys[name] = near
            free.remove(near)
    missing = [name for name in syntax.arguments if name not in keys]
    if len(missing) == len(free) == 1 and syntax.tool:
        keys[missing[0]] = free[0]
    values = [given[keys[name]] if name in keys else "" for name in syntax.arguments]
    plain = [str(one) if isinstance(one, str | int | float) else "" for one in values]
    return [json.dumps(one, ensure_ascii=False)[1:-1] for one in plain]


def align(text: str, syntax: Syntax) -> tuple[int, list[str]]:
    """The fewest edits that make the text a call of this syntax, and the values it then has.

    Characters of a value cost nothing where they may stand in a JSON string, and are deleted where
    they may not: a quote that nothing escapes, control characters, a lone backslash.
    """
    units = _units(text)
    literal = "".join(syntax.literals)
    # Where in the literal a value stands: before its character number `at`.
    ends = {len("".join(syntax.literals[: n + 1])) for n in range(len(syntax.choices))}
    rows = [list(range(len(literal) + 1))]
    for unit in units:
        last, row = rows[-1], [rows[-1][0] + 1]
        for at in range(1, len(literal) + 1):
            fewest = min(
                last[at] + (0 if at in ends and _is_value(unit) else 1),
                last[at - 1] + (unit != literal[at - 1]),
                row[at - 1] + 1,
            )
            row.append(fewest)
        rows.append(row)
    return rows[-1][-1], _values(units, literal, sorted(ends), rows)


def _values(units: list[str], literal: str, ends: list[int], rows: list[list[int]]) -> list[str]:
    """Goes back through the table; a unit belongs to a value where that is one of the best ways."""
    values: dict[int, list[str]] = {at: [] for at in ends}
    read, at = len(units), len(literal)
    while read or at:
        here = rows[read][at]
        if read and at in values and _is_value(units[read - 1]) and rows[read - 1][at] == here:
            read -= 1
            values[at].append(units[read])
        elif read and at and units[read - 1] == literal[at - 1] and rows[read - 1][at - 1] == here:
            read, at = read - 1, at - 1
        elif at and rows[read][at - 1] + 1 == here:  # before a substitution: it spares a value
            at -= 1
        elif read and at and rows[read - 1][at - 1] + 1 == here:
            read, at = read - 1, at - 1
        else:
            read -= 1
    return ["".join(reversed(values[end])) for end in ends]


def _units(text: str) -> list[str]:
    """Characters, but for escapes, which stay whole."""
    found: list[str] = []
    place = 0
    while place < len(text):
        size = 2 if text[place] == "\\" and text[place + 1 : place + 2] in ESCAPES else 1
        if text[place : place + 2] == "\\u":
            size = 6
        found.append(text[place : place + size])
        place += size
    return found


def _is_value(unit: str) -> bool:
    return unit not in ('"', "\\") and (len(unit) > 1 or unit >= " ")


def _with_values(syntax: Syntax, values: Sequence[str]) -> str | None:
    text = syntax.literals[0]
    for value, choices, literal in zip(values, syntax.choices, syntax.literals[1:], strict=True):
        known = value if choices is None else nearest_word(value, choices)
        if not known:
            return None
        text += known + literal
    return text


def nearest_word(word: str, words: Sequence[str]) -> str | None:
    """The one word at the smallest distance; None where two are as near, or the word differs from
    it in half of its characters or more."""
    ranked = sorted((distance(word, other), other) for other in set(words))
    if not ranked or (len(ranked) > 1 and ranked[0][0] == ranked[1][0]):
        return None
    far, nearest = ranked[0]
    return nearest if 2 * far < len(nearest) else None


def distance(left: str, right: str) -> int:
    """Levenshtein's."""
    row = list(range(len(right) + 1))
    for i, char in enumerate(left, start=1):
        last, row = row, [i]
        for j, other in enumerate(right, start=1):
            row.append(min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (char != other)))
    return row[-1]
