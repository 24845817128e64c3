"""Queue a new attempt of every run that ended because Caravan was stopped; print their ids."""

from typing import Any

from django.core.management.base import BaseCommand

from webapp.experiments import services


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        for run_id in services.resume_interrupted():
            self.stdout.write(run_id)
