"""Launch the quick start, unless this database has one already; print its id."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webapp.experiments import services
from webapp.problems import RefusedError


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            run = services.launch_demo()
        except RefusedError as error:
            raise CommandError(error.detail) from None
        if run is not None:
            self.stdout.write(run.pk)
