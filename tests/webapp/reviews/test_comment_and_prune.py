"""A comment and a prune in the same instant: whoever is first is seen by the other."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, transaction

from engine.records.shards import write_shard
from tests.webapp.experiments.test_storage import end
from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import start
from webapp import storage
from webapp.accounts.models import User
from webapp.experiments import services as experiments
from webapp.experiments.models import Run, Upload
from webapp.experiments.services.prune import Item, Wish, remove
from webapp.problems import RefusedError
from webapp.reviews import services
from webapp.reviews.models import Comment, Queue, Trajectory
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric

pytestmark = pytest.mark.django_db(transaction=True)
WISH = Wish(archived_trajectories=True, preview=False)


@pytest.fixture
def row(run: Run) -> Trajectory:
    """A trajectory of an archived run, alone in its shard."""
    driver = start(run)
    blob, sha256, rows = write_shard([trajectory(name="alone")])
    experiments.put_upload(run.pk, blob, sha256)
    found = Trajectory.objects.create(
        run=run, attempt=driver.attempt, project=run.project, shard=sha256, cursor=1, **rows[0]
    )
    end(run, archived=True)
    return found


@pytest.fixture
def beside() -> Iterator[Callable[[Callable[[], Any]], "Future[Any]"]]:
    """Begins something in another transaction and returns once that waits for this one."""
    with ThreadPoolExecutor(1) as pool:

        def begin(action: Callable[[], Any]) -> "Future[Any]":
            pid: Future[int] = Future()

            def run() -> Any:
                try:
                    with connection.cursor() as sql:
                        sql.execute("SELECT pg_backend_pid()")
                        pid.set_result(sql.fetchone()[0])
                    return action()
                finally:
                    connection.close()

            done = pool.submit(run)
            with connection.cursor() as sql:
                waits = False
                while not (waits or done.done()):
                    sql.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [pid.result()])
                    (waits,) = sql.fetchone()
            assert waits
            return done

        yield begin


def pruned(row: Trajectory) -> bool:
    return remove(Item("trajectories", row.run_id, row.shard, 1, 1), WISH, row.project_id, None)


def test_a_comment_that_is_being_written_keeps_its_shard(
    row: Trajectory, owner: User, beside: Any
) -> None:
    with transaction.atomic():
        services.add_comment(row, owner, "Look at this.")
        prune = beside(lambda: pruned(row))
    assert prune.result() is False
    assert Upload.objects.filter(sha256=row.shard).exists() and storage.has_blob(row.shard)


def test_a_comment_on_what_is_being_pruned_is_refused(
    row: Trajectory, owner: User, beside: Any
) -> None:
    with transaction.atomic():
        assert pruned(row)
        comment = beside(lambda: services.add_comment(row, owner, "Look at this.", 0))
    with pytest.raises(RefusedError, match="no longer in storage") as refused:
        comment.result()
    assert refused.value.status == 410 and not Comment.objects.exists()


def test_a_queue_that_is_being_made_keeps_the_shards_of_its_run(
    row: Trajectory, owner: User, beside: Any
) -> None:
    with transaction.atomic():
        services.create_queue(
            row.run, owner, name="Queue", rubric=Rubric(), wanted=Filter(), size=1
        )
        prune = beside(lambda: pruned(row))
    assert prune.result() is False and Queue.objects.exists()


def test_an_answer_to_what_was_said_before_is_kept(row: Trajectory, owner: User) -> None:
    first = services.add_comment(row, owner, "Look at this.")
    storage.remove_blob(row.shard)
    with pytest.raises(RefusedError, match="nothing left"):
        services.add_comment(row, owner, "And this.")
    assert services.add_comment(row, owner, "It was long.", reply_to=first).reply_to == first
