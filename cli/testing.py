"""`caravan test`: pytest on its own PostgreSQL and Valkey, in a temporary folder."""

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from workers.local.places import CHECKOUT
from workers.local.processes import control_env
from workers.local.scratch import scratch_stack
from workers.local.stack import STORES
from workers.local.supervisor import inherited

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def run_tests(arguments: Sequence[str]) -> int:
    """Run pytest with `arguments`; returns its exit code."""
    chromium = _chromium() if _may_need_browser(arguments) else None
    began = time.monotonic()
    with scratch_stack(only=STORES) as stack:
        print(f"services for the tests are up  {time.monotonic() - began:.1f} s", flush=True)
        environment = {
            **inherited(),
            **control_env(stack.layout),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "CARAVAN_CHROMIUM": chromium or "",
        }
        tests = subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments], cwd=CHECKOUT, env=environment
        )
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C reaches pytest itself
        signal.signal(signal.SIGTERM, lambda *_: tests.terminate())
        return tests.wait()


def _may_need_browser(arguments: Sequence[str]) -> bool:
    paths = [argument for argument in arguments if argument.startswith("tests/")]
    return not paths or any("browser" in path for path in paths)


def _chromium() -> str | None:
    """Debian's Chromium, installed first where that is possible; None after saying why not."""
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if found:
        return found
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        hint = "install the package `chromium`" if platform.system() == "Linux" else "install it"
        print(f"Chromium is missing, browser tests will be skipped: {hint}.", flush=True)
        return None
    print("installing Debian's chromium for the browser tests", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "-qq", "update"],
        ["apt-get", "-qq", "install", "-y", "--no-install-recommends", "chromium"],
    ):
        done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            print(f"{' '.join(command)} failed, browser tests will be skipped: {last}", flush=True)
            return None
    return shutil.which("chromium")
