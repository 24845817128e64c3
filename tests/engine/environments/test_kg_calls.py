"""Turns as JSON: calls, answers, and every way to get them wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.environments.kg_search.calls import (
    INVALID_CALLS,
    Answer,
    CallError,
    ErrorCode,
    Lookup,
    cut,
    parse_turn,
    render_answer,
    render_lookup,
    render_values,
    tool_schemas,
)

RELATIONS = ["capital", "country"]
text = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner) | st.dictionaries(text, inner),
    max_leaves=10,
)


@given(text, st.sampled_from(RELATIONS))
def test_a_call_survives_rendering_and_parsing(entity: str, relation: str) -> None:
    assert parse_turn(render_lookup(entity, relation), RELATIONS) == Lookup(entity, relation)


@given(text)
def test_an_answer_survives_rendering_and_parsing(answer: str) -> None:
    assert parse_turn(render_answer(answer), RELATIONS) == Answer(answer)


def test_it_keeps_other_scripts_unescaped() -> None:
    assert render_lookup("北京 🚀", "country") == (
        '{"tool":"lookup","entity":"北京 🚀","relation":"country"}'
    )


@pytest.mark.parametrize(
    ("turn", "code"),
    [
        ("", "invalid_json"),
        ("Paris", "invalid_json"),
        ('{"tool":"lookup","entity":"Paris"', "invalid_json"),
        ('{"tool":"lookup","entity":"Paris","relation":"country"} and more', "invalid_json"),
        ('{"answer":"a","answer":"b"}', "invalid_json"),
        ('{"answer":"\\ud800"}', "invalid_json"),
        ('{"answer":NaN}', "invalid_json"),
        ('{"tool":"lookup","entity":-1e999}', "invalid_json"),
        ('{"answer":' + "[" * 480 + "]" * 480 + "}", "invalid_json"),
        ("[" * 100_000, "invalid_json"),
        ("9" * 5_000, "invalid_json"),
        ("[]", "not_an_object"),
        ("null", "not_an_object"),
        ('"{\\"answer\\":\\"double-encoded\\"}"', "not_an_object"),
        ("{}", "unknown_tool"),
        ('{"tool":"search","entity":"Paris"}', "unknown_tool"),
        ('{"tool":["lookup"]}', "unknown_tool"),
        ('{"tool":"lookup"}', "invalid_arguments"),
        ('{"tool":"lookup","entity":5,"relation":"country"}', "invalid_arguments"),
        ('{"tool":"lookup","entity":"Paris","relation":"mayor"}', "invalid_arguments"),
        ('{"tool":"lookup","entity":"P","relation":"country","x":1}', "invalid_arguments"),
        ('{"answer":5}', "invalid_arguments"),
        ('{"answer":"a","because":"b"}', "invalid_arguments"),
    ],
)
def test_it_names_what_is_wrong_with_a_turn(turn: str, code: str) -> None:
    with pytest.raises(CallError) as caught:
        parse_turn(turn, RELATIONS)
    assert caught.value.code == ErrorCode(code)
    assert caught.value.code in INVALID_CALLS
    assert caught.value.message.endswith(".")


@given(text | json_values.map(json.dumps))
def test_it_reads_a_turn_or_raises_its_own_error(turn: str) -> None:
    try:
        assert isinstance(parse_turn(turn, RELATIONS), Lookup | Answer)
    except CallError as error:
        json.dumps(error.arguments, ensure_ascii=False, allow_nan=False).encode()


def test_one_value_and_several_are_told_apart() -> None:
    assert json.loads(render_values(["a"])) == {"value": "a"}
    assert json.loads(render_values(["a", "b"])) == {"values": ["a", "b"]}


@given(text, st.integers(1, 50))
def test_it_cuts_long_results_and_says_how_much_it_left(result: str, limit: int) -> None:
    shown = cut(result, limit)
    if len(result) <= limit:
        assert shown == result
    else:
        left, total = len(result[:limit].encode()), len(result.encode())
        assert shown == f"{result[:limit]} [cut: {left} of {total} bytes]"


def test_its_schema_says_what_the_parser_takes() -> None:
    (tool,) = tool_schemas(RELATIONS)
    parameters = tool["function"]["parameters"]
    assert tool["function"]["name"] == "lookup"
    assert set(parameters["properties"]) == set(parameters["required"]) == {"entity", "relation"}
    assert parameters["properties"]["relation"]["enum"] == RELATIONS
    assert parameters["additionalProperties"] is False
