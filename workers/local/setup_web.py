"""Everything the web tier needs before it serves, in one process; prints a login link."""

import io
import os
import time
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command

from workers.local.places import CHECKOUT, stamp

# Their module imports cannot be resolved, and no page uses them.
UNUSED = "django_htmx/ext/*"
# What the collected files are made of and by.
SOURCES = ("frontend/static", "requirements", "webapp/plotly_core.py", "webapp/staticfiles.py")


def main() -> None:
    secrets = Path(os.environ["CARAVAN_HOME"]) / "secrets"
    began = time.monotonic()
    django.setup()
    _step("migrations", began, "migrate", "--no-input", "--verbosity=0")
    _collect_static_files()
    _step("first admin", time.monotonic(), "ensure_admin")
    tokens = time.monotonic()
    call_command("cli_token", "--file", str(secrets / "cli_token.json"))
    _step("tokens", tokens, "sampler_token", "--file", str(secrets / "sampler_token"))
    call_command("login_link")


def _step(what: str, began: float, *command: str) -> None:
    call_command(*command, stdout=io.StringIO())
    print(f"{what}  {time.monotonic() - began:.1f} s", flush=True)


def _collect_static_files() -> None:
    """Copy, hash and compress them, unless they are those of the last start."""
    collected = Path(settings.STATIC_ROOT) / ".collected"
    wanted = stamp(CHECKOUT / name for name in SOURCES)
    if not collected.exists() or collected.read_text() != wanted:
        options = ("--no-input", "--verbosity=0", f"--ignore={UNUSED}")
        _step("static files", time.monotonic(), "collectstatic", *options)
        collected.write_text(wanted)


if __name__ == "__main__":
    main()
