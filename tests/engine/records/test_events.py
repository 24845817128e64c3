"""Events on the wire: numbers that JSON lacks, strict items, every kind through its own text."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from engine.records.events import Event, Metrics, encode_number

ADAPTER: TypeAdapter[Any] = TypeAdapter(Event)
BASE = {"source": "trainer-0", "seq": 1, "at": 1.5}

TREE = {
    "kind": "tree", "step": 3, "parents": [-1, 0], "tokens": [3, 1], "samples": [2, 1],
    "label": [0, -1], "labels": ["3 hops"], "nodes": 2, "total_tokens": 4, "sample_tokens": 7,
}  # fmt: skip


def test_a_tree_is_taken() -> None:
    assert ADAPTER.validate_json(json.dumps({**BASE, **TREE})).kind == "tree"


@given(st.floats())
def test_every_number_survives_json(value: float) -> None:
    text = json.dumps(
        {**BASE, "kind": "metrics", "step": 3, "values": {"loss": encode_number(value)}},
        allow_nan=False,
    )
    item = ADAPTER.validate_json(text)
    assert isinstance(item, Metrics)
    read = item.values["loss"]
    assert read == value or (math.isnan(read) and math.isnan(value))


@given(st.floats())
def test_an_item_survives_its_own_json(value: float) -> None:
    item = Metrics(**BASE, step=0, values={"loss": value})  # type: ignore[arg-type]
    text = json.dumps(item.model_dump(mode="json"), allow_nan=False)
    again = ADAPTER.validate_json(text)
    assert again.model_dump(mode="json") == item.model_dump(mode="json")


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "metrics", "step": 0, "values": {}},
        {"kind": "metrics", "step": -1, "values": {"a": 1}},
        {"kind": "metrics", "step": 0, "values": {"a\n": 1}},
        {"kind": "metrics", "step": 0, "values": {"": 1}},
        {"kind": "metrics", "step": 0, "values": {"a": "much"}},
        {"kind": "metrics", "step": 0, "values": {"a": 1}, "extra": 1},
        {"kind": "metrics", "step": 0, "values": {"a": 1}, "seq": 0},
        {"kind": "metrics", "step": 0, "values": {"a": 1}, "source": ""},
        {"kind": "rumour"},
        {"kind": "log", "text": "x" * 20_001},
        {"kind": "trajectories", "shard": "../../etc", "rows": []},
        {**TREE, "parents": [-1]},
        {**TREE, "parents": [1, -1]},
        {**TREE, "label": [0, 1]},
        {**TREE, "tokens": [3, 0]},
        {**TREE, "labels": ["x" * 201]},
    ],
)
def test_it_refuses_a_malformed_item(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ADAPTER.validate_json(json.dumps({**BASE, **fields}))
