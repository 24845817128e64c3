"""Tables of the command line on terminals of any width."""

import io

import pytest
from rich.console import Console

from caravan.commands import shared

HEADINGS = ("id", "name", "state", "experiment")
ROWS = [("run_0123456789abcdef", "a name of many words that ends in seed-4", "succeeded", "wide")]


def printed(monkeypatch: pytest.MonkeyPatch, width: int) -> str:
    out = io.StringIO()
    monkeypatch.setattr(shared, "console", lambda file: Console(file=out, width=width))
    shared.show(HEADINGS, ROWS, "None.", spare=("experiment",))
    return out.getvalue()


def test_a_narrow_terminal_goes_without_the_columns_that_matter_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "experiment" in printed(monkeypatch, 100)
    assert "experiment" not in printed(monkeypatch, 60)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_nothing_that_stays_is_cut(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    lines = printed(monkeypatch, width).splitlines()
    assert "…" not in "".join(lines) and max(map(len, lines)) <= width
    assert {*ROWS[0][1].split()} <= {*" ".join(lines).split()}
    assert lines[1].split()[0] == ROWS[0][0]


def test_no_rows_are_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    shared.show(HEADINGS, [], "No runs.")
    assert capsys.readouterr().out == "No runs.\n"
