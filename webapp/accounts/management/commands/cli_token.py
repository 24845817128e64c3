"""Make this checkout's command-line token and print it as JSON, or write it to a 0600 file."""

import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.accounts import services
from webapp.accounts.credentials import write_secret


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--file", help="write there instead of printing")

    def handle(self, *args: Any, **options: Any) -> None:
        admin = services.first_admin()
        if admin is None:
            raise CommandError("There is no admin yet: run ensure_admin.")
        text = json.dumps({"url": settings.CARAVAN_URL, "token": services.replace_cli_token(admin)})
        if options["file"]:
            write_secret(options["file"], text)
        else:
            self.stdout.write(text)
