"""Versions of datasets: fetched once, every row taken or refused with its reason, kept to learn."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import zstandard

from engine.spec import DpoStage, EnvironmentSpec, ExperimentSpec, SftStage, SynthesiseStage
from engine.synthesis import Tokenizer
from engine.telemetry.connection import Connection
from workers.cluster import limits, practised, stored_rows
from workers.cluster.crew import RevokedAttemptError
from workers.cluster.fetching import StoredRowsError, fetch
from workers.cluster.storage import RunStorage

VERSION = "ver_0123456789abcdef"
PROMPT, CALL, ANSWER = "What is it?", '{"tool":"lookup"}', '{"answer":"x"}'


def packed(*rows: dict) -> bytes:
    return zstandard.compress(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


@dataclass
class Attempt:
    """What fetching needs of one."""

    storage: RunStorage
    address: SimpleNamespace
    control: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(
            wants_end=False,
            changed=SimpleNamespace(wait=lambda timeout: None, clear=lambda: None),
        )
    )


@pytest.fixture
def storage(tmp_path) -> RunStorage:
    storage = RunStorage(str(tmp_path))
    tokenizer = Tokenizer.train([PROMPT, CALL, ANSWER], 320)
    tokenizer.save(storage.path("synthesis/tokenizer"))
    return storage


@pytest.fixture
def attempt(storage, ingest) -> Attempt:
    return Attempt(storage, SimpleNamespace(connection=lambda: Connection(ingest.url, "token")))


def test_a_version_is_fetched_whole_and_once(attempt, ingest):
    ingest.datasets[VERSION] = packed({"prompt": PROMPT})
    assert fetch(attempt, VERSION)
    kept = attempt.storage.fetch(stored_rows.file_of(VERSION))
    assert kept.read_bytes() == ingest.datasets[VERSION]
    assert [path.name for path in kept.parent.iterdir()] == [kept.name], "nothing half written"
    ingest.calls.clear()
    assert fetch(attempt, VERSION)
    assert ingest.calls == [], "a resumed attempt has it"


def test_ingest_that_is_away_is_asked_again_until_the_limit(attempt, ingest, monkeypatch):
    ingest.datasets[VERSION] = packed({"prompt": PROMPT})
    answers = [(503, {}), (503, {})]
    ingest.behave = lambda path, body: answers.pop() if answers else None
    assert fetch(attempt, VERSION)
    monkeypatch.setattr(limits, "REDEEM_S", 0)
    with pytest.raises(StoredRowsError, match="cannot be had.*404 not of this run"):
        fetch(attempt, "ver_0000000000000000")


def test_a_revoked_attempt_leaves_and_one_that_shall_end_does_not_ask(attempt, ingest):
    ingest.behave = lambda path, body: (409, {"detail": "a newer attempt"})
    with pytest.raises(RevokedAttemptError, match="a newer attempt"):
        fetch(attempt, VERSION)
    ingest.calls.clear()
    attempt.control.wants_end = True
    assert not fetch(attempt, VERSION)
    assert ingest.calls == []


def made(storage: RunStorage, stage: SftStage | DpoStage, *rows: dict) -> dict:
    storage.path(stored_rows.file_of(VERSION)).write_bytes(packed(*rows))
    environment = EnvironmentSpec(max_tokens=80, max_turn_tokens=40)
    stages = [SynthesiseStage(), stage]
    spec = ExperimentSpec(name="small", seed=3, environment=environment, stages=stages)
    return practised.make(storage, spec, 1)


def trajectory(answer: str = ANSWER, **fields) -> dict:
    steps = [{"text": CALL, "call": {"result": "none"}}, {"text": answer}]
    return {"id": "a", "prompt": PROMPT, "category": "1 hop", "steps": steps, **fields}


def test_trajectories_are_learned_once_and_refusals_counted_by_reason(storage):
    stage = SftStage(source="dataset", dataset=VERSION)
    wrong = trajectory(steps=[])
    found = made(
        storage, stage,
        trajectory(), wrong, trajectory("x" * 100), trajectory(), trajectory("b"), wrong,
    )  # fmt: skip
    refusals = found.pop("refusals")
    assert found == {
        "kept": 2, "dataset": VERSION, "rows": 6, "rows_used": 2,
        "rows_refused": {"not of this form": 2, "too long": 1, "duplicate": 1},
    }  # fmt: skip
    assert refusals["not of this form"].startswith("Row 2: steps")
    assert "environment.max_tokens" in refusals["too long"]
    learned = practised.accepted(storage, 1, 8, 0)
    tokenizer = Tokenizer.load(storage.path("synthesis/tokenizer"))
    shown = {tokenizer.decode_turn(one.segments[0].ids[-9:-1]) for one in learned.all()}
    assert len(shown) == 2
    assert "2 of 6 rows" in stored_rows.told({**found, "refusals": refusals})
    assert practised.summary(storage, 1)["rows_used"] == 2


def test_pairs_share_their_context_and_are_capped_by_category(storage):
    stage = DpoStage(dataset=VERSION, pairs_per_class=2)

    def pair(chosen: str, rejected: str, category: str = "a") -> dict:
        steps = trajectory()["steps"][:1]
        return {"prompt": PROMPT, "steps": steps, "category": category,
                "chosen": chosen, "rejected": rejected}  # fmt: skip

    found = made(
        storage, stage,
        pair("x", "y"), pair("x", "y"), pair("x", "x"), pair("x", "z"), pair("y", "z"),
        pair("y", "z", "b"), {"prompt": PROMPT, "chosen": ["x"], "rejected": "y"},
    )  # fmt: skip
    assert found["pairs"] == found["rows_used"] == 2
    assert found["rows_refused"] == {
        "duplicate": 2, "no pair": 1, "over the cap": 1, "not of this form": 1,
    }  # fmt: skip
    kept = practised.Pairs(storage, 1, 4, 0).all
    assert [one.fault for one in kept] == ["a", "a"]
    assert all(one.prefix == kept[0].prefix for one in kept)


def test_where_no_row_can_be_learned_nothing_is_kept(storage):
    found = made(storage, SftStage(source="dataset", dataset=VERSION), trajectory(steps=[]))
    assert (found["kept"], found["rows_used"]) == (0, 0)
    with pytest.raises(FileNotFoundError):
        practised.accepted(storage, 1, 8, 0)
