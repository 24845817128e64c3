"""Fill a project with made-up runs and what people made of them, to look at and to measure on.

With --live one more runs on until Ctrl-C. Made-up runs have the tag `demo`.
"""

import random
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from engine.records.events import Devices
from engine.spec import ExperimentSpec
from webapp import live
from webapp.accounts.models import Project, User
from webapp.accounts.services import first_admin, project_or_oldest
from webapp.experiments import services
from webapp.experiments.models import Run
from webapp.experiments.recipes import recipe
from webapp.experiments.services import Launch
from webapp.monitoring.ingest.devices import store_devices
from webapp.monitoring.seed import curves, driver, people, scale, sweeps
from webapp.problems import RefusedError

NOTES = """Does a wider gate keep the pool fresh?

- baseline: **0.6** for each category
- see `pool.gate.shares`
"""
RATES = (4e-4, 2e-4, 8e-4)
DEVICES_EVERY_S = 2.0


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--runs", type=int, default=20)
        parser.add_argument("--project", help="name or id; by default the oldest one")
        parser.add_argument("--live", action="store_true", help="one more run, in real time")
        parser.add_argument("--step-seconds", type=float, default=1.0, help="of the live run")
        parser.add_argument(
            "--live-steps", type=int, default=driver.RL_STEPS, help="of reinforcement, live"
        )
        parser.add_argument(
            "--scale", nargs="?", const=1.0, type=float, metavar="FACTOR",
            help="also the sizes of the bars, times FACTOR: 5,000 runs with 200 metrics, a series "
            "of a million points, 10,000 trajectories, one of 10,000 steps",
        )  # fmt: skip
        parser.add_argument(
            "--beside-real-runs", action="store_true", help="in a database that has runs of its own"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            project = project_or_oldest(options["project"])
        except RefusedError as error:
            raise CommandError(error.detail) from None
        if not options["beside_real_runs"] and (real := _real_runs()):
            raise CommandError(
                f"This database has {real} real runs, and made-up ones would stand among them: "
                "add --beside-real-runs if that is what you want."
            )
        self.random = random.Random(7)
        try:
            ended = [self._told(project, n, options["runs"]) for n in range(options["runs"])]
            self._devices(time.time() - 600, time.time())
            if ended and not project.datasets.exists():
                people.furnish(project, _admin(), _best(ended))
            if ended and not project.sweeps.exists():
                sweeps.make(project, _admin(), self._spec(0), days=2 + options["runs"] / 4)
            if options["scale"] is not None:
                sizes = scale.Sizes.of(options["scale"])
                scale.make(project, _admin(), self._spec(0), sizes, self.stdout.write)
            if options["live"]:
                self._live_run(project, options["step_seconds"], options["live_steps"])
        except RefusedError as refused:
            raise CommandError(refused.detail) from None

    def _told(self, project: Project, index: int, total: int) -> Run:
        run = self._past_run(project, index, total)
        self.stdout.write(f"{run.pk} {run.name}")
        return run

    def _spec(self, seed: int) -> ExperimentSpec:
        text = recipe("kg-search").text
        spec = services.check_spec(text).model_dump(mode="json")
        spec["seed"] = seed
        for stage in spec["stages"]:
            if stage["kind"] == "rl":
                stage["optimizer"]["lr"] = RATES[seed % len(RATES)]
                stage["group_size"] = (8, 4)[seed % 2]
        return services.check_spec(spec)

    def _launch(self, seed: int) -> Launch:
        experiment = ("gate-width", "learning-rate", "kg-search")[seed % 3]
        tags = ["demo"] + [
            tag
            for tag, every in (("baseline", 5), ("sweep", 2), ("nightly", 7))
            if seed % every == 0
        ]
        return Launch(experiment=experiment, notes=NOTES if seed % 3 == 0 else "", tags=tags)

    @transaction.atomic
    def _past_run(self, project: Project, index: int, total: int) -> Run:
        age = 3600.0 * 5 * (total - index)
        began = time.time() - age
        made = driver.begin(project, _admin(), self._spec(index), self._launch(index), index, began)
        broken = made.course.collapse_at
        steps = broken + 2 if broken else (41 if _is_stopped(index) else driver.RL_STEPS)
        for _ in driver.play(made, steps):
            pass
        made.send()
        if broken:
            driver.end(made, "failed", "The loss was not finite for two steps in a row.")
        elif _is_stopped(index):
            driver.end(made, "stopped", "Stopped from the page.")
        else:
            driver.end(made, "succeeded")
        driver.backdate(made, began, made.at)
        self._devices(began, made.at)
        return made.run

    def _devices(self, start: float, stop: float) -> None:
        store_devices(
            [
                Devices(
                    source="sampler",
                    seq=index + 1,
                    at=start + DEVICES_EVERY_S * index,
                    node="workstation",
                    devices=curves.devices(self.random, 0.7),
                )
                for index in range(int((stop - start) / DEVICES_EVERY_S) + 1)
            ]
        )

    def _live_run(self, project: Project, step_seconds: float, steps: int) -> None:
        made = driver.begin(
            project,
            _admin(),
            self._spec(1000),
            Launch(experiment="kg-search", name="live", tags=["demo"]),
            1000,
            time.time(),
        )
        self.stdout.write(f"{made.run.pk} live: Ctrl-C ends it")
        try:
            for _ in driver.play(made, steps):
                made.at = time.time()
                for item in made.items:
                    if item["kind"] != "spans":
                        item["at"] = min(item["at"], made.at)
                made.send()
                store_devices(
                    [
                        Devices(
                            source="sampler",
                            seq=1,
                            at=made.at,
                            node="workstation",
                            devices=curves.devices(self.random, 0.7),
                        )
                    ]
                )
                live.announce(made.run)
                time.sleep(step_seconds)
            driver.end(made, "succeeded")
        except KeyboardInterrupt:
            driver.end(made, "stopped", "Ended from the terminal.")


def _is_stopped(index: int) -> bool:
    return index % 6 == 0 and index > 0


def _real_runs() -> int:
    """Runs that were not made up here; the quick start, which every database gets, is none."""
    return Run.objects.filter(is_demo=False).exclude(tags__contains=["demo"]).count()


def _admin() -> User:
    user = first_admin()
    assert user is not None
    return user


def _best(runs: list[Run]) -> Run:
    """An ended run that succeeded, to stand in the middle of what people made."""
    done = Run.objects.filter(pk__in=[run.pk for run in runs], state="succeeded")
    return done.order_by("-created_at").first() or runs[-1]
