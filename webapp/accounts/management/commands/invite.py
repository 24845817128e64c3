"""Invite somebody to a project and print the one-time link."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from webapp.accounts import services
from webapp.accounts.models import Role
from webapp.problems import RefusedError


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--role", choices=Role.values, default=Role.EDITOR)
        parser.add_argument("--project", help="name or id; by default the oldest one")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            project = services.project_or_oldest(options["project"])
            _, secret = services.invite(
                project, options["email"], Role(options["role"]), by=services.first_admin()
            )
        except RefusedError as error:
            raise CommandError(error.detail) from None
        self.stdout.write(settings.CARAVAN_URL + reverse("invitation", args=[secret]))
