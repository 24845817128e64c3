"""Signature experiments: runs kept and made once, verdicts, the page and the drawing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import signature
from bench.figures import Options
from bench.signature import _page, mean_interval, paired
from bench.signature._experiment import Experiment, Outcome
from tests.bench.signature.made_up import experiment, run_one


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(folder=tmp_path, say=lambda line: None)


def counting(made: Experiment) -> tuple[Experiment, list[tuple[str, int]]]:
    ran: list[tuple[str, int]] = []

    def counted(settings: object, arm: str, seed: int) -> Outcome:
        ran.append((arm, seed))
        return run_one(settings, arm, seed)  # type: ignore[arg-type]

    return replace(made, run_one=counted), ran


def test_it_makes_every_arm_with_every_seed_once(options: Options) -> None:
    made, ran = counting(experiment())
    made.run(options)
    made.run(options)
    assert sorted(ran) == sorted((arm, seed) for arm in "ab" for seed in range(5))


def test_it_goes_on_where_it_was_interrupted(options: Options) -> None:
    def breaks(settings: object, arm: str, seed: int) -> Outcome:
        if (arm, seed) == ("b", 1):
            raise KeyboardInterrupt
        return run_one(settings, arm, seed)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        replace(experiment(), run_one=breaks).run(options)
    made, ran = counting(experiment())
    made.run(options)
    assert len(ran) == 7 and ("a", 1) not in ran and ("b", 1) in ran


def test_a_run_cut_off_while_it_was_written_does_not_count(options: Options) -> None:
    made = experiment()
    folder = made.folder(options.folder) / "a"
    folder.mkdir(parents=True)
    (folder / "0.77.partial").write_text('{"outcome": {"sco')
    made.run(options)
    assert len(made.stored(options.folder).seeds) == 5


def test_other_settings_are_other_runs(options: Options) -> None:
    experiment().run(options)
    assert experiment(gap=2.0).stored(options.folder).seeds == []
    assert experiment().stored(options.folder).seeds == [0, 1, 2, 3, 4]


def test_it_judges_no_claim_on_fewer_than_five_seeds_of_every_arm(options: Options) -> None:
    made = experiment()
    figures = made.run(replace(options, seeds=4))
    assert [figure.value for figure in figures] == [None]
    assert not figures[0].passed and "4 seeds" in figures[0].setup
    assert "signature.made_up` makes the missing" in figures[0].setup
    made.run(options)
    next((made.folder(options.folder) / "b").glob("3.json")).unlink()
    assert made.stored(options.folder).seeds == [0, 1, 2, 4]


@pytest.mark.parametrize(("gap", "value", "word"), [(1.0, 1.0, "Reproduced"), (-1.0, 0.0, "Not")])
def test_a_verdict_passes_whichever_way_it_falls(
    options: Options, gap: float, value: float, word: str
) -> None:
    figures = experiment(gap=gap).run(options)
    assert figures[0].value == value and figures[0].passed
    assert figures[0].setup.startswith(word)
    assert figures[1].value == pytest.approx(gap + 0.02)


def test_verdicts_must_be_those_of_the_claims(options: Options) -> None:
    made = replace(experiment(), judge=lambda results: {})
    with pytest.raises(ValueError, match="expected its claims' keys"):
        made.run(options)


def test_workers_share_the_runs_out(options: Options) -> None:
    said: list[str] = []
    made = experiment()
    made.run(replace(options, workers=2, seeds=1, say=said.append))
    assert made.stored(options.folder).seeds == [0]
    assert said[-1].endswith("2 of 2 runs")


def test_the_page_says_what_the_bench_prints(options: Options, tmp_path: Path) -> None:
    made = experiment()
    figures = made.run(options)
    results = made.stored(options.folder)
    page = (
        "# Claims\n\n<!-- signature.made_up -->\nold\n<!-- end of signature.made_up -->\nreading\n"
    )
    (tmp_path / "claims.md").write_text(page)
    _page.publish(made, results, tmp_path)
    written = (tmp_path / "claims.md").read_text()
    assert "**Reproduced.** b - a is 1.02." in written and "b - a is 1.02." in figures[0].setup
    assert "old" not in written and written.endswith("reading\n")
    assert "| b - a | 1.02 [1, 1.04] |" in written
    _page.publish(made, results, tmp_path)
    assert (tmp_path / "claims.md").read_text() == written


def test_a_page_without_the_experiments_marks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lacks the lines '<!-- signature.x -->'"):
        _page.replaced("# Claims\n", "x", "text")


def test_it_draws_the_same_svg_from_the_same_runs(options: Options, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made = experiment()
    made.run(options)
    first, second = tmp_path / "1.svg", tmp_path / "2.svg"
    for path in (first, second):
        assert _page.draw(made, made.stored(options.folder), path)
    assert first.read_bytes() == second.read_bytes() and first.stat().st_size < 60_000


def test_intervals_are_students() -> None:
    """scipy.stats.t.interval(0.95, 4, 3, scipy.stats.sem([1, 2, 3, 4, 5]))"""
    found = mean_interval([1, 2, 3, 4, 5])
    assert (found.lower, found.upper) == pytest.approx((1.0367568, 4.9632432), abs=2e-3)
    assert paired([2, 3, 4], [1, 2, 3]) == mean_interval([1, 1, 1])
    with pytest.raises(ValueError, match="at least two"):
        mean_interval([1.0])


def test_every_experiment_has_its_place_in_the_page() -> None:
    page = (signature.DOCS / "claims.md").read_text()
    for found in signature.experiments():
        _page.replaced(page, found.name, "text")
        json.dumps(found.arms)
