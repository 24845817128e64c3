"""Which trajectories the trainer records: those that are stored, or a share of them."""

import pytest

from engine.pool.group import Group
from engine.spec import OpdStage, RlStage, load_spec
from workers.cluster.trained import record_of

NAMES = [f"{n:032x}" for n in range(400)]


def group(stored: list[str]) -> Group:
    return Group(1, "g", "3 hops", 0, (1.0,), 2, 1.0, b"", stored=frozenset(stored))


def recorded(share: float, groups: list[Group]) -> set[str]:
    record = record_of(RlStage(record_tokens=share), groups)
    return set() if record is None else {name for name in NAMES if record.wanted(name)}


def test_what_is_stored_is_recorded_and_nothing_else() -> None:
    groups = [group(NAMES[:3]), group([]), group(NAMES[7:9])]
    assert recorded(1.0, groups) == {*NAMES[:3], *NAMES[7:9]}


def test_nothing_is_recorded_where_nobody_wants_it_or_nobody_knows_what_is_stored() -> None:
    assert record_of(RlStage(record_tokens=0.0), [group(NAMES)]) is None
    assert record_of(RlStage(), [group([])]) is None


def test_a_share_is_the_same_on_every_rank_and_grows_with_it() -> None:
    groups = [group(NAMES)]
    quarter, half = recorded(0.25, groups), recorded(0.5, groups)
    assert quarter == recorded(0.25, [group(NAMES[::-1])])
    assert quarter < half
    assert len(quarter) == pytest.approx(100, abs=30) and len(half) == pytest.approx(200, abs=30)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [("record_tokens: 1.5", "less than or equal to 1"), ("record_tokens: some", "number")],
)
def test_a_share_that_is_none_is_refused(kind: str, problem: str) -> None:
    text = "name: a\nstages:\n  - {kind: synthesise}\n  - {kind: rl, KIND}\n".replace("KIND", kind)
    _, problems = load_spec(text)
    assert any(problem in one.message for one in problems)
    assert [one.path for one in problems] == ["stages.1.record_tokens"]


def test_stages_without_a_policy_loss_do_not_know_it() -> None:
    text = "name: a\nstages:\n  - {kind: synthesise}\n  - {kind: sft, record_tokens: 1.0}\n"
    _, problems = load_spec(text)
    assert [one.path for one in problems] == ["stages.1.record_tokens"]
    assert "record_tokens" in OpdStage.model_fields
