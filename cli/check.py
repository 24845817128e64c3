"""`caravan check`: format, lint, types, migrations, API schema, templates, texts, scripts."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cli.node import node_tools
from workers.local.places import CHECKOUT, UserError
from workers.local.processes import control_env
from workers.local.scratch import scratch_stack
from workers.local.stack import STORES
from workers.local.supervisor import inherited

TREES = ("engine", "webapp", "workers", "client", "cli", "bench", "tests")
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


def _run(command: list[str], environment: Environment) -> Outcome:
    done = subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode == 0, done.stdout + done.stderr


def _page_scripts(environment: Environment) -> Outcome:
    """`tsc --noEmit` over the pages' JavaScript; says what is missing where it cannot run."""
    try:
        node, tools = node_tools(environment)
    except UserError as missing:
        return False, str(missing)
    compiler = tools / "typescript/bin/tsc"
    return _run([str(node), str(compiler), "--project", str(CHECKOUT / "frontend")], environment)
