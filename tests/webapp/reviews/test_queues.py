"""Review queues: how they are filled, judged, agreed on, and turned into dataset versions."""

import pytest
from django.core.exceptions import PermissionDenied

from tests.webapp.reviews.samples import trajectory
from webapp.experiments.queries import rows_of
from webapp.experiments.services import create_dataset
from webapp.problems import RefusedError
from webapp.reviews import queue_queries, services
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric, Scale, outcome


@pytest.fixture
def make(run, store, owner):
    store([trajectory(name=f"t{i}", success=i % 2 == 0) for i in range(6)])

    def made(**changes):
        wanted = {"name": "Queue", "rubric": Rubric(), "wanted": Filter(), "size": 10} | changes
        return services.create_queue(run, owner, **wanted)

    return made


def order(queue) -> list[str]:
    return list(queue.items.order_by("position").values_list("trajectory", flat=True))


def test_it_takes_the_newest_that_match(make):
    queue = make(wanted=Filter(success=True), size=2)
    assert order(queue) == ["t4", "t2"]
    assert queue.filter == {"success": True}


def test_it_takes_a_random_sample_of_all(make):
    drawn = order(make(sample="random", size=5))
    assert len(set(drawn)) == 5 and set(drawn) <= {f"t{i}" for i in range(6)}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"name": " "}, "name"),
        ({"size": 0}, "size"),
        ({"reviews_per_item": 3}, "reviews_per_item"),
        ({"wanted": Filter(category="9 hops")}, "filter"),
        ({"assignees": [0]}, "assignees"),
    ],
)
def test_it_refuses_a_queue_that_cannot_be(make, changes, path):
    with pytest.raises(RefusedError) as refused:
        make(**changes)
    assert refused.value.errors[0].path == path


def test_it_refuses_two_reviews_by_one_person(make, owner):
    with pytest.raises(RefusedError, match="two people"):
        make(reviews_per_item=2, assignees=[owner.pk])


def test_it_refuses_a_viewer_as_a_reviewer(make, viewer):
    with pytest.raises(RefusedError, match="no editor"):
        make(assignees=[viewer.pk])


def test_it_stores_what_the_database_cannot_hold_as_replacement_characters(make, owner):
    queue = make(name="a\0b", instructions="c\0d")
    assert (queue.name, queue.instructions) == ("a\ufffdb", "c\ufffdd")
    assert services.judge(queue.items.first(), owner, choice="accepted", note="\0").note == "\ufffd"


def test_it_refuses_the_same_name_twice(make):
    make()
    with pytest.raises(RefusedError, match="already"):
        make(name="queue")


def test_reviewers_walk_different_ways_and_cover_everything(make, owner, editor):
    queue = make(assignees=[owner.pk, editor.pk])
    seen = []
    while item := services.next_item(queue, owner) or services.next_item(queue, editor):
        for person in (owner, editor):
            item = services.next_item(queue, person)
            if item:
                services.judge(item, person, choice="accepted")
                seen.append(item.position)
    assert sorted(seen) == list(range(6))
    assert services.next_item(queue, owner) is None


def test_it_goes_on_behind_a_skipped_item_and_comes_back(make, owner):
    queue = make(size=2)
    assert services.next_item(queue, owner).position == 0
    assert services.next_item(queue, owner, after=0).position == 1
    assert services.next_item(queue, owner, after=1).position == 0


def test_only_assignees_judge(make, owner, editor):
    item = make(assignees=[owner.pk]).items.first()
    with pytest.raises(PermissionDenied):
        services.judge(item, editor, choice="accepted")


def test_a_verdict_can_be_changed_until_the_queue_is_closed(make, owner):
    queue = make()
    item = queue.items.first()
    services.judge(item, owner, choice="accepted")
    services.judge(item, owner, choice="rejected")
    assert item.verdicts.get().accepted is False
    services.close_queue(queue, owner, True)
    item.refresh_from_db()
    with pytest.raises(RefusedError, match="closed"):
        services.judge(item, owner, choice="accepted")


def test_the_second_of_two_who_judge_the_same_item_is_told(make, owner, editor):
    item = make().items.first()
    services.judge(item, owner, choice="accepted")
    with pytest.raises(RefusedError, match="meanwhile"):
        services.judge(item, editor, choice="accepted")


