"""Benchmarks: how a figure is judged, stored and shown."""

import json
import math
import sys
import types
from pathlib import Path

import pytest

from bench.figures import Figure, Options, from_json
from cli import bench
from workers.local.places import Places, UserError


@pytest.mark.parametrize(
    ("value", "bar", "passes"),
    [
        (0.88, "at least 0.88", True),
        (0.879, "at least 0.88", False),
        (500.0, "at most 500", True),
        (500.1, "at most 500", False),
        (math.nan, "at least 0", False),
        (math.inf, "at least 10", False),
        (None, "at most 500", False),
        (None, "", False),
        (0.5, "", True),
    ],
)
def test_it_judges_a_value_by_its_bar(value: float | None, bar: str, passes: bool) -> None:
    assert Figure("b", "m", value, "s", bar).passed is passes


def test_it_refuses_a_bar_it_cannot_read() -> None:
    with pytest.raises(ValueError, match="at least NUMBER"):
        Figure("b", "m", 1.0, "s", "quick")


def test_a_figure_is_judged_anew_from_what_was_stored() -> None:
    written = Figure("b", "m", 3.0, "s", "at least 10", "peer 0.3", 10.0, "2 cores").as_json()
    assert list(written) == [
        "bench", "metric", "value", "unit", "bar", "pass", "peer", "ratio", "setup",
    ]  # fmt: skip
    assert written["pass"] is False
    assert from_json({**written, "pass": True}).passed is False


def test_numbers_that_are_none_travel_as_null() -> None:
    assert Figure("b", "m", math.nan, "s").as_json()["value"] is None


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """A checkout with two benchmarks, `tiny` and `pack.part`, and helpers, at commit c1."""
    (tmp_path / "_helper.py").write_text('"""Not a benchmark."""\n')
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text('"""Of helpers."""\n')
    (tmp_path / "pack" / "part.py").write_text('"""A part."""\nrun = 1\n')
    (tmp_path / "tiny.py").write_text('"""Takes no time."""\ndef run(options): ...\n')
    module = types.ModuleType("bench.tiny")
    module.run = lambda options: [Figure("tiny", "seeds", float(options.seeds), "")]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bench.tiny", module)
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    monkeypatch.setattr(bench, "commit", lambda: "c1")
    return Places(tmp_path / "home", tmp_path / "run")


def test_it_lists_benchmarks_with_their_first_line(places: Places) -> None:
    assert bench.names() == {"pack.part": "A part.", "tiny": "Takes no time."}


def test_it_finds_the_last_result_of_this_commit(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="No result of 'tiny' is stored for commit c1"):
        bench.stored("tiny", places)
    bench.run_bench("tiny", Options(seeds=1), places)
    bench.run_bench("tiny", Options(seeds=2), places)
    monkeypatch.setattr(bench, "commit", lambda: "c2")
    bench.run_bench("tiny", Options(seeds=3), places)
    monkeypatch.setattr(bench, "commit", lambda: "c1")
    assert [figure.value for figure in bench.stored("tiny", places)] == [2.0]


def test_it_refuses_workers_where_there_is_one_thing_to_do(places: Places) -> None:
    with pytest.raises(UserError, match="leave --workers out"):
        bench.run_bench("tiny", Options(seeds=1, workers=2), places)


def test_it_refuses_minutes_where_nothing_is_watched(places: Places) -> None:
    with pytest.raises(UserError, match="leave --minutes out"):
        bench.run_bench("tiny", Options(minutes=3.0), places)


def test_it_gives_a_benchmark_its_folder(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr(
        sys.modules["bench.tiny"], "run", lambda options: given.append(options) or []
    )
    bench.run_bench("tiny", Options(), places)
    assert given[0].folder == places.home / "bench"


def test_it_prints_one_object_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    figures = [Figure("tiny", "a", 1.0, "s"), Figure("tiny", "b", None, "s", "at most 1")]
    bench.show(figures, as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["metric"], line["pass"]) for line in lines] == [("a", True), ("b", False)]
