"""Lists of trajectories: filters, keyset pages, groups."""

import pytest

from engine.records.trajectory import StopReason
from tests.webapp.reviews.samples import lookup, trajectory
from webapp.problems import RefusedError
from webapp.reviews import queries
from webapp.reviews.queries import Filter


@pytest.fixture
def rows(store):
    failed = [("x", lookup("Lyon", "country", "no", "unknown_entity"), None)]
    return store(
        [
            trajectory(name="solved"),
            trajectory(name="wrong", success=False, reward=0.0, group="g1"),
            trajectory(name="invalid", reward=None, success=False, stop=StopReason.INFRA_ERROR),
            trajectory(name="shown", purpose="demonstration", category="3 hops"),
            trajectory(failed, name="failed", reward=0.5, prompt="Which 100% city?"),
        ]
    )


def found(run, **wanted) -> list[str]:
    return [row.id for row in queries.page_of(run, Filter(**wanted)).items]


def test_it_lists_the_newest_first(run, rows):
    assert found(run) == ["failed", "shown", "invalid", "wrong", "solved"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"success": False}, ["invalid", "wrong"]),
        ({"purpose": "demonstration"}, ["shown"]),
        ({"category": "3 hops"}, ["shown"]),
        ({"stop_reason": StopReason.INFRA_ERROR}, ["invalid"]),
        ({"min_reward": 0.5}, ["failed", "shown", "solved"]),
        ({"max_reward": 0.5}, ["failed", "wrong"]),  # an invalid reward is no number
        ({"group": "g1"}, ["wrong"]),
        ({"failed_calls": True}, ["failed"]),
        ({"attempt": 2}, []),
        ({"q": "100% CITY"}, ["failed"]),
        ({"q": "货币", "success": True}, ["shown", "solved"]),
        ({"commented": False, "max_reward": 0.0}, ["wrong"]),
    ],
)
def test_it_filters(run, rows, wanted, expected):
    assert found(run, **wanted) == expected


def test_it_pages_without_losing_or_repeating_a_row(run, store):
    store([trajectory(name=f"t{i:02}") for i in range(25)])
    seen, cursor = [], None
    while True:
        page = queries.page_of(run, Filter(), cursor, limit=4)
        seen += [row.id for row in page.items]
        store([trajectory(name=f"late{len(seen)}")])  # what arrives meanwhile shifts nothing
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [f"t{i:02}" for i in reversed(range(25))]


def test_it_refuses_a_cursor_that_it_did_not_give(run, rows):
    with pytest.raises(RefusedError, match="cursor of the page before"):
        queries.page_of(run, Filter(), "nonsense")


def test_it_counts_comments_without_counting_rows_twice(run, rows, owner):
    for text in ("one", "two"):
        rows[0].comments.create(project=run.project, author=owner, text=text)
    (row,) = queries.page_of(run, Filter(commented=True)).items
    assert row.comment_count == 2


def test_it_keeps_a_group_together_in_a_fixed_order(store):
    rows = store([trajectory(name=f"t{i}", group="a" if i < 3 else "b") for i in range(5)])
    assert [row.id for row in queries.group_of(rows[1])] == ["t0", "t1", "t2"]


@pytest.mark.parametrize("query", ["cursor=nonsense", "min_reward=high", "colour=red", "q=%00"])
def test_the_page_says_what_is_wrong_with_its_address(run, rows, owner, as_user, query):
    answer = as_user(owner).get(f"/runs/{run.pk}/trajectories/?{query}")
    assert answer.status_code == 200
    shown = answer.content.decode()
    assert 'role="alert"' in shown and "Which currency" in shown


def test_an_address_with_a_nul_is_not_found(rows, owner, as_user):
    assert as_user(owner).get("/trajectories/%00/").status_code == 404
