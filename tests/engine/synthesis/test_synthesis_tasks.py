"""Tasks against brute force over the graph: one answer, no shortcut, no leak."""

import itertools
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.environments.kg_search import KnowledgeGraph, task_graph
from engine.environments.protocol import Task
from engine.spec import hop_category
from engine.synthesis.tasks import GATES, HUB_MIN, HUB_SHARE, TaskSource, split_entities

GRAPH = task_graph(300)


def read_question(prompt: str) -> tuple[str, list[str]]:
    """Start entity and relations in the order of looking up, out of the prompt alone."""
    found = re.fullmatch(r"""What is "(.+)"'s (.+)\?""", prompt)
    assert found
    return found[1], found[2].split("'s ")


def all_answers(graph: KnowledgeGraph, prompt: str) -> set[str]:
    """Follows every value of every step: an oracle that knows no paths."""
    start, relations = read_question(prompt)
    reached = {start}
    for relation in relations:
        reached = {v for entity in reached for v in graph.values(entity, relation)}
    return reached


def seen_in(graph: KnowledgeGraph, start: str, lookups: int) -> set[str]:
    """Every entity that some sequence of at most so many lookups shows, start included."""
    seen = {start}
    for length in range(1, lookups + 1):
        for relations in itertools.product(graph.relations, repeat=length):
            reached = {start}
            for relation in relations:
                reached = {v for entity in reached for v in graph.values(entity, relation)}
            seen |= reached
    return seen


def check(graph: KnowledgeGraph, task: Task) -> None:
    start, relations = read_question(task.prompt)
    assert len(relations) == task.hops and task.category == hop_category(task.hops)
    assert all_answers(graph, task.prompt) == {task.answer}
    assert task.answer not in seen_in(graph, start, task.hops - 1)
    path = task.meta["path"]
    assert path[0] == start and path[-1] == task.answer
    for entity, relation, value in zip(path, relations, path[1:], strict=False):
        assert graph.values(entity, relation) == (value,)


@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_it_draws_questions_with_one_answer_and_no_shortcut(hops: int) -> None:
    starts = list(GRAPH.facts)
    tasks, passed = TaskSource(GRAPH).draw(starts, hops, 60, "0")
    assert len(tasks) == len({task.id for task in tasks}) == len({t.prompt for t in tasks}) == 60
    for task in tasks:
        check(GRAPH, task)
    counts = [passed[gate] for gate in GATES]
    assert counts == sorted(counts, reverse=True) and counts[-1] == 60


names = st.sampled_from("abcdefgh")


@st.composite
def graphs(draw: st.DrawFn) -> KnowledgeGraph:
    """Small graphs that are dense enough for shortcuts, loops and several values."""
    kinds = {name: draw(st.sampled_from(["city", "country"]), label=name) for name in "abcdefgh"}
    facts: dict[str, dict[str, tuple[str, ...]]] = {}
    for kind, relation in itertools.product(("city", "country"), ("r", "s", "t")):
        value_kind = draw(st.sampled_from(["city", "country"]))
        values = [name for name in kinds if kinds[name] == value_kind]
        for entity in (name for name in kinds if kinds[name] == kind):
            if values and (
                held := draw(st.lists(st.sampled_from(values), max_size=2, unique=True))
            ):
                facts.setdefault(entity, {})[relation] = tuple(held)
    return KnowledgeGraph(kinds, facts)


@settings(max_examples=150)
@given(graphs(), st.integers(1, 3), st.integers(0, 3))
def test_it_holds_on_any_graph(graph: KnowledgeGraph, hops: int, seed: int) -> None:
    assume(graph.facts)
    tasks, _ = TaskSource(graph).draw(list(graph.facts), hops, 5, str(seed))
    for task in tasks:
        check(graph, task)


@settings(max_examples=100)
@given(graphs(), st.integers(1, 3))
def test_it_counts_the_fewest_lookups(graph: KnowledgeGraph, most: int) -> None:
    assume(graph.facts)
    start = next(iter(graph.facts))
    source = TaskSource(graph)
    for answer in graph.kinds:
        fewest = next((n for n in range(most) if answer in seen_in(graph, start, n)), most)
        assert source.lookups_needed(start, answer, most) == fewest


def test_no_entity_serves_in_too_many_tasks() -> None:
    count = 100
    tasks, _ = TaskSource(GRAPH).draw(list(GRAPH.facts), 3, count, "0")
    for name in GRAPH.kinds:
        assert sum(name in t.meta["path"][1:] for t in tasks) <= max(HUB_MIN, HUB_SHARE * count)


def test_it_stops_where_the_graph_has_no_more() -> None:
    graph = KnowledgeGraph({"a": "city", "b": "country"}, {"a": {"country": ("b",)}})
    tasks, passed = TaskSource(graph).draw(["a"], 1, 10, "0")
    assert [task.answer for task in tasks] == ["b"] and passed["new"] == 1
    assert TaskSource(graph).draw(["a"], 2, 10, "0") == ([], dict.fromkeys(GATES, 0))


def test_the_same_seed_gives_the_same_tasks_and_another_one_others() -> None:
    starts = list(GRAPH.facts)
    first, _ = TaskSource(GRAPH).draw(starts, 3, 50, "0")
    again, _ = TaskSource(GRAPH).draw(starts, 3, 50, "0")
    other, _ = TaskSource(GRAPH).draw(starts, 3, 50, "1")
    assert first == again
    assert {t.id for t in first} != {t.id for t in other}


@given(st.floats(0.05, 0.9), st.integers(0, 2**31 - 1))
@settings(max_examples=25)
def test_the_split_keeps_cities_and_their_airports_together(share: float, seed: int) -> None:
    split = split_entities(GRAPH, share, seed)
    held_out, training = set(split.held_out), set(split.training)
    assert not held_out & training
    assert held_out | training == set(GRAPH.facts)
    cities = [name for name in GRAPH.facts if GRAPH.kinds[name] == "city"]
    assert sum(name in held_out for name in cities) == round(share * len(cities))
    for city in cities:
        for airport in GRAPH.values(city, "airport"):
            assert (city in held_out) == (airport in held_out)
