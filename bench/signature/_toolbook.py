"""Calls of many tools: a small policy that copies names from the prompt, and slips in the syntax.

A prompt names a tool and the values of its arguments, after some notes that have nothing to do with
it; the policy writes the call as JSON. Names and values are made of syllables. In its cold start
the policy sees calls of made-up tools, some of them corrupted as `Slips` says; the tools that are
practised, and those that are held out, occur nowhere in it.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.environments.nearest_call import nearest_call, syntax_of
from engine.environments.protocol import Observation, Task
from engine.records.trajectory import Reward, Segment, StopReason, ToolCall, Trajectory
from engine.synthesis import Tokenizer

SYLLABLES = (
    "ba", "do", "fe", "gu", "ki", "lo", "mu", "na", "pe", "ri",
    "so", "tu", "ve", "zo", "be", "da", "fi", "ga", "ko", "lu",
)  # fmt: skip
CLASSES = ("invalid_json", "not_an_object", "unknown_tool", "invalid_arguments")


@dataclass(frozen=True)
class Tool:
    name: str
    arguments: tuple[str, ...]

    @property
    def schema(self) -> dict[str, Any]:
        """As an OpenAI function schema."""
        properties = {name: {"type": "string"} for name in self.arguments}
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        return {"type": "function", "function": {"name": self.name, "parameters": parameters}}

    def call(self, values: Sequence[str]) -> str:
        fields = {"tool": self.name, **dict(zip(self.arguments, values, strict=True))}
        return json.dumps(fields, separators=(",", ":"))


@dataclass(frozen=True)
class Tools:
    """No name of a tool, and of an argument, is in two of the sets."""

    practised: tuple[Tool, ...]
    held_out: tuple[Tool, ...]
    names: tuple[str, ...]  # of tools and arguments in the cold start


def make_tools(seed: int, practised: int = 40, held_out: int = 12) -> Tools:
    """Practised tools have one or two arguments, those held out two or three."""
    rng = random.Random(f"tools {seed}")
    names = [a + b for a in SYLLABLES for b in SYLLABLES]
    rng.shuffle(names)
    found = iter(names)

    def some(count: int, least: int) -> tuple[Tool, ...]:
        return tuple(
            Tool(next(found), tuple(next(found) for _ in range(rng.randint(least, least + 1))))
            for _ in range(count)
        )

    return Tools(some(practised, 1), some(held_out, 2), tuple(found))


def make_task(rng: random.Random, tool: Tool, notes: int) -> Task:
    values = [_word(rng) for _ in tool.arguments]
    said = "".join(f'"{_word(rng)}" "{_word(rng)}". ' for _ in range(notes))
    pairs = zip(tool.arguments, values, strict=True)
    asked = "".join(f' "{name}" "{value}"' for name, value in pairs)
    prompt = f'{said}"{tool.name}":{asked}'  # in quotes a name has the tokens that it has in a call
    return Task(f"{rng.getrandbits(64):016x}", "calls", prompt, tool.call(values), 1)


def cold_start_tool(rng: random.Random, tools: Tools) -> Tool:
    name, *arguments = rng.sample(tools.names, 1 + rng.randint(1, 3))
    return Tool(name, tuple(arguments))


def slipped(rng: random.Random, call: str) -> str:
    """The call with one mistake, of each class as often."""
    fields = json.loads(call)
    tool, *arguments = fields
    kind = rng.choice(CLASSES)
    if kind == "not_an_object":
        return f"[{call}]"
    if kind == "unknown_tool":
        return call.replace(fields[tool], f"{fields[tool]}_tool", 1)
    if kind == "invalid_arguments":
        name = rng.choice(arguments)
        return call.replace(f'"{name}":', f'"{name}_id":')
    name = rng.choice(arguments)
    return rng.choice([call[:-1], call.replace(f'"{fields[name]}"', fields[name], 1)])


def texts(rng: random.Random, tools: Tools, slips: float) -> Iterator[tuple[Task, str]]:
    """Prompts and calls of the cold start, without end."""
    while True:
        task = make_task(rng, cold_start_tool(rng, tools), rng.randint(0, 3))
        wrong = rng.random() < slips
        yield task, slipped(rng, task.answer) if wrong else task.answer


def demonstration(task: Task, call: str, tokenizer: Tokenizer) -> Trajectory:
    context, turn = tokenizer.encode_prompt(task), tokenizer.encode_turn(call)
    size = len(context) + len(turn)
    mask = [False] * len(context) + [True] * len(turn)
    segment = Segment([*context, *turn], mask, [0.0] * size, [-1] * size)
    return Trajectory(
        task.id, task.id, task.id, task.category, task.prompt, task.answer, [segment], [],
        StopReason.ANSWERED, Reward(None, False), True, "", "", 0.0, len(turn), "demonstration",
    )  # fmt: skip


class Toolbook:
    """One call an episode; succeeds where it is the one that was asked for. Also the repairer."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._syntaxes = {tool.name: syntax_of(tool.schema) for tool in tools}

    def tools(self) -> list[dict[str, Any]]:
        return [tool.schema for tool in self._tools.values()]

    def start(self, task: Task) -> "Toolbook":
        return self  # an episode of one turn has no state

    def act(self, text: str) -> Observation:
        fault = self.fault(text)
        call = ToolCall("call_0", "", None, "", fault, 0.0)
        if fault is not None:
            return Observation("", call=call, stop=StopReason.INVALID_CALLS)
        said = json.dumps(json.loads(text), separators=(",", ":"))
        return Observation("", call=call, answer=said, stop=StopReason.ANSWERED)

    def fault(self, text: str) -> str | None:
        try:
            fields = json.loads(text)
        except ValueError:
            return "invalid_json"
        if not isinstance(fields, dict):
            return "not_an_object"
        tool = self._tools.get(str(fields.pop("tool", "")))
        if tool is None:
            return "unknown_tool"
        whole = all(isinstance(value, str) for value in fields.values())
        return None if whole and set(fields) == set(tool.arguments) else "invalid_arguments"

    def repaired(self, text: str, context: str) -> str | None:
        """The nearest call of a tool that the context names."""
        offered = [one for name, one in self._syntaxes.items() if f'"{name}":' in context]
        return nearest_call(text, offered)


def _word(rng: random.Random) -> str:
    return "".join(rng.choice(SYLLABLES) for _ in range(2))
