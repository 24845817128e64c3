"""Write the REST API's OpenAPI document to docs/openapi.json, or check that it is up to date."""

import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.api import api


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing, fail if stale")

    def handle(self, *args: Any, **options: Any) -> None:
        path = settings.CHECKOUT / "docs" / "openapi.json"
        schema = api.get_openapi_schema(path_prefix="/api/v1/")
        text = json.dumps(schema, indent=1, ensure_ascii=False, sort_keys=True, default=str) + "\n"
        if not options["check"]:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            raise CommandError(
                "docs/openapi.json does not describe the API: run `python -m webapp.manage openapi`"
            )
