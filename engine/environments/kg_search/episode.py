"""The environment: looks entities up for the agent, with typed errors and firm limits."""

import time
from typing import Any

from engine.environments.deadline import Deadline, DeadlineError
from engine.environments.kg_search.calls import (
    INVALID_CALLS,
    Answer,
    CallError,
    ErrorCode,
    Lookup,
    cut,
    parse_turn,
    render_error,
    render_values,
    tool_schemas,
)
from engine.environments.kg_search.graph import AGENT_RELATIONS, KnowledgeGraph
from engine.environments.protocol import Observation, Task
from engine.records.trajectory import StopReason, ToolCall
from engine.spec import EnvironmentSpec

RELATIONS = sorted({relation for held in AGENT_RELATIONS.values() for relation in held})


class KgSearch:
    """Episodes over one graph. Holds nothing of any episode but the tools' worker thread."""

    def __init__(self, graph: KnowledgeGraph, spec: EnvironmentSpec) -> None:
        self.graph = graph
        self.spec = spec
        self._deadline = Deadline()

    def tools(self) -> list[dict[str, Any]]:
        return tool_schemas(RELATIONS)

    def start(self, task: Task) -> "KgEpisode":
        return KgEpisode(self)

    def lookup(self, call: Lookup) -> str:
        """The result as text. Raises CallError, never anything else."""
        try:
            return self._deadline.run(lambda: self._read(call), self.spec.call_timeout_s)
        except CallError:
            raise
        except DeadlineError:
            raise CallError(ErrorCode.TIMEOUT, "The lookup took too long.") from None
        except Exception as error:  # a broken tool is not the agent's fault: nothing is learnt
            problem = f"{type(error).__name__}: {error}"
            raise CallError(ErrorCode.TOOL_FAILED, problem) from error

    def _read(self, call: Lookup) -> str:
        if call.entity not in self.graph.kinds:
            raise CallError(ErrorCode.UNKNOWN_ENTITY, "No entity has this name.")
        values = self.graph.values(call.entity, call.relation)
        if not values:
            raise CallError(ErrorCode.NO_SUCH_RELATION, "The entity has no such relation.")
        return render_values(values)


class KgEpisode:
    """One attempt. Calls are counted and compared here, so that no episode sees another."""

    def __init__(self, environment: KgSearch) -> None:
        self._environment = environment
        self._calls = 0
        self._invalid_in_a_row = 0
        self._same_in_a_row = 0
        self._last_call = ""
        self._over = False

    def act(self, text: str) -> Observation:
        if self._over:
            raise RuntimeError("This episode is over: start a new one.")
        started = time.perf_counter()
        result, name = "", ""
        error: CallError | None = None
        arguments: dict[str, Any] | None = None
        try:
            turn = parse_turn(text, RELATIONS)
            if isinstance(turn, Answer):
                self._over = True
                return Observation("", answer=turn.text, stop=StopReason.ANSWERED)
            name, arguments = "lookup", {"entity": turn.entity, "relation": turn.relation}
            if self._calls < self._environment.spec.max_calls:
                result = self._environment.lookup(turn)
        except CallError as raised:
            error = raised
            if arguments is None:  # no well-formed call: what the parser could make of it
                name, arguments = raised.name, raised.arguments
            result = render_error(raised.code, raised.message)
        stop = self._count(text if error or not arguments else str(arguments), error)
        call = ToolCall(
            call_id=f"call_{self._calls}",
            name=name,
            arguments=arguments,
            result=cut(result, self._environment.spec.max_result_chars),
            error=error.code.value if error else None,
            duration_s=time.perf_counter() - started,
        )
        if stop is StopReason.MAX_CALLS and not error:
            call.error = stop.value  # refused, not looked up
        return Observation("" if stop else call.result, call=call, stop=stop)

    def _count(self, call: str, error: CallError | None) -> StopReason | None:
        """Counts one call and says whether it ends the episode."""
        limits = self._environment.spec
        code = error.code if error else None
        self._calls += 1
        self._same_in_a_row = self._same_in_a_row + 1 if call == self._last_call else 1
        self._last_call = call
        self._invalid_in_a_row = self._invalid_in_a_row + 1 if code in INVALID_CALLS else 0
        stop = None
        if code is ErrorCode.TOOL_FAILED:
            stop = StopReason.INFRA_ERROR
        elif self._calls > limits.max_calls:
            stop = StopReason.MAX_CALLS
        elif self._invalid_in_a_row >= limits.invalid_call_limit:
            stop = StopReason.INVALID_CALLS
        elif self._same_in_a_row >= limits.repeated_call_limit:
            stop = StopReason.REPEATED_CALL
        self._over = stop is not None
        return stop
