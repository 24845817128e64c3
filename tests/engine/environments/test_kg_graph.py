"""The knowledge graph: its size, its names, and facts that anyone can check."""

import re

import pytest

from engine.environments.kg_search.graph import AGENT_RELATIONS, full_graph, task_graph

FULL = full_graph()


def count(relation: str) -> int:
    return sum(len(held.get(relation, ())) for held in FULL.facts.values())


def test_it_holds_the_whole_of_its_sources() -> None:
    kinds = list(FULL.kinds.values())
    assert 50_000 < len(kinds) < 52_000
    assert 125_000 < FULL.edges < 140_000
    assert kinds.count("city") == pytest.approx(34_006, rel=0.02)
    assert kinds.count("airport") == pytest.approx(7_884, rel=0.05)
    assert kinds.count("subdivision") == pytest.approx(5_046, rel=0.05)
    assert count("country") == pytest.approx(46_936, rel=0.02)
    assert count("timezone") == pytest.approx(41_890, rel=0.02)
    assert count("borders") == pytest.approx(654, rel=0.05)
    assert count("language") + count("also spoken") == pytest.approx(735, rel=0.05)


@pytest.mark.parametrize(
    ("entity", "relation", "values"),
    [
        ("Paris", "country", ("France",)),
        ("France", "capital", ("Paris",)),
        ("Australia", "capital", ("Canberra",)),
        ("Australia", "metropolis", ("Sydney",)),
        ("Japan", "currency", ("Yen",)),
        ("Portugal", "neighbour", ("Spain",)),
        ("CDG", "city", ("Paris",)),
        ("Nairobi", "timezone", ("Africa/Nairobi",)),
    ],
)
def test_it_knows(entity: str, relation: str, values: tuple[str, ...]) -> None:
    assert FULL.values(entity, relation) == values


def test_it_gives_several_values_where_there_are_several() -> None:
    assert {"LHR", "LGW", "LCY"} <= set(FULL.values("London", "airport"))


def test_the_larger_city_keeps_the_plain_name() -> None:
    assert FULL.values("Hyderabad", "country") == ("India",)
    assert FULL.values("Hyderabad, PK", "country") == ("Pakistan",)
    assert FULL.kinds["Singapore"] == "country"


def test_every_value_is_an_entity_and_every_name_fits_into_quotes() -> None:
    for held in FULL.facts.values():
        for values in held.values():
            assert all(value in FULL.kinds for value in values)
    for name in FULL.kinds:
        assert name == name.strip()
        assert not re.search(r'["\\\x00-\x1f]|  ', name)


@pytest.mark.parametrize("cities", [50, 2000])
def test_a_task_graph_holds_the_largest_cities_and_what_belongs_to_them(cities: int) -> None:
    graph = task_graph(cities)
    found = [name for name, kind in graph.kinds.items() if kind == "city"]
    assert cities <= len(found) <= cities * 1.3  # with the capitals of their countries
    largest = [name for name, kind in FULL.kinds.items() if kind == "city"][:cities]
    assert set(largest) <= set(found)
    for entity, held in graph.facts.items():
        assert set(held) <= set(AGENT_RELATIONS[graph.kinds[entity]])
        for relation, values in held.items():
            assert values == FULL.values(entity, relation)
            assert all(value in graph.kinds for value in values)


def test_the_quick_start_graph_has_its_size() -> None:
    graph = task_graph(2000)
    assert 3_500 < len(graph.kinds) < 3_900
    assert len(graph.relations) == 10
