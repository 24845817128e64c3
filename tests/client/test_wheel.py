"""The distribution: a wheel that needs no torch and imports where nothing else is."""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "transformers", "ray", "django", "celery")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment with our wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("client", "engine"):  # built from a copy: building leaves files behind
        ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        shutil.copytree(CHECKOUT / name, folder / name, ignore=ignored)
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(folder / "client"))
    venv.create(folder / "empty", with_pip=False)
    python = folder / "empty/bin/python"
    (wheel,) = folder.glob("caravan-*.whl")
    lock = str(CHECKOUT / "requirements/lock.txt")
    _pip("--python", str(python), "install", "-c", lock, str(wheel))
    return python


def test_it_imports_without_anything_heavy(python: Path, tmp_path: Path) -> None:
    script = (
        "import sys, caravan, caravan.commands, caravan.run\n"
        "from caravan import Client, Run\n"
        "print(caravan.__file__, *{name.split('.')[0] for name in sys.modules})\n"
    )
    done = _run(python, "-c", script, folder=tmp_path)
    file, *modules = done.stdout.split()
    assert Path(file).is_relative_to(python.parents[1])
    assert not set(HEAVY) & set(modules)


@pytest.mark.parametrize("name", HEAVY)
def test_it_brings_nothing_heavy(python: Path, tmp_path: Path, name: str) -> None:
    script = f"import importlib.util; assert importlib.util.find_spec({name!r}) is None"
    _run(python, "-c", script, folder=tmp_path)


def test_its_command_speaks(python: Path, tmp_path: Path) -> None:
    command = python.with_name("caravan")
    assert "launch" in _run(command, "--help", folder=tmp_path).stdout
    refused = subprocess.run(
        [command, "runs"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 3 and "caravan login" in refused.stderr


def test_the_command_line_loads_nothing_it_may_not_need() -> None:
    script = "import sys, caravan.commands; print(*sys.modules)"
    done = _run(Path(sys.executable), "-c", script, folder=CHECKOUT / "client")
    assert not {"httpx", "zstandard", "rich.table", "pydantic"} & set(done.stdout.split())


def _run(program: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments],
        cwd=folder,
        env={"HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )


def _pip(*arguments: str) -> None:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    command = [sys.executable, "-m", "pip", *quiet, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
