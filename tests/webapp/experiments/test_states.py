"""Runs move as the table says; a dead one never looks alive, an outage of ours ends none."""

from collections.abc import Callable
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.utils import timezone

from tests.webapp.support import Driver, start
from webapp import queue
from webapp.accounts.models import Project, User
from webapp.experiments import services, states
from webapp.experiments.models import Attempt, Run, State
from webapp.problems import RefusedError

ENDED = states.ENDED


@pytest.fixture
def sent(monkeypatch: Any) -> list[tuple[str, tuple[str, ...]]]:
    """Tasks that were enqueued, once their transaction has committed."""
    found: list[tuple[str, tuple[str, ...]]] = []
    monkeypatch.setattr(
        queue.app, "send_task", lambda name, args, **_: found.append((name, tuple(args)))
    )
    return found


@pytest.mark.parametrize(("before", "after"), list(product(State, State)))
def test_only_what_the_table_allows_happens(run: Run, before: State, after: State) -> None:
    attempt = run.attempts.get()
    run.state = attempt.state = before
    if after in states.FOLLOWS.get(before, ()):
        cursor = run.cursor
        states.move(run, attempt, after, "reason")
        run.refresh_from_db()
        attempt.refresh_from_db()
        assert run.state == attempt.state == after
        assert run.cursor == cursor + 1
        assert (run.ended_at is not None) == (after in ENDED)
        assert (attempt.revoked_at is not None) == (after in ENDED)
    else:
        with pytest.raises(RefusedError) as refused:
            states.move(run, attempt, after)
        assert refused.value.status == 409


def test_what_ended_stays_ended() -> None:
    assert not set(states.FOLLOWS) & set(ENDED)


