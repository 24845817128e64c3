"""Leases, undo, rulings and marks: two people never do the same work, and nobody's is lost."""

from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import person
from webapp.accounts.models import Role
from webapp.experiments.models import Run
from webapp.experiments.services.deletion import delete_run
from webapp.problems import RefusedError
from webapp.reviews import queue_queries, services
from webapp.reviews.models import Claim
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric


@pytest.fixture
def make(run, store, owner):
    store([trajectory(name=f"t{i}", success=i % 2 == 0) for i in range(4)])

    def made(**changes):
        wanted = {"name": "Queue", "rubric": Rubric(), "wanted": Filter(), "size": 10} | changes
        return services.create_queue(run, owner, **wanted)

    return made


@pytest.fixture
def third(project):
    return person("third", project, Role.EDITOR)


def expire(item):
    Claim.objects.filter(item=item).update(expires_at=timezone.now() - timedelta(seconds=1))


def test_two_people_get_different_items(make, owner, editor):
    queue = make()
    held = services.claim_next(queue, owner)
    other = services.claim_next(queue, editor)
    assert held.pk != other.pk
    with pytest.raises(RefusedError, match="Owner began to review") as refused:
        services.claim(held, editor)
    assert refused.value.status == 409


def test_the_last_item_is_not_given_to_two(make, owner, editor):
    queue = make(size=1)
    assert services.claim_next(queue, owner) is not None
    assert services.claim_next(queue, editor) is None


def test_the_last_of_ones_own_share_can_be_skipped(make, owner, editor):
    queue = make(assignees=[owner.pk, editor.pk])  # who begin at different places
    mine = services.claim_next(queue, owner)
    for item in queue.items.exclude(pk=mine.pk).order_by("position"):
        if item.position % 2 == mine.position % 2:
            services.judge(item, owner, choice="accepted")
    skipped_to = services.claim_next(queue, owner, after=mine.position)
    assert skipped_to.position % 2 != mine.position % 2
    for item in queue.items.exclude(pk=mine.pk).filter(verdicts=None):
        services.judge(item, owner, choice="accepted")
    assert services.claim_next(queue, owner, after=mine.position) == mine


def test_a_lease_that_ended_gives_the_item_to_the_next(make, owner, editor):
    queue = make(size=1)
    item = services.claim_next(queue, owner)
    expire(item)
    assert services.claim_next(queue, editor) == item
    with pytest.raises(RefusedError, match="Editor began"):
        services.judge(item, owner, choice="accepted")


def test_a_verdict_still_counts_after_the_lease_where_nobody_took_the_item(make, owner):
    item = services.claim_next(make(size=1), owner)
    expire(item)
    assert services.judge(item, owner, choice="accepted").choice == "accepted"


def test_going_on_lets_the_item_before_go(make, owner, editor):
    queue = make(size=2)
    first = services.claim_next(queue, owner)
    services.claim_next(queue, owner, after=first.position)
    assert services.claim_next(queue, editor) == first


def test_going_on_keeps_what_is_held_in_another_queue(make, owner):
    elsewhere = services.claim_next(make(name="Another"), owner)
    queue = make()
    services.claim_next(queue, owner)
    services.claim_next(queue, owner)
    assert Claim.objects.filter(item=elsewhere, user=owner).exists()
    assert Claim.objects.filter(item__queue=queue, user=owner).count() == 1


def test_pairs_have_no_steps_to_mark(make, owner):
    item = services.claim_next(make(style="pairwise"), owner)
    with pytest.raises(RefusedError, match="not of two"):
        services.mark_step(item, owner, 0, "good")


def test_double_review_is_held_by_two_at_once_and_no_third(make, owner, editor, third):
    queue = make(size=1, reviews_per_item=2)
    item = queue.items.get()
    services.claim(item, owner)
    services.claim(item, editor)
    with pytest.raises(RefusedError):
        services.claim(item, third)
    services.judge(item, owner, choice="accepted")
    with pytest.raises(RefusedError):  # one verdict and one lease
        services.claim(item, third)


def test_renewing_makes_a_lease_longer_and_keeps_its_beginning(make, owner):
    item = make(size=1).items.get()
    first = services.claim(item, owner)
    again = services.claim(item, owner)
    assert again.claimed_at == first.claimed_at and again.expires_at > first.expires_at


