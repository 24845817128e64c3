"""Editing a spec's text in place, against parsing the text and changing the data."""

import copy

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from webapp.experiments.recipes import recipes, with_overrides
from webapp.experiments.spec_text import data_of, line_near, lines_of, remove_value, set_value
from webapp.problems import RefusedError

TEXT = """\
# A recipe
name: try          # its name
pool:
  gate: {shares: {"3 hops": 0.6}}
  capacity: 96     # groups

stages:
  - kind: synthesise
    tasks: {"1": 10}
  # the long one
  - kind: rl
    hops: [3, 4]
    steps: 70
"""

keys = st.text("abcdefgh_", min_size=1, max_size=6)
scalars = st.one_of(
    st.integers(-1000, 1000),
    st.floats(-1e3, 1e3, allow_nan=False),
    st.booleans(),
    st.text("abc :#{}[],'\"-0", max_size=8),
)
data = st.dictionaries(
    keys,
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    ),
    min_size=1,
    max_size=4,
)


def paths_of(value, path=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key)
            yield from paths_of(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield (*path, index)
            yield from paths_of(item, (*path, index))


def put(value, path, new):
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = new


def drop(value, path):
    for step in path[:-1]:
        value = value[step]
    del value[path[-1]]


def test_it_replaces_a_value_and_keeps_comments() -> None:
    changed = set_value(TEXT, "pool.capacity", 128)
    assert changed == TEXT.replace("96 ", "128 ")


def test_it_replaces_inside_a_flow_mapping() -> None:
    assert '{"3 hops": 0.7}' in set_value(TEXT, "pool.gate.shares.3 hops", 0.7)


def test_it_adds_what_is_missing_where_it_belongs() -> None:
    changed = set_value(TEXT, "pool.max_staleness", 2)
    assert yaml.safe_load(changed)["pool"]["max_staleness"] == 2
    assert "# groups\n  max_staleness: 2\n" in changed


def test_it_adds_nested_parts() -> None:
    assert yaml.safe_load(set_value(TEXT, "model.width", 64))["model"] == {"width": 64}


def test_it_appends_to_a_list() -> None:
    changed = set_value(TEXT, "stages.2", {"kind": "sft"})
    assert [stage["kind"] for stage in yaml.safe_load(changed)["stages"]] == [
        "synthesise",
        "rl",
        "sft",
    ]


def test_it_replaces_a_text_of_many_lines() -> None:
    text = "name: a\ndescription: |\n  one\n  two\n\nseed: 1\n"
    assert yaml.safe_load(set_value(text, "description", "short")) == {
        "name": "a",
        "description": "short",
        "seed": 1,
    }


def test_it_removes_a_list_item_and_keeps_the_others() -> None:
    changed = remove_value(TEXT, "stages.0")
    assert yaml.safe_load(changed)["stages"] == yaml.safe_load(TEXT)["stages"][1:]


def test_it_removes_the_first_key_of_a_list_item() -> None:
    changed = yaml.safe_load(remove_value(TEXT, "stages.1.kind"))
    assert changed["stages"][1] == {"hops": [3, 4], "steps": 70}


def test_a_path_beyond_a_list_or_through_a_value_is_refused() -> None:
    for path in ("stages.7", "stages.1.hops.5", "name.first"):
        with pytest.raises(KeyError):
            set_value(TEXT, path, 1)


def test_it_names_the_lines_of_fields() -> None:
    lines = lines_of(TEXT)
    assert lines["name"] == 2
    assert lines["pool.gate.shares"] == 4
    assert lines["stages.1.steps"] == 13
    assert line_near(lines, "stages.1.optimizer.lr") == 11
    assert line_near(lines, "model.width") is None
    assert lines_of("a: [") == {}


@given(data, st.data())
def test_setting_a_value_is_the_same_as_changing_the_data(given_data, draw) -> None:
    dumped = draw.draw(st.sampled_from([True, False, None]))
    text = yaml.safe_dump(given_data, default_flow_style=dumped, sort_keys=False, width=1000)
    candidates = [path for path in paths_of(given_data) if all("." not in str(p) for p in path)]
    path = draw.draw(st.sampled_from(candidates))
    value = draw.draw(scalars | st.lists(scalars, max_size=3))
    expected = copy.deepcopy(given_data)
    put(expected, path, value)
    changed = set_value(text, ".".join(map(str, path)), value)
    assert yaml.safe_load(changed) == expected


@given(data, st.data())
def test_removing_is_the_same_as_removing_from_the_data(given_data, draw) -> None:
    dumped = draw.draw(st.sampled_from([True, False, None]))
    text = yaml.safe_dump(given_data, default_flow_style=dumped, sort_keys=False, width=1000)
    path = draw.draw(st.sampled_from(list(paths_of(given_data))))
    expected = copy.deepcopy(given_data)
    drop(expected, path)
    assert yaml.safe_load(remove_value(text, ".".join(map(str, path)))) == expected


@pytest.mark.parametrize("text", [item.text for item in recipes()])
def test_it_reads_recipes_as_yaml_does(text: str) -> None:
    assert data_of(text) == yaml.safe_load(text)


@pytest.mark.parametrize("text", [item.text for item in recipes()])
def test_a_change_of_a_recipe_changes_one_value(text: str) -> None:
    before = yaml.safe_load(text)
    for path in paths_of(before):
        if isinstance(path[-1], int):
            continue
        expected = copy.deepcopy(before)
        put(expected, path, 7)
        assert yaml.safe_load(set_value(text, ".".join(map(str, path)), 7)) == expected


def test_aliases_are_no_text_of_a_spec():
    """A few lines of them stand for more than fits into memory."""
    levels = "".join(f"k{n + 1}: &k{n + 1} [*k{n}, *k{n}]\n" for n in range(40))
    bomb = f"k0: &k0 [x, x]\n{levels}"
    assert data_of(bomb) is None and lines_of(bomb) == {}
    with pytest.raises(RefusedError, match="no aliases"):
        with_overrides(bomb, {"name": "x"})
    assert data_of("name: '*a &a *a'\n") == {"name": "*a &a *a"}
