"""What people and `up` ask of runs. A running driver reads it in the answer to its heartbeat."""

from django.db import transaction
from django.utils import timezone

from webapp import live, queue
from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.experiments.models import ACTIVE_STATES, Attempt, Checkpoint, Run, State
from webapp.experiments.states import ENDED, RESUMABLE, lock, move, newest_attempt, reopen, said
from webapp.problems import conflict


@transaction.atomic
def stop(run_id: str, user: User | None, reason: str = "") -> Run:
    """End a queued run at once, ask any other active one to end. Asking twice changes nothing.

    `reason`: why, where it is not a person's wish."""
    run = lock(run_id)
    attempt = newest_attempt(run)
    if run.state in ENDED:
        raise conflict(f"This run {said(run.state)} already.")
    if run.state == State.STOPPING:
        return run
    if run.state == State.QUEUED:
        move(run, attempt, State.STOPPED, reason or f"stopped by {user} before it started")
    else:
        run.wish, run.stop_asked_at = "stop", timezone.now()
        move(run, attempt, State.STOPPING, reason or f"stop asked for by {user}")
        queue.send("caravan.stop", run.pk)
    detail = {"reason": reason} if reason else {}
    record("run.stop", run.pk, user=user, project=run.project, **detail)
    return run


@transaction.atomic
def resume(run_id: str, user: User | None) -> Run:
    """Queue a new attempt from the newest checkpoint; the attempt before can report no more."""
    run = lock(run_id)
    before = newest_attempt(run)
    if run.is_external:
        raise conflict("This run's own trainer resumes it: `caravan.Run(resume=...)`.")
    if run.is_dry_run:
        raise conflict("A dry run keeps no checkpoint to go on from: try its spec again.")
    if run.state not in RESUMABLE:
        hint = "it has nothing left to do" if run.state == State.SUCCEEDED else "it has not ended"
        raise conflict(f"This run {said(run.state)}: {hint}, so it cannot be resumed.")
    attempt = Attempt.objects.create(
        run=run, number=before.number + 1, resume_from=newest_checkpoint(run)
    )
    reopen(run)
    run.pause_rollouts = run.pause_training = False
    run.cursor += 1
    run.save()
    record("run.resume", run.pk, user=user, project=run.project, attempt=attempt.number)
    queue.send("caravan.submit", attempt.pk)
    live.announce(run)
    return run


def newest_checkpoint(run: Run) -> Checkpoint | None:
    return run.checkpoints.filter(removed_at=None).order_by("-created_at", "-step").first()


@transaction.atomic
def pause(
    run_id: str, user: User, *, rollouts: bool | None = None, training: bool | None = None
) -> Run:
    """Set the pause latches that are given; the driver obeys at its next heartbeat."""
    run = lock(run_id)
    if run.state in ENDED:
        raise conflict(f"This run {said(run.state)}: there is nothing to pause.")
    if run.is_external:
        raise conflict("This run's trainer is not Caravan's: it can be stopped, not paused.")
    if rollouts is not None:
        run.pause_rollouts = rollouts
    if training is not None:
        run.pause_training = training
    run.cursor += 1
    run.save(update_fields=["pause_rollouts", "pause_training", "cursor"])
    record(
        "run.pause",
        run.pk,
        user=user,
        project=run.project,
        rollouts=run.pause_rollouts,
        training=run.pause_training,
    )
    live.announce(run)
    return run


@transaction.atomic
def interrupt_active() -> list[str]:
    """Ask every run that has started to save a checkpoint and end as `interrupted`; their ids.

    External runs go on: their trainers outlive Caravan and report again when it is back.
    """
    asked = []
    active = [state for state in ACTIVE_STATES if state not in (State.QUEUED, State.STOPPING)]
    ours = Run.objects.select_for_update(no_key=True).filter(state__in=active, is_external=False)
    for run in ours.order_by("pk"):
        run.wish = "interrupt"
        run.save(update_fields=["wish"])
        asked.append(run.pk)
    return asked


@transaction.atomic
def end_interrupted(run_id: str) -> None:
    """Caravan stops now: what has not ended by itself counts as interrupted."""
    run = lock(run_id)
    attempt = newest_attempt(run)
    if run.state in ENDED:
        return
    if run.state == State.STOPPING:
        move(run, attempt, State.STOPPED, "ended with Caravan before it had stopped by itself")
    elif run.state != State.QUEUED:
        move(run, attempt, State.INTERRUPTED, "Caravan was stopped before the run had ended")


@transaction.atomic
def resume_interrupted() -> list[str]:
    """Queue a new attempt of every run that ended because Caravan was stopped; their ids."""
    waiting = Run.objects.filter(
        state=State.INTERRUPTED, archived_at=None, is_external=False, full_spec__isnull=True
    ).order_by("created_at")
    return [resume(run.pk, None).pk for run in waiting]