def test_undo_returns_the_verdict_and_holds_the_item_again(make, owner, editor):
    queue = make(size=1)
    item = queue.items.get()
    services.judge(item, owner, choice="rejected", note="typed with care")
    assert services.last_judged(queue, owner) == item
    taken = services.withdraw(item, owner)
    assert (taken.choice, taken.note) == ("rejected", "typed with care")
    item.refresh_from_db()
    assert item.outcome == "open"
    with pytest.raises(RefusedError):
        services.claim(item, editor)
    with pytest.raises(RefusedError, match="no verdict"):
        services.withdraw(item, owner)


@pytest.fixture
def disputed(make, owner, editor):
    item = make(size=1, reviews_per_item=2).items.get()
    services.judge(item, owner, choice="accepted")
    services.judge(item, editor, choice="rejected")
    item.refresh_from_db()
    assert item.outcome == "disputed"
    return item


def test_a_third_person_settles_a_dispute(disputed, owner, third):
    ruling = services.judge(disputed, third, choice="rejected", note="the tool was wrong")
    disputed.refresh_from_db()
    assert ruling.adjudicates and disputed.outcome == "rejected"
    with pytest.raises(RefusedError, match="Third has ruled"):
        services.judge(disputed, owner, choice="rejected")
    with pytest.raises(RefusedError, match="settled"):
        services.withdraw(disputed, owner)
    services.withdraw(disputed, third)
    disputed.refresh_from_db()
    assert disputed.outcome == "disputed"


def test_a_ruling_does_not_count_for_agreement(disputed, third):
    services.judge(disputed, third, choice="rejected")
    found = queue_queries.agreement_of(disputed.queue)
    assert (found.items, found.share, len(found.reviewers)) == (1, 0.0, 1)


def test_reviewers_settle_their_dispute_themselves(disputed, editor):
    services.judge(disputed, editor, choice="accepted")
    disputed.refresh_from_db()
    assert disputed.outcome == "accepted"


def test_a_ruling_can_come_from_somebody_to_whom_the_queue_is_not_assigned(
    make, owner, editor, third
):
    queue = make(name="Theirs", size=1, reviews_per_item=2, assignees=[owner.pk, editor.pk])
    item = queue.items.get()
    with pytest.raises(PermissionDenied):
        services.judge(item, third, choice="accepted")
    services.judge(item, owner, choice="accepted")
    services.judge(item, editor, choice="rejected")
    assert services.judge(item, third, choice="accepted").adjudicates


def test_a_queue_of_pairs_takes_a_preference_and_nothing_else(make, owner):
    item = make(style="pairwise", sample="disagreement").items.first()
    with pytest.raises(RefusedError, match="first, second, same"):
        services.judge(item, owner, choice="accepted")
    services.judge(item, owner, choice="second")
    item.refresh_from_db()
    assert item.outcome == "second" and item.other is not None


def test_pairs_have_no_scales(make):
    rubric = Rubric.model_validate({"scales": [{"name": "Effort"}]})
    with pytest.raises(RefusedError) as refused:
        make(style="pairwise", sample="disagreement", rubric=rubric)
    assert refused.value.errors[0].path == "rubric.scales"


def test_steps_are_marked_changed_and_unmarked(make, owner):
    item = make(size=1).items.get()
    services.mark_step(item, owner, 1, "bad", "looks it up twice")
    services.mark_step(item, owner, 1, "good")
    assert [(m.step, m.mark) for m in item.marks.all()] == [(1, "good")]
    services.mark_step(item, owner, 1, None)
    assert not item.marks.exists()


@pytest.mark.parametrize(("step", "mark", "path"), [(3, "good", "step"), (0, "fine", "mark")])
def test_it_refuses_marks_that_cannot_be(make, owner, step, mark, path):
    item = make(size=1).items.get()
    with pytest.raises(RefusedError) as refused:
        services.mark_step(item, owner, step, mark)
    assert refused.value.errors[0].path == path


def test_a_closed_queue_takes_neither_marks_nor_undo(make, owner):
    queue = make(size=1)
    item = queue.items.get()
    services.judge(item, owner, choice="accepted")
    services.close_queue(queue, owner, True)
    item.refresh_from_db()
    with pytest.raises(RefusedError, match="closed"):
        services.mark_step(item, owner, 0, "good")
    with pytest.raises(RefusedError, match="closed"):
        services.withdraw(item, owner)


def test_a_run_whose_steps_were_marked_is_not_deleted(make, run, owner):
    services.mark_step(make(name="Marked", size=1).items.get(), owner, 0, "good")
    now = timezone.now()
    Run.objects.filter(pk=run.pk).update(state="stopped", ended_at=now, archived_at=now)
    with pytest.raises(RefusedError, match="review queue 'Marked'"):
        delete_run(run.pk, owner)
