"""What is printed of agents and colleagues cannot steer a terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caravan.text import lines_of, one_line, plain, sparkline

HOSTILE = [
    ("\x1b[31mred\x1b[0m", "red"),
    ("\x1b]0;title\x07after", "after"),
    ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x9b2Jgone", "gone"),
    ("\x1bPq#0;2;0;0;0\x1b\\after", "after"),
    ("\x1b(0line", "line"),
    ("\x1bcreset", "reset"),
    ("right\u202eleft\u202c", "rightleft"),
    ("\u2066isolated\u2069", "isolated"),
    ("bell\x07 back\x08 nul\x00", "bell back nul"),
    ("over\rwritten", "overwritten"),
    ("invisible\U000e0041tag", "invisibletag"),
    ("two\u2028lines", "two\nlines"),
    ("ends in \x1b", "ends in "),
    ("tab\tand\nline", "tab\tand\nline"),
    ("\u0645\u06cc\u200c\u062e \u4e2d\u6587", "\u0645\u06cc\u200c\u062e \u4e2d\u6587"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_it_removes_what_steers_a_terminal(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.text())
def test_nothing_of_any_text_steers_a_terminal(text: str) -> None:
    for character in plain(text):
        assert character in "\t\n\u200c\u200d" or unicodedata.category(character) not in (
            "Cc",
            "Cf",
            "Cs",
            "Zl",
            "Zp",
        )


@given(st.text(), st.integers(1, 50))
def test_one_line_is_one_line(text: str, most: int) -> None:
    line = one_line(text, most)
    assert "\n" not in line and len(line) <= most


def test_a_sparkline_spans_its_own_range() -> None:
    assert sparkline([]) == ""
    assert sparkline([2.0, 2.0]) == "▄▄"
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert len(sparkline([float(n) for n in range(100)], width=10)) == 10


@given(st.lists(st.text("a\n\r\u2028\x85\x0b\U0001f600")), st.integers(1, 9))
def test_only_a_line_feed_ends_a_line(texts: list[str], size: int) -> None:
    data = "\n".join(texts).encode()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    wanted = data.split(b"\n")
    assert list(lines_of(iter(pieces))) == (wanted[:-1] if not wanted[-1] else wanted)