def test_a_launch_is_submitted_after_the_commit(
    launch: Callable[..., Run], sent: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks() as callbacks:
        run = launch()
        assert sent == []
    for callback in callbacks:
        callback()
    assert sent == [("caravan.submit", (run.attempts.get().pk,))]


def test_a_queue_that_cannot_be_reached_loses_nothing(
    launch: Callable[..., Run], monkeypatch: Any, django_capture_on_commit_callbacks: Any
) -> None:
    def unreachable(*args: Any, **kwargs: Any) -> None:
        raise queue.OperationalError("no queue")

    monkeypatch.setattr(queue.app, "send_task", unreachable)
    with django_capture_on_commit_callbacks(execute=True):
        run = launch()
    assert states.due(run.project_id) == [run.attempts.get().pk]


def test_a_project_runs_no_more_than_it_may(launch: Callable[..., Run], owner: User) -> None:
    runs = [launch(name=f"run {number}") for number in range(4)]
    attempts = [run.attempts.get().pk for run in runs]
    assert services.claim(attempts[2]) is None  # two older ones wait
    assert services.claim(attempts[1]) is not None
    assert services.claim(attempts[0]) is not None
    assert services.claim(attempts[2]) is None  # no place is free
    services.fail_attempt(attempts[0], "died")
    assert states.due(runs[0].project_id) == [attempts[2]]
    assert services.claim(attempts[2]) is not None
    assert services.claim(attempts[2]) is None  # claimed before


def test_the_end_of_a_run_starts_the_next(
    launch: Callable[..., Run],
    project: Project,
    sent: list[Any],
    django_capture_on_commit_callbacks: Any,
) -> None:
    Project.objects.update(max_running=1)
    first, second = start(launch()), launch()
    with django_capture_on_commit_callbacks(execute=True):
        services.fail_attempt(first.attempt.pk, "died")
    assert sent == [("caravan.submit", (second.attempts.get().pk,))]


def test_projects_do_not_wait_for_each_other(
    launch: Callable[..., Run], outsider: User, owner: User
) -> None:
    Project.objects.update(max_running=1)
    start(launch())
    elsewhere = Project.objects.get(name="Elsewhere")
    run = services.launch_run(elsewhere, outsider, services.check_spec(launch().spec))
    assert services.claim(run.attempts.get().pk) is not None


def test_a_queued_run_stops_at_once(run: Run, owner: User) -> None:
    services.stop(run.pk, owner)
    run.refresh_from_db()
    assert run.state == State.STOPPED
    assert services.claim(run.attempts.get().pk) is None


def test_stopping_twice_is_stopping_once(driver: Driver, owner: User) -> None:
    services.stop(driver.run.pk, owner)
    cursor = services.stop(driver.run.pk, owner).cursor
    assert Run.objects.get(pk=driver.run.pk).cursor == cursor
    services.fail_attempt(driver.attempt.pk, "ended by Ray")
    assert Run.objects.get(pk=driver.run.pk).state == State.STOPPED
    with pytest.raises(RefusedError):
        services.stop(driver.run.pk, owner)


def test_stop_before_the_driver_came_is_told_to_it(run: Run, owner: User) -> None:
    claim = services.claim(run.attempts.get().pk)
    assert claim is not None
    services.stop(run.pk, owner)
    redeemed = services.redeem(claim.attempt_id, claim.ticket)
    assert redeemed.run.state == State.STOPPING


def test_a_claim_that_ray_did_not_take_is_queued_again(run: Run) -> None:
    claim = services.claim(run.attempts.get().pk)
    assert claim is not None
    assert services.requeue(claim.attempt_id, "Ray is away")
    with pytest.raises(RefusedError):
        services.redeem(claim.attempt_id, claim.ticket)
    run.refresh_from_db()
    assert (run.state, run.state_reason) == (State.QUEUED, "Ray is away")
    assert services.claim(claim.attempt_id) is not None


def test_what_a_driver_has_taken_is_not_queued_again(driver: Driver) -> None:
    assert not services.requeue(driver.attempt.pk, "too late")


def test_resume_makes_a_new_attempt_and_leaves_the_old_one_dead(
    driver: Driver, owner: User
) -> None:
    with pytest.raises(RefusedError):
        services.resume(driver.run.pk, owner)
    services.pause(driver.run.pk, owner, rollouts=True, training=True)
    services.fail_attempt(driver.attempt.pk, "killed")
    run = services.resume(driver.run.pk, owner)
    assert run.state == State.QUEUED
    assert run.ended_at is None
    assert not run.pause_rollouts and not run.pause_training
    assert [(a.number, a.state) for a in run.attempts.order_by("number")] == [
        (1, State.FAILED),
        (2, State.QUEUED),
    ]
    assert Attempt.objects.get(pk=driver.attempt.pk).revoked_at is not None
    with pytest.raises(RefusedError):
        services.fail_attempt(driver.attempt.pk, "late news of the first attempt")


def test_what_succeeded_is_not_resumed(driver: Driver, owner: User) -> None:
    services.finish(states.lock(driver.run.pk), driver.attempt, "succeeded", "", {})
    with pytest.raises(RefusedError):
        services.resume(driver.run.pk, owner)


def test_what_was_put_away_meanwhile_stays_away(driver: Driver, owner: User) -> None:
    services.end_interrupted(driver.run.pk)
    services.archive(driver.run.pk, owner)
    assert services.resume_interrupted() == []
    assert Run.objects.get(pk=driver.run.pk).state == State.INTERRUPTED


def test_going_down_interrupts_and_coming_up_resumes(
    launch: Callable[..., Run], driver: Driver
) -> None:
    queued = launch()
    assert services.interrupt_active() == [driver.run.pk]
    services.end_interrupted(driver.run.pk)
    assert Run.objects.get(pk=driver.run.pk).state == State.INTERRUPTED
    assert Run.objects.get(pk=queued.pk).state == State.QUEUED
    assert services.resume_interrupted() == [driver.run.pk]
    assert services.resume_interrupted() == []
    run = Run.objects.get(pk=driver.run.pk)
    assert (run.state, run.wish, run.attempts.count()) == (State.QUEUED, "run", 2)


def heard(driver: Driver, seconds_ago: float) -> None:
    moment = timezone.now() - timedelta(seconds=seconds_ago)
    Attempt.objects.filter(pk=driver.attempt.pk).update(heartbeat_at=moment)


def ingest_up(since_s: float, pulse_s: float = 0.0) -> None:
    now = timezone.now()
    services.pulse(now - timedelta(seconds=since_s))
    row = services.judging.IngestPulse.objects.get()
    row.pulse_at = now - timedelta(seconds=pulse_s)
    row.save()


def test_a_silent_run_is_unreachable_and_lost_only_with_rays_word(driver: Driver) -> None:
    ingest_up(60)
    heard(driver, 9)
    assert services.silent_attempts() == []
    heard(driver, 12)
    (silent,) = services.silent_attempts()
    assert silent.attempt_id == driver.attempt.pk
    assert 11 < silent.silence_s < 14
    assert services.mark_unreachable(silent)
    assert Run.objects.get(pk=driver.run.pk).state == State.UNREACHABLE
    assert not services.mark_unreachable(silent)
    assert services.mark_lost(silent, "Ray knows no such job")
    run = Run.objects.get(pk=driver.run.pk)
    assert (run.state, run.state_reason) == (State.LOST, "Ray knows no such job")
    assert services.silent_attempts() == []


def test_a_heartbeat_in_between_saves_the_run(driver: Driver) -> None:
    ingest_up(60)
    heard(driver, 12)
    (silent,) = services.silent_attempts()
    heard(driver, 1)
    assert not services.mark_unreachable(silent)
    assert not services.mark_lost(silent, "too late")
    assert Run.objects.get(pk=driver.run.pk).state == State.RUNNING


@pytest.mark.parametrize(
    ("up_for", "last_pulse"),
    [(5, 0), (3600, 30)],
    ids=["ingest came back 5 s ago", "ingest is down"],
)
def test_an_outage_of_ours_counts_against_no_run(
    driver: Driver, up_for: float, last_pulse: float
) -> None:
    heard(driver, 600)
    ingest_up(up_for, last_pulse)
    assert services.silent_attempts() == []


def test_nobody_is_judged_before_ingest_was_ever_up(driver: Driver) -> None:
    heard(driver, 600)
    assert services.silent_attempts() == []


def test_a_break_of_ingest_starts_its_time_anew(db: None) -> None:
    start_at = timezone.now() - timedelta(hours=1)
    for seconds in (0, 2, 4, 6):
        services.pulse(start_at + timedelta(seconds=seconds))
    row = services.judging.IngestPulse.objects.get()
    assert row.up_since == start_at
    services.pulse(start_at + timedelta(seconds=60))
    row.refresh_from_db()
    assert row.up_since == start_at + timedelta(seconds=60)


def test_its_page_says_so_where_other_code_goes_on(driver: Driver, page: Any) -> None:
    Run.objects.update(code_version="a" * 40)
    said = "runs code bbbbbbbbbbbb; the run was launched with aaaaaaaaaaaa"
    for code, is_said in (("", False), ("a" * 40, False), ("b" * 40, True)):
        driver.run.attempts.update(code_version=code)
        for tab in ("", "config"):
            shown = page.get(f"/runs/{driver.run.pk}/{tab}").content.decode()
            assert (said in shown) is is_said, (code, tab)
