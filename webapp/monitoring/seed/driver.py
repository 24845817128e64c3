"""Plays a run driver: claims the attempt, redeems its ticket, and reports as a driver does."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import transaction

from engine.records.events import encode_number
from engine.records.shards import write_shard
from engine.records.trained import write_trained
from engine.spec import ExperimentSpec
from webapp import ids, live
from webapp.accounts.models import Project, User
from webapp.experiments import services
from webapp.experiments.models import Attempt, Run
from webapp.experiments.services import Launch
from webapp.monitoring.ingest import parsing
from webapp.monitoring.ingest.finish import finish
from webapp.monitoring.ingest.heartbeat import heartbeat
from webapp.monitoring.ingest.storing import store
from webapp.monitoring.seed import curves, episodes, evaluations
from webapp.monitoring.seed.trained import trained

SYNTHESIS_S, SFT_STEP_S, RL_STEP_S = 20.0, 0.25, 2.7
SFT_STEPS, RL_STEPS = 300, 70
ACTORS = ("rollout-0", "rollout-1", "rollout-2", "rollout-3", "trainer-0")
BATCH = 24


@dataclass
class Driver:
    """Reports of one attempt; `at` is the run's own clock, which may lie in the past."""

    run: Run
    token: str
    course: curves.Course
    at: float
    seqs: dict[str, int] = field(default_factory=dict)
    items: list[dict[str, Any]] = field(default_factory=list)
    tokens: int = 0

    def report(self, source: str, **event: Any) -> None:
        self.seqs[source] = self.seqs.get(source, 0) + 1
        self.items.append({"source": source, "seq": self.seqs[source], "at": self.at, **event})

    def metrics(self, source: str, axis: str, step: int, values: dict[str, float]) -> None:
        plain = {name: encode_number(value) for name, value in values.items()}
        self.report(source, kind="metrics", axis=axis, step=step, values=plain)

    def log(self, source: str, text: str, level: str = "info") -> None:
        self.report(source, kind="log", level=level, text=text)

    def send(self) -> None:
        """Raises AssertionError where the ingest refuses what is made here."""
        body = json.dumps({"items": self.items}).encode()
        outcome = store(self.token, parsing.parse(body))
        assert not outcome.rejected, outcome.rejected[:3]
        self.items = []
        live.announce(self.run)


def begin(
    project: Project, user: User, spec: ExperimentSpec, launch: Launch, seed: int, at: float
) -> Driver:
    """Launch a run and take its attempt at once, so that no worker submits it to Ray."""
    with transaction.atomic():
        run = services.launch_run(project, user, spec, launch)
        return take(run, curves.course(seed), at)


def take(run: Run, course: curves.Course, at: float) -> Driver:
    """Claim and redeem the newest attempt of a queued run, as its driver does."""
    claim = services.claim(run.attempts.order_by("-number")[0].pk)
    assert claim is not None, "another run of the project is at work: raise its limit"
    return Driver(run, services.redeem(claim.attempt_id, claim.ticket).token, course, at)


def play(driver: Driver, rl_steps: int = RL_STEPS) -> Iterator[None]:
    """The whole run: synthesis, cold start, reinforcement learning; yields after each step."""
    yield from _synthesise(driver)
    yield from _cold_start(driver)
    yield from _reinforce(driver, rl_steps)


def end(driver: Driver, state: str, reason: str = "") -> None:
    rate = driver.course.completion(RL_STEPS)
    summary = {"completion": round(rate, 4), "tasks": 600} if state == "succeeded" else {}
    finish(driver.token, state, reason, summary)


def backdate(driver: Driver, started: float, ended: float | None) -> None:
    """What the services stamped with the present moment belongs into the past."""
    start = datetime.fromtimestamp(started, UTC)
    stop = datetime.fromtimestamp(ended, UTC) if ended else None
    for rows in (Run.objects.filter(pk=driver.run.pk), Attempt.objects.filter(run=driver.run)):
        rows.update(created_at=start, started_at=start, ended_at=stop)


def _stage(driver: Driver, index: int, name: str, state: str, step: int, steps: int) -> None:
    driver.report(
        "driver", kind="stage", index=index, name=name, state=state, step=step, steps=steps
    )


def _synthesise(driver: Driver) -> Iterator[None]:
    heartbeat(driver.token, "synthesise", 0, 0)
    _stage(driver, 0, "synthesise", "running", 0, 0)
    driver.log("driver", "graph: 3,674 entities, 6,092 facts")
    driver.at += SYNTHESIS_S
    driver.log("driver", "15,000 tasks drawn, 20,000 demonstrations accepted of 20,412")
    _stage(driver, 0, "synthesise", "done", 0, 0)
    yield


