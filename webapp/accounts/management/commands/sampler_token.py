"""Print the token of this installation's device samplers, or write it to a 0600 file."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from webapp.accounts.credentials import sampler_token, write_secret


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--file", help="write there instead of printing")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["file"]:
            write_secret(options["file"], sampler_token())
        else:
            self.stdout.write(sampler_token())
