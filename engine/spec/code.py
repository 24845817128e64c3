"""Which code this is: recorded with what it launches and runs."""

import os
import subprocess
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
MAX_CODE_VERSION = 64  # characters


@cache
def code_version() -> str:
    """CARAVAN_CODE_VERSION (set in images), or the checkout's commit, marked if edited.

    Empty where neither is known.
    """
    if given := os.environ.get("CARAVAN_CODE_VERSION"):
        return given[:MAX_CODE_VERSION]
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()[:MAX_CODE_VERSION]
