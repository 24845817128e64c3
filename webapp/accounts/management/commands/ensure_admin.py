"""Create the first admin, the default team and project, where they are missing; print the email."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from webapp.accounts import services


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--email", default="admin@caravan.local")

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(services.ensure_admin(options["email"]).email)
