"""Queue a new attempt of every run that ended because Caravan was stopped; print their ids.

Jobs that were handed back then are sent too."""

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand

from webapp.experiments import services


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        services.send_jobs(after=timedelta())
        for run_id in services.resume_interrupted():
            self.stdout.write(run_id)