def _cold_start(driver: Driver) -> Iterator[None]:
    for step in range(SFT_STEPS):
        driver.at += SFT_STEP_S
        driver.metrics("trainer-0", "trainer_step", step, curves.sft_metrics(driver.course, step))
        if step % 50 == 0:
            _stage(driver, 1, "sft", "running", step, SFT_STEPS)
            heartbeat(driver.token, "sft", 1, step)
            yield
    _evaluate(driver, 1, SFT_STEPS, SFT_STEPS, 0)
    _stage(driver, 1, "sft", "done", SFT_STEPS, SFT_STEPS)
    checkpoint(driver, 1, SFT_STEPS, 1, final=True)
    driver.log("trainer-0", f"cold start ends with loss {0.36:.2f}")
    yield


def _reinforce(driver: Driver, steps: int) -> Iterator[None]:
    rng = driver.course.random
    pool = curves.Pool(rng)
    for step in range(steps):
        began = driver.at
        driver.at += RL_STEP_S * rng.uniform(0.85, 1.2)
        at_trainer = SFT_STEPS + step
        driver.metrics(
            "trainer-0", "trainer_step", at_trainer, curves.rl_metrics(driver.course, step)
        )
        driver.metrics(
            "rollout-0", "rollout_step", step, curves.rollout_metrics(driver.course, step)
        )
        driver.tokens += int(rng.gauss(14_000, 900))
        driver.report(
            "driver",
            kind="clock",
            trainer_step=at_trainer,
            rollout_step=step,
            environment_step=step * BATCH * 8 * 4,
            tokens=driver.tokens,
        )
        driver.report("pool", **pool.step(BATCH, step + 1))
        if step % 10 == 0:
            driver.report("trainer-0", **curves.tree(at_trainer))
        _gate(driver, rng)
        for actor in ACTORS:
            if pieces := curves.spans(rng, actor, began, driver.at):
                driver.report(actor, kind="spans", spans=pieces)
        if step % 7 == 0:
            _trajectories(driver, step)
        if step % 10 == 9:
            _evaluate(driver, 2, step + 1, at_trainer, step + 1)
            last = step + 1 == RL_STEPS
            checkpoint(driver, 2, at_trainer, step + 2, final=last, parent=_path(SFT_STEPS))
        if step % 5 == 0:
            driver.log("driver", f"step {step}: completion {driver.course.completion(step):.3f}")
        if driver.course.collapse_at == step:
            driver.log("trainer-0", f"loss is not finite at step {at_trainer}", "error")
        _stage(driver, 2, "rl", "running", step + 1, RL_STEPS)
        heartbeat(driver.token, "rl", 2, step + 1)
        yield
    if steps >= RL_STEPS:
        _stage(driver, 2, "rl", "done", RL_STEPS, RL_STEPS)


def _gate(driver: Driver, rng: random.Random) -> None:
    if rng.random() < 0.12:
        waited = round(rng.uniform(0.4, 12), 1)
        share = rng.randint(62, 78)
        text = f"training waited {waited} s: 3 hops {share}% > 60%"
        driver.report("pool", kind="decision", text=text, waited_s=waited)
        driver.log("pool", text, "warning" if waited > 8 else "debug")


def _evaluate(driver: Driver, stage: int, step: int, trainer_step: int, rl_step: int) -> None:
    evaluations.evaluate(driver, stage, step, trainer_step, driver.course.completion(rl_step))


def _path(step: int) -> str:
    return f"checkpoints/step-{step:06d}"


def checkpoint(
    driver: Driver, stage: int, step: int, version: int, *, final: bool = False, parent: str = ""
) -> None:
    files = {
        "model.safetensors": {"size": 3_412_904, "sha256": f"{step:064x}"},
        "optimizer.safetensors": {"size": 6_825_808, "sha256": f"{step + 1:064x}"},
        "config.json": {"size": 812, "sha256": f"{step + 2:064x}"},
    }
    driver.report(
        "trainer-0",
        kind="checkpoint",
        stage=stage,
        step=step,
        version=version,
        path=_path(step),
        files=files,
        final=final,
        parent=parent,
    )


def _trajectories(driver: Driver, step: int) -> None:
    rng = driver.course.random
    skill = driver.course.completion(step)
    found = []
    for _ in range(3):
        group = ids.new_id("grp")
        city = rng.choice(list(episodes.CITIES))
        found += [
            episodes.episode(
                rng,
                ids.new_id("trj"),
                group=group,
                version=step,
                skill=skill,
                started=driver.at,
                purpose="evaluate" if step % 14 == 0 else "train",
                start_from=city,
            )
            for _ in range(4)
        ]
    blob, sha256, rows = write_shard(found)
    services.put_upload(driver.run.pk, blob, sha256)
    driver.report("rollout-0", kind="trajectories", shard=sha256, rows=rows)
    if found[0].purpose == "train":
        groups = [found[at : at + 4] for at in range(0, len(found), 4)]
        made = [one for g in groups for one in trained(rng, g, SFT_STEPS + step, step + 1)]
        blob, sha256, rows = write_trained(made)
        services.put_upload(driver.run.pk, blob, sha256)
        driver.report("trainer-0", kind="trained", shard=sha256, rows=rows)
