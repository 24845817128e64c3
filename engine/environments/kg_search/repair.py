"""What is wrong with a turn in this environment, and the nearest turn that is not."""

import json
import re
from dataclasses import replace

from engine.environments.kg_search.calls import (
    CallError,
    ErrorCode,
    Lookup,
    parse_turn,
    render_lookup,
    tool_schemas,
)
from engine.environments.kg_search.episode import RELATIONS
from engine.environments.kg_search.graph import KnowledgeGraph
from engine.environments.nearest_call import ANSWER, nearest_call, nearest_word, syntax_of

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


class KgRepairer:
    """Faults of form, and names that were copied wrong. Whether a relation leads anywhere is the
    policy's decision: such a call has no repair."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self._graph = graph
        self._syntaxes = [*map(syntax_of, tool_schemas(RELATIONS)), ANSWER]

    def fault(self, text: str) -> str | None:
        """The environment's error code of a turn, None where nothing is wrong with it."""
        try:
            turn = parse_turn(text, RELATIONS)
        except CallError as error:
            return error.code.value
        if isinstance(turn, Lookup) and turn.entity not in self._graph.kinds:
            return ErrorCode.UNKNOWN_ENTITY.value
        return None

    def repaired(self, text: str, context: str) -> str | None:
        """The nearest turn without a fault, by form or by the names that the context quotes; None
        where there is none."""
        fault = self.fault(text)
        if fault is not None and fault != ErrorCode.UNKNOWN_ENTITY:
            text = nearest_call(text, self._syntaxes) or ""
            fault = self.fault(text)
        if fault == ErrorCode.UNKNOWN_ENTITY:
            turn = parse_turn(text, RELATIONS)
            assert isinstance(turn, Lookup)
            name = nearest_word(turn.entity, self._names(context))
            if name is None:
                return None
            fixed = replace(turn, entity=name)
            text = render_lookup(fixed.entity, fixed.relation)
            fault = self.fault(text)
        return text if fault is None else None

    def _names(self, context: str) -> list[str]:
        found = []
        for quoted in _QUOTED.findall(context):
            try:
                found.append(json.loads(quoted))
            except ValueError:
                continue
        return [name for name in found if name in self._graph.kinds]
