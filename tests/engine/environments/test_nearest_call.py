"""The nearest valid call: its distance against Levenshtein's, and what it keeps and refuses."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.environments.kg_search.calls import CallError, parse_turn, render_lookup, tool_schemas
from engine.environments.nearest_call import (
    ANSWER,
    align,
    distance,
    nearest_call,
    nearest_word,
    syntax_of,
)

RELATIONS = ["capital", "country", "currency"]
LOOKUP = syntax_of(tool_schemas(RELATIONS)[0])
BOTH = [LOOKUP, ANSWER]
NAMES = st.text(
    st.characters(exclude_characters='"\\', exclude_categories=["Cs", "Cc"]), min_size=1
)
NEAR = st.text(st.sampled_from('{}":,toolLyncury '), max_size=40)


def slow_distance(a: str, b: str) -> int:
    if not a or not b:
        return len(a) + len(b)
    return min(
        slow_distance(a[1:], b) + 1,
        slow_distance(a, b[1:]) + 1,
        slow_distance(a[1:], b[1:]) + (a[0] != b[0]),
    )


@given(st.text("ab", max_size=5), st.text("ab", max_size=5))
def test_distance_is_levenshteins(a, b):
    assert distance(a, b) == slow_distance(a, b)


def test_a_schema_becomes_the_syntax_of_its_calls():
    assert LOOKUP.literals == ('{"tool":"lookup","entity":"', '","relation":"', '"}')
    assert LOOKUP.choices == (None, tuple(RELATIONS))
    schema = tool_schemas(RELATIONS)[0]
    schema["function"]["parameters"]["properties"]["entity"]["type"] = "integer"
    with pytest.raises(ValueError, match="argument entity is integer; only required strings"):
        syntax_of(schema)


@settings(max_examples=60)
@given(NEAR, NAMES, NAMES)
def test_no_values_make_a_nearer_call_than_those_found(text, one, other):
    far, (entity, relation) = align(text, LOOKUP)

    def whole(entity: str, relation: str) -> str:
        return LOOKUP.literals[0] + entity + LOOKUP.literals[1] + relation + LOOKUP.literals[2]

    assert distance(text, whole(entity, relation)) == far
    assert distance(text, whole(one, other)) >= far


@settings(max_examples=60)
@given(NAMES, st.sampled_from(RELATIONS), st.data())
def test_one_slip_in_the_syntax_is_mended_and_the_arguments_stay(entity, relation, data):
    right = render_lookup(entity, relation)
    start = len(LOOKUP.literals[0])
    fixed = [*range(start), *range(start + len(entity), len(right) - len(relation) - 2)]
    at = data.draw(st.sampled_from([*fixed, len(right) - 2, len(right) - 1]))
    slip = data.draw(st.sampled_from(["", right[at] * 2, "#"]))
    broken = right[:at] + slip + right[at + 1 :]
    found = nearest_call(broken, BOTH)
    if found is None:  # a slip that leaves a valid value elsewhere, as in an argument's name
        assert json.loads(broken)
        return
    turn = parse_turn(found, RELATIONS)
    assert turn.relation == relation
    assert distance(turn.entity, entity) <= 1  # a slip at its very edge may be taken for part of it


@pytest.mark.parametrize(
    ("broken", "repaired"),
    [
        ('{"tool":"lookup","entity":"A","relation":"country"', render_lookup("A", "country")),
        ('{"tool":"lookup","entity":"Lyon,"relation":"contry"}', render_lookup("Lyon", "country")),
        ('{"tool":"search","entity":"A","relation":"country"}', render_lookup("A", "country")),
        ('{"tool":"lookup","name":"Lyon","relation":"country"}', render_lookup("Lyon", "country")),
        ('[{"tool":"lookup","entity":"A","relation":"capital"}]', render_lookup("A", "capital")),
        ('{"entity":"Lyon","relation":"country"}', render_lookup("Lyon", "country")),
        (
            '{"tool":"lookup","entity":"L","relation":"capital","x":"y"}',
            render_lookup("L", "capital"),
        ),
        ('{"answer":Euro}', '{"answer":"Euro"}'),
        ('{"answer":5}', '{"answer":"5"}'),
        ('{"answer":"Eu"ro"}', None),  # in two pieces
        ('{"tool":"lookup","entity":"A","relation":"capital","x":"capital"', None),
        ('{"answer":"a\\"b"', '{"answer":"a\\"b"}'),
        ('{"answer":"a","tool":"lookup"}', None),  # which of the two was meant?
        ('{"tool":"lookup","entity":"Lyon"}', None),  # the relation would be made up
        ('{"tool":"lookup","entity":"Lyon","relation":"mayor"}', None),
        ('{"tool":"lookup","entity":["Lyon"],"relation":"country"}', None),
        ("I do not know.", None),
        ("", None),
        ("null", None),
        ("[" * 100_000, None),
        ("9" * 5_000, None),
    ],
)
def test_what_it_mends_and_what_it_leaves(broken, repaired):
    assert nearest_call(broken, BOTH) == repaired


@given(st.text(max_size=60))
def test_whatever_the_text_a_repair_is_valid(text):
    found = nearest_call(text, BOTH)
    if found is not None:
        try:
            parse_turn(found, RELATIONS)
        except CallError as error:
            pytest.fail(f"{text!r} -> {found!r}: {error.message}")


def test_of_two_words_as_near_none_is_taken():
    assert nearest_word("contry", ["country", "currency"]) == "country"
    assert nearest_word("ab", ["abc", "abd"]) is None
    assert nearest_word("xyz", ["abc"]) is None
    assert nearest_word("a", []) is None
