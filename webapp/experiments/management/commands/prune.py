"""Remove what is kept for a while only, and print how much of it went."""

from typing import Any

from django.core.management.base import BaseCommand

from webapp.pruning import prune


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        for what, count in prune().items():
            self.stdout.write(f"{what}: {count} removed")
