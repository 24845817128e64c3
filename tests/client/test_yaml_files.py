"""What people write in YAML files: read as it stands, or refused with a sentence."""

from pathlib import Path

import pytest

from caravan.errors import RefusedError
from caravan.yaml_files import read_mapping

BOMB = "a: &a [x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)


def read(path: Path, text: str | bytes) -> object:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_mapping(path, "name a file", "`name` and `terms`")


def test_a_mapping_is_read_as_it_stands(tmp_path: Path) -> None:
    found = read(
        tmp_path / "one.yaml", 'name: x\nterms: [{weight: 1.5}]\ntasks: {1: 20, "2": 30}\n'
    )
    assert found == {"name": "x", "terms": [{"weight": 1.5}], "tasks": {1: 20, "2": 30}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "aliases"),
        ("a: &a [*a]", "aliases"),
        ("a: " + "[" * 20_000, "nested too deeply"),
        ("name: x\nname: y", "'name' is given twice"),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("2026-01-01: x", "a key is a word"),
        ("? [a]\n: b", "unhashable"),
        ("a: b\n---\na: c", "single document"),
        ("- a", "must be a mapping with `name` and `terms`"),
        ("", "must be a mapping"),
        ("a: 2026-99-99", "month must be"),
        (b"\xff\xfe", "no text in UTF-8"),
    ],
    ids=range(12),
)
def test_anything_else_is_refused_with_its_file(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    with pytest.raises(RefusedError, match="wrong.yaml") as refused:
        read(tmp_path / "wrong.yaml", text)
    assert said in str(refused.value) and "\n" not in str(refused.value)