def test_it_holds_verdicts_to_the_rubric(make, owner):
    rubric = Rubric(labels=["lucky"], scales=[Scale(name="Effort", low=1, high=3)])
    item = make(rubric=rubric.model_copy(update={"note_on_reject": True})).items.first()
    with pytest.raises(RefusedError) as refused:
        services.judge(
            item, owner, choice="rejected", labels=["unlucky"], scores={"Effort": 4, "Style": 1}
        )
    assert {problem.path for problem in refused.value.errors} == {
        "labels",
        "scores.Effort",
        "scores.Style",
        "note",
    }
    verdict = services.judge(item, owner, choice="accepted", labels=["lucky"], scores={"Effort": 2})
    assert verdict.labels == ["lucky"] and verdict.scores == {"Effort": 2}


def test_double_review_is_blind_until_it_is_complete(make, owner, editor):
    queue = make(reviews_per_item=2)
    item = queue.items.order_by("position").first()
    services.judge(item, owner, choice="accepted")
    assert seen_by(queue, editor) == []
    assert len(seen_by(queue, owner)) == 1
    services.judge(item, editor, choice="rejected")
    assert len(seen_by(queue, editor)) == 2
    progress = queue_queries.progress_of(queue, editor)
    assert progress.counts == {"open": 5, "disputed": 1, "accepted": 0, "rejected": 0}
    assert (progress.done, progress.mine, progress.left) == (0, 1, 5)
    found = queue_queries.agreement_of(queue)
    assert (found.items, found.share) == (1, 0)


def seen_by(queue, user):
    return queue_queries.items_page(queue, user).items[0].verdicts


def test_it_knows_what_waits_for_a_person(make, owner, editor):
    queue = make(assignees=[owner.pk], size=3)
    assert [row.left for row in queue_queries.waiting_for(owner)] == [3]
    assert list(queue_queries.waiting_for(editor)) == []
    for item in queue.items.all():
        services.judge(item, owner, choice="accepted")
    assert list(queue_queries.waiting_for(owner)) == []


def test_accepted_trajectories_become_a_dataset_version_with_their_lineage(
    make, run, owner, editor
):
    queue = make(size=3, rubric=Rubric(labels=["clean"]))
    first, second, _ = queue.items.order_by("position")
    services.judge(first, owner, choice="accepted", labels=["clean"], note="good")
    services.judge(second, owner, choice="rejected")
    dataset = create_dataset(run.project, owner, "Accepted", "trajectories")
    version = services.make_dataset(queue, dataset, owner)
    assert (version.number, version.rows) == (1, 1)
    assert version.source == {
        "kind": "labels",
        "queue": queue.pk,
        "run": run.pk,
        "accepted": 1,
        "rejected": 1,
        "disputed": 0,
        "open": 1,
        "reviewers": {owner.email: 2},
    }
    (row,) = rows_of(version, 0, 5)
    assert row["id"] == first.trajectory_id and row["segments"][0]["ids"]
    (verdict,) = row["review"]["verdicts"]
    assert verdict["reviewer"] == owner.email and verdict["labels"] == ["clean"]


def test_it_makes_no_empty_dataset_version(make, run, owner):
    dataset = create_dataset(run.project, owner, "Accepted", "trajectories")
    with pytest.raises(RefusedError, match="No trajectory"):
        services.make_dataset(make(), dataset, owner)


def test_it_refuses_a_dataset_of_another_kind(make, run, owner):
    dataset = create_dataset(run.project, owner, "Tasks", "tasks")
    with pytest.raises(RefusedError, match="holds tasks"):
        services.make_dataset(make(), dataset, owner)


@pytest.mark.parametrize(
    ("verdicts", "needed", "expected"),
    [
        ([], 1, "open"),
        (["accepted"], 2, "open"),
        (["accepted"], 1, "accepted"),
        (["rejected", "rejected"], 2, "rejected"),
        (["accepted", "rejected"], 2, "disputed"),
        (["first", "same"], 2, "disputed"),
    ],
)
def test_an_item_needs_all_its_verdicts_to_agree(verdicts, needed, expected):
    assert outcome(verdicts, needed) == expected


def test_home_shows_what_waits_for_a_person(make, run, owner, editor, as_user):
    make(assignees=[owner.pk], name="Look here")
    path = f"/projects/{run.project_id}/"
    assert "Look here" in as_user(owner).get(path).content.decode()
    assert "Look here" not in as_user(editor).get(path).content.decode()
