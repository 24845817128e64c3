"""Repairs in the real environment: valid there, and of the name that was meant."""

import random

import pytest

from engine.environments.kg_search import KgSearch, task_graph
from engine.environments.kg_search.calls import render_answer, render_lookup
from engine.environments.kg_search.repair import KgRepairer
from engine.environments.protocol import Task
from engine.spec import EnvironmentSpec

TASK = Task("t", "1 hop", "?", "", 1)


@pytest.fixture(scope="module")
def graph():
    return task_graph(50)


def test_a_fault_is_what_the_environment_says_of_the_turn(graph):
    repairer, environment = KgRepairer(graph), KgSearch(graph, EnvironmentSpec())
    name = next(iter(graph.kinds))
    for turn in (
        "nonsense",
        "[]",
        '{"tool":"find"}',
        '{"tool":"lookup","entity":"a"}',
        render_lookup("Nowhere at all", "country"),
    ):
        call = environment.start(TASK).act(turn).call
        assert call is not None
        assert repairer.fault(turn) == call.error, turn
    assert repairer.fault(render_lookup(name, "country")) is None
    assert repairer.fault(render_answer(name)) is None


def test_a_name_is_mended_by_what_the_context_quotes(graph):
    repairer = KgRepairer(graph)
    name = next(n for n in graph.kinds if len(n) > 5)
    wrong = render_lookup(name[:-1] + "q", "country")
    context = f'What is "{name}"\'s country?\n{{"value":"Nowhere"}}'
    assert repairer.repaired(wrong, context) == render_lookup(name, "country")
    assert repairer.repaired(wrong, "What is it?") is None, "no name is made up"
    both = wrong.replace('"relation"', "relation")
    assert repairer.repaired(both, context) == render_lookup(name, "country")


def test_every_repair_is_valid_in_the_environment(graph):
    repairer, rng = KgRepairer(graph), random.Random(0)
    names, mended = sorted(graph.kinds), 0
    for _ in range(200):
        name = rng.choice(names)
        text = render_lookup(name, "country")
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(["", text[at] * 2, '"', "}", "x"]) + text[at + 1 :]
        found = repairer.repaired(text, f'"{name}"')
        if found is not None:
            mended += 1
            assert repairer.fault(found) is None
    assert mended > 100
