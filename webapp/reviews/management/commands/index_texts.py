"""Make the text of all stored trajectories findable now, for example after an upgrade."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from webapp.reviews.models import TextIndex, Trajectory
from webapp.reviews.services import index_texts

REPORT_S = 5.0


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--again", action="store_true", help="also what is indexed already")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["again"]:
            TextIndex.objects.all().delete()
            Trajectory.objects.filter(is_indexed=True).update(is_indexed=False)
        waiting = Trajectory.objects.filter(is_indexed=False)
        done = 0
        while count := index_texts(REPORT_S):
            done += count
            self.stdout.write(f"{done} trajectories are indexed, {waiting.count()} wait")
        if left := waiting.count():
            self.stdout.write(f"{left} still wait: another process is indexing them")
        elif not done:
            self.stdout.write("Every trajectory is indexed.")
