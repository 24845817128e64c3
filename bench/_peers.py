"""Peers that benchmarks measure beside us: each in an environment of its own, never in ours."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from workers.local.places import UserError, find_places


def environment(
    requirement: str,
    first: Sequence[str] = (),
    beside: Sequence[str] | None = None,
    from_source: Sequence[str] = (),
) -> Path:
    """The folder of programs of an environment with this pinned package, made on first use.

    first: what is installed before it, such as the build of torch that pip finds here; beside: all
    that is installed with it, instead of what it asks for itself; from_source: packages of which
    no wheel exists. Raises UserError where it cannot be installed.
    """
    name, _, version = requirement.partition("==")
    folder = find_places().home / "bench" / "peers" / f"{name}-{version}"
    done = folder / "installed"
    if done.exists():
        return folder / "bin"
    print(f"installing {requirement} for comparison, into {folder}", file=sys.stderr, flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check"]
    pip += ["--quiet", "--no-input", "--only-binary=:all:"]
    pip += [f"--no-binary={one}" for one in from_source]
    if first:
        _run([*pip, *first])
    if beside is None:
        _run([*pip, *first, requirement])
    else:
        _run([*pip, "--no-deps", requirement])
        _run([*pip, *first, *beside])
    done.touch()
    return folder / "bin"


def _run(command: list[str]) -> None:
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        last = (finished.stderr.strip() or "no message").splitlines()[-1]
        raise UserError(f"The peer's environment cannot be made: {last}")
