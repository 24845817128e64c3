"""Search in a real knowledge graph by JSON tool calls."""

from engine.environments.kg_search.episode import KgSearch
from engine.environments.kg_search.graph import KnowledgeGraph, full_graph, task_graph

__all__ = ["KgSearch", "KnowledgeGraph", "full_graph", "task_graph"]
