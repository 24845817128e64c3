"""The result of a dry run: a list of what was to start and to be trained, and what of it did."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import Min
from django.utils.translation import gettext as _

from webapp.experiments.models import Attempt, Run, Stage, State
from webapp.monitoring.models import RunEvent, Writer

DONE, WAITING, MISSING = "done", "waiting", "missing"


@dataclass(frozen=True)
class Check:
    """One thing that a dry run tries.

    `state`: done; waiting, while the run goes on; missing, once that is known. `seconds` are those
    that a stage took, of a part those until it was first heard of; None: not known.
    """

    part: str
    label: str
    state: str
    seconds: float | None
    detail: str


def checklist(run: Run) -> list[Check]:
    """What was tried, in order; empty for runs that are no dry runs."""
    attempt = run.attempts.order_by("-number").first() if run.is_dry_run else None
    if attempt is None:
        return []
    stages = {stage.index: stage for stage in attempt.stages.all()}
    otherwise = WAITING if run.ended_at is None else MISSING
    return [
        _driver(attempt, otherwise),
        *_parts(run, attempt, otherwise),
        *(
            _stage(stages.get(index), index, str(stage["kind"]), run, otherwise)
            for index, stage in enumerate(run.spec["stages"])
        ),
    ]


def passed(run: Run, checks: list[Check]) -> bool | None:
    """Whether a run like this can be launched; None while that is not known."""
    if run.ended_at is None:
        return None
    return run.state == State.SUCCEEDED and all(one.state == DONE for one in checks)


def _driver(attempt: Attempt, otherwise: str) -> Check:
    label = _("Ray starts the driver")
    if attempt.started_at is None:
        return Check("driver", label, otherwise, None, attempt.state_reason)
    begun = attempt.submitted_at or attempt.created_at
    return Check("driver", label, DONE, (attempt.started_at - begun).total_seconds(), "")


def _parts(run: Run, attempt: Attempt, otherwise: str) -> Iterator[Check]:
    """Every process, by the name under which it reports."""
    heard = set(Writer.objects.filter(attempt=attempt).values_list("source", flat=True))
    events = RunEvent.objects.filter(attempt=attempt).values("source").annotate(first=Min("at"))
    first = {row["source"]: row["first"] for row in events}
    trains = any("optimizer" in stage for stage in run.spec["stages"])
    judges = any(stage["kind"] == "evaluate" for stage in run.spec["stages"])
    if run.checkpoint_id is not None:  # copied, with tasks and tokenizer, before the first stage
        begun = attempt.stages.exists()
        label = _("The checkpoint and its tasks are there")
        yield Check("origin", label, DONE if begun else otherwise, None, "")
        wanted = []
    else:
        wanted = [("synthesis", _("Synthesis reports"))]
    if trains or judges:
        wanted += [("pool", _("The data pool reports"))] if _samples(run) else []
        for kind, label in (
            ("rollout", _("Rollout worker %(n)s reports")),
            ("trainer", _("Trainer worker %(n)s reports")),
        ):
            count = int(run.spec[kind]["workers"])
            wanted += [(f"{kind}-{at}", label % {"n": at}) for at in range(count)]
    for source, label in wanted:
        after = None
        if source in first and attempt.started_at is not None:
            after = max(first[source] - attempt.started_at.timestamp(), 0.0)
        yield Check(source, label, DONE if source in heard else otherwise, after, "")


def _samples(run: Run) -> bool:
    return any("prompts_per_step" in stage for stage in run.spec["stages"])


def _stage(stage: Stage | None, index: int, kind: str, run: Run, otherwise: str) -> Check:
    trains = "optimizer" in run.spec["stages"][index]
    if trains:
        label = _("Stage %(n)s, %(kind)s: one step is trained") % {"n": index, "kind": kind}
    else:
        label = _("Stage %(n)s, %(kind)s") % {"n": index, "kind": kind}
    part = f"stage-{index}"
    if stage is None:
        return Check(part, label, otherwise, None, "")
    if stage.ended_at is None:
        detail = run.state_reason if run.ended_at is not None else ""
        return Check(part, label, otherwise, None, detail)
    seconds = (stage.ended_at - stage.started_at).total_seconds()
    if trains and not stage.step:
        return Check(part, label, MISSING, seconds, _("It ended without a step."))
    return Check(part, label, DONE, seconds, "")
