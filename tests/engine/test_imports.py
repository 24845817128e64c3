"""The packages that the web tier and the client may read pull in nothing heavy."""

import subprocess
import sys

import pytest

HEAVY = {"torch", "ray", "vllm", "django", "celery", "transformers"}


@pytest.mark.parametrize(
    "package",
    [
        "spec",
        "records.events",
        "records.shards",
        "rewards",
        "planner",
        "environments",
        "synthesis",
        "evaluation.report",
        "evaluation.comparison",
    ],
)
def test_it_imports_nothing_heavy(package: str) -> None:
    code = f"import sys, engine.{package}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())
