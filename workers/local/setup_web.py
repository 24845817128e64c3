"""Everything the web tier needs before it serves, in one process; prints a login link."""

import io
import os
import time
from pathlib import Path

import django
from django.core.management import call_command

# Their module imports cannot be resolved, and no page uses them.
UNUSED = "django_htmx/ext/*"


def main() -> None:
    secrets = Path(os.environ["CARAVAN_HOME"]) / "secrets"
    steps = (
        ("migrations", ["migrate", "--no-input", "--verbosity=0"]),
        ("static files", ["collectstatic", "--no-input", "--verbosity=0", f"--ignore={UNUSED}"]),
        ("first admin", ["ensure_admin"]),
        ("command-line token", ["cli_token", "--file", str(secrets / "cli_token.json")]),
        ("sampler token", ["sampler_token", "--file", str(secrets / "sampler_token")]),
    )
    began = time.monotonic()
    django.setup()
    for what, command in steps:
        call_command(*command, stdout=io.StringIO())
        print(f"{what}  {time.monotonic() - began:.1f} s", flush=True)
        began = time.monotonic()
    call_command("login_link")


if __name__ == "__main__":
    main()
