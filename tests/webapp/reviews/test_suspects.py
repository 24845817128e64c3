"""Labels that contradict the reward: which, of which version of the scheme, and who sees them."""

import pytest

from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import Api
from webapp.reviews import queries, services, suspects
from webapp.reviews.models import Trajectory
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric


@pytest.fixture
def judged(run, store, owner):
    """(name, solved, reward, group, label)"""
    said = [
        ("fine", True, 1.0, "a", "accepted"),
        ("paid", True, 1.0, "a", "rejected"),
        ("unpaid", False, 0.0, "a", "accepted"),
        ("poor", False, 0.0, "a", "rejected"),
        ("low", True, 0.4, "b", "accepted"),
        ("high", True, 1.2, "b", "accepted"),
        ("invalid", True, None, "c", "accepted"),
        ("open", True, 1.0, "c", None),
    ]
    store(
        [
            trajectory(name=name, success=success, reward=reward, group=group)
            for name, success, reward, group, _ in said
        ]
    )
    queue = services.create_queue(run, owner, name="Q", rubric=Rubric(), wanted=Filter(), size=20)
    labels = {name: label for name, *_rest, label in said}
    for item in queue.items.select_related("queue"):
        if label := labels[item.trajectory_id]:
            services.judge(item, owner, choice=label, note="because")
    return queue


@pytest.fixture
def scheme(run):
    return run.reward_scheme.scheme


def test_it_lists_what_people_and_the_scheme_see_otherwise(judged, scheme):
    found = {one.trajectory_id: one.contradiction for one in suspects.suspects_of(scheme)}
    assert found == {"paid": "paid", "unpaid": "unpaid", "low": "underpaid"}


def test_it_counts_by_version_of_the_scheme(judged, scheme):
    (counted,) = suspects.counts_of(scheme)
    assert (counted.number, counted.judged, counted.suspects) == (1, 7, 3)
    assert (counted.unpaid, counted.underpaid, counted.paid) == (1, 1, 1)
    assert suspects.page_of(scheme, version=2).items == []


def test_a_dispute_is_no_suspect(run, store, scheme, owner, editor):
    store([trajectory(success=True)])
    queue = services.create_queue(
        run, owner, name="Q", rubric=Rubric(), wanted=Filter(), size=1, reviews_per_item=2
    )
    item = queue.items.get()
    services.judge(item, owner, choice="rejected")
    services.judge(item, editor, choice="accepted")
    assert list(suspects.suspects_of(scheme)) == []
    services.judge(item, editor, choice="rejected")
    assert [one.contradiction for one in suspects.suspects_of(scheme)] == ["paid"]


def test_the_mean_of_a_group_is_of_all_its_stored_trajectories(judged, scheme):
    means = {one.trajectory_id: one.group_mean for one in suspects.suspects_of(scheme)}
    assert means == {"paid": 0.5, "unpaid": 0.5, "low": pytest.approx(0.8)}


def test_the_api_and_the_page_lead_to_the_replay(judged, scheme, owner, as_user, outsider):
    api = Api(owner)
    found = api("GET", f"reward-schemes/{scheme.pk}/suspects?limit=2").json()
    assert found["versions"][0]["suspects"] == 3 and len(found["items"]) == 2
    rest = api(
        "GET", f"reward-schemes/{scheme.pk}/suspects?limit=2&cursor={found['next_cursor']}"
    ).json()
    rows = [*found["items"], *rest["items"]]
    assert {row["trajectory"] for row in rows} == {"paid", "unpaid", "low"}
    page = as_user(owner).get(f"/rewards/{scheme.pk}/suspects").content.decode()
    assert 'href="/trajectories/unpaid/"' in page and "because" in page
    part = as_user(owner).get(f"/rewards/{scheme.pk}/suspects", headers={"HX-Request": "true"})
    assert b"<html" not in part.content and b"/trajectories/paid/" in part.content
    assert as_user(outsider).get(f"/rewards/{scheme.pk}/suspects").status_code == 404


def test_without_groups_no_reward_is_below_that_of_its_group(judged, scheme):
    Trajectory.objects.update(group_id="")
    found = {one.trajectory_id: one.contradiction for one in suspects.suspects_of(scheme)}
    assert found == {"paid": "paid", "unpaid": "unpaid"}
    assert [row.pk for row in queries.group_of(Trajectory.objects.get(pk="low"))] == ["low"]
