"""Comments: where they are anchored, and who may write, change, resolve and delete them."""

import pytest
from django.core.exceptions import PermissionDenied

from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import Api
from webapp.accounts.models import AuditEntry, Role
from webapp.problems import RefusedError
from webapp.reviews import services


@pytest.fixture
def row(store):
    return store([trajectory()])[0]


def test_it_anchors_to_a_trajectory_a_step_or_a_span(row, owner):
    whole = services.add_comment(row, owner, "all of it")
    step = services.add_comment(row, owner, "this one", step=2)
    span = services.add_comment(row, owner, "法国?", step=0, field="result", span=(7, 9))
    assert (whole.step, step.step) == (None, 2)
    assert (span.field, span.start, span.stop) == ("result", 7, 9)


@pytest.mark.parametrize(
    ("anchor", "path"),
    [
        ({"step": 3}, "step"),
        ({"step": 0, "field": "result"}, "field"),
        ({"step": 0, "span": (0, 1)}, "field"),
        ({"field": "text", "span": (0, 1)}, "field"),
        ({"step": 0, "field": "answer", "span": (0, 1)}, "field"),
        ({"step": 0, "field": "result", "span": (8, 10)}, "span"),
        ({"step": 0, "field": "result", "span": (3, 3)}, "span"),
        ({"step": 0, "field": "result", "span": (-1, 3)}, "span"),
    ],
)
def test_it_refuses_an_anchor_that_is_not_there(row, owner, anchor, path):
    with pytest.raises(RefusedError) as refused:
        services.add_comment(row, owner, "text", **anchor)
    assert [problem.path for problem in refused.value.errors] == [path]


@pytest.mark.parametrize("text", ["", "  \n", "x" * 10_001])
def test_it_refuses_an_empty_and_an_endless_comment(row, owner, text):
    with pytest.raises(RefusedError):
        services.add_comment(row, owner, text)


def test_it_stores_what_the_database_cannot_hold_as_replacement_characters(row, owner):
    assert services.add_comment(row, owner, "a\0b\ud800c").text == "a\ufffdb?c"


def test_only_its_author_changes_a_comment(row, owner, editor):
    comment = services.add_comment(row, editor, "first")
    with pytest.raises(PermissionDenied):
        services.edit_comment(comment, owner, "second")
    assert services.edit_comment(comment, editor, "second").edited_at is not None


def test_any_editor_resolves_and_reopens(row, owner, editor):
    comment = services.add_comment(row, editor, "look")
    assert services.resolve_comment(comment, owner, True).resolved_at is not None
    assert services.resolve_comment(comment, editor, False).resolved_at is None
    entries = AuditEntry.objects.filter(target=comment.pk).order_by("pk")
    assert [entry.action for entry in entries] == ["comment.resolve", "comment.reopen"]


def test_its_author_and_admins_delete_it(row, owner, editor):
    first = services.add_comment(row, editor, "one")
    second = services.add_comment(row, owner, "two")
    services.delete_comment(first, owner, Role.ADMIN)
    with pytest.raises(PermissionDenied):
        services.delete_comment(second, editor, Role.EDITOR)
    assert list(row.comments.all()) == [second]


def test_who_changes_a_comment_that_somebody_changed_is_told(row, owner):
    api, made = Api(owner), services.add_comment(row, owner, "first")
    listed = api("GET", f"trajectories/{row.pk}/comments").json()["comments"][0]
    seen = {"If-Match": listed["etag"]}
    changed = api("PATCH", f"comments/{made.pk}", {"text": "second"}, **seen)
    assert (changed.status_code, changed["ETag"]) == (200, changed.json()["etag"])
    assert api("PATCH", f"comments/{made.pk}", {"resolved": True}, **seen).status_code == 412
    now = {"If-Match": changed["ETag"]}
    assert api("PATCH", f"comments/{made.pk}", {"resolved": True}, **now).status_code == 200
    made.refresh_from_db()
    assert (made.text, made.resolved_at is not None) == ("second", True)
