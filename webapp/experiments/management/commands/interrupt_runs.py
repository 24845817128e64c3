"""Ask every started run to save a checkpoint and end as interrupted; wait, then end the rest.

Jobs begin again at the next start."""

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from webapp.experiments import services
from webapp.experiments.models import Run
from webapp.experiments.states import ENDED


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--wait", type=float, default=20, help="seconds, at most")

    def handle(self, *args: Any, **options: Any) -> None:
        deadline = time.monotonic() + options["wait"]
        services.hand_back_jobs()
        asked = services.interrupt_active()
        while time.monotonic() < deadline:
            if not Run.objects.filter(pk__in=asked).exclude(state__in=ENDED).exists():
                break
            time.sleep(0.2)
        for run_id in asked:
            services.end_interrupted(run_id)
        for run in Run.objects.filter(pk__in=asked).order_by("created_at"):
            self.stdout.write(f"{run.pk} {run.state}")
