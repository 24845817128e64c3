"""The pages of review ask as often with many rows as with few."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.webapp.reviews.samples import trajectory
from webapp.reviews import services
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric


def asked(client, path):
    client.get(path)  # what the first look warms
    with CaptureQueriesContext(connection) as queries:
        assert client.get(path).status_code == 200
    return len(queries)


@pytest.fixture
def grown(run, store, owner, editor):
    """Judged queues, comments, marks and a version, and more of each at every call."""
    made = 0

    def grow(count):
        nonlocal made
        store([trajectory(name=f"t{made + i}", success=i % 2 == 0) for i in range(count)])
        for i in range(3):
            queue = services.create_queue(
                run, owner, name=f"Q{made}-{i}", rubric=Rubric(labels=["a"]), wanted=Filter(),
                size=count, reviews_per_item=2, assignees=[owner.pk, editor.pk],
            )  # fmt: skip
        items = queue.items.select_related("queue", "trajectory").order_by("position")
        for item in items[: count - 2]:
            for person in (owner, editor):
                services.judge(item, person, choice="accepted", labels=["a"], note="n")
            services.mark_step(item, owner, 0, "good")
            services.add_comment(item.trajectory, editor, "@owner, look")
        services.claim(queue.items.order_by("position")[count - 1], editor)
        services.make_new_dataset(queue, f"D{made}", "trajectories", owner)
        made += count
        return queue

    return grow


def test_the_number_of_queries_does_not_grow_with_the_rows(grown, run, owner, as_user):
    client, scheme = as_user(owner), run.reward_scheme.scheme_id

    def counts(queue):
        paths = {
            "queues": f"/projects/{run.project_id}/review/",
            "queue": f"/queues/{queue.pk}/",
            "item": f"/queue-items/{queue.items.order_by('position').first().pk}/",
            "new": f"/runs/{run.pk}/review?sample=disagreement",
            "inbox": "/inbox/",
            "suspects": f"/rewards/{scheme}/suspects",
            "api queues": f"/api/v1/queues?project={run.project_id}",
            "api queue": f"/api/v1/queues/{queue.pk}",
            "api items": f"/api/v1/queues/{queue.pk}/items",
            "api versions": f"/api/v1/queues/{queue.pk}/versions",
            "api inbox": "/api/v1/inbox",
            "api suspects": f"/api/v1/reward-schemes/{scheme}/suspects",
        }
        return {name: asked(client, path) for name, path in paths.items()}

    few = counts(grown(4))
    many = counts(grown(30))
    assert many == few
