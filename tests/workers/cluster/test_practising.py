"""Practice on tasks of a dataset: fetched, played, told of; once, whoever takes the stage up."""

from types import SimpleNamespace
from typing import Any

import pytest

from engine.spec import DpoStage, ExperimentSpec, SftStage, SynthesiseStage
from engine.spec.practice import PracticeSpec
from workers.cluster import practised, practising
from workers.cluster.fetching import StoredRowsError
from workers.cluster.played import Play
from workers.cluster.storage import RunStorage

VERSION = "ver_0123456789abcdef"
OWN = PracticeSpec(dataset=VERSION, tasks=5, attempts=2)


@pytest.fixture
def attempt(tmp_path, monkeypatch) -> Any:
    """`plays`: what the workers were asked to play; `at`: where the attempt said to be."""
    at: list[str] = []
    found = SimpleNamespace(
        spec=ExperimentSpec(
            name="small", stages=[SynthesiseStage(), SftStage(source="accepted", practice=OWN)]
        ),
        storage=RunStorage(str(tmp_path)),
        control=SimpleNamespace(at=lambda name, index, step: at.append(name)),
        plays=list[Play](),
        at=at,
        read={"dataset": VERSION, "rows_used": 9},
    )

    def played(attempt: Any, wish: Play) -> bool:
        found.plays.append(wish)
        return True

    def made(attempt: Any, index: int, what: str) -> dict[str, Any]:
        summary = {"played": 10, "kept": 3}
        attempt.storage.write_json(f"{practised.folder(index)}/summary.json", summary)
        return summary

    def fetched(attempt: Any, index: int, version: str) -> Any:
        assert version == VERSION
        return found.read and (dict(found.read), ["city"])

    monkeypatch.setattr(practising, "_play", played)
    monkeypatch.setattr(practising, "_make", made)
    monkeypatch.setattr(practising, "fetch_to_train_on", fetched)
    return found


def test_its_tasks_are_played_once_and_the_summary_says_what_was_read_of_them(attempt):
    expected = {"played": 10, "kept": 3, "dataset": VERSION, "rows_used": 9}
    assert practising.practise(attempt, 1, OWN) == expected
    (play,) = attempt.plays
    assert (play.tasks, play.hops, play.count, play.attempts) == (VERSION, None, 5, 2)
    assert practising.practise(attempt, 1, OWN) == expected, "as an attempt after it says"
    assert len(attempt.plays) == 1


def test_an_end_asked_for_while_they_are_fetched_plays_nothing(attempt):
    attempt.read = None
    assert practising.practise(attempt, 1, OWN) is None
    assert not attempt.plays


def test_rows_that_are_no_tasks_end_the_run_before_anything_is_played(attempt, monkeypatch):
    def refused(attempt: Any, index: int, version: str) -> Any:
        raise StoredRowsError("Stage 1 needs at least one task: 0 of 3 rows")

    monkeypatch.setattr(practising, "fetch_to_train_on", refused)
    with pytest.raises(StoredRowsError, match="at least one task"):
        practising.practise(attempt, 1, OWN)
    assert not attempt.plays


def test_practice_on_drawn_tasks_fetches_nothing(attempt, monkeypatch):
    monkeypatch.setattr(practising, "fetch_to_train_on", None)
    drawn = DpoStage(practice=PracticeSpec(hops=[2])).practice
    assert practising.practise(attempt, 1, drawn) == {"played": 10, "kept": 3}
    assert [(one.tasks, one.hops) for one in attempt.plays] == [("practice", (2,))]
    assert attempt.at == ["practise"]
