"""The first start: what it decides before anything is installed. Nothing is downloaded here."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli import bootstrap
from cli.bootstrap import BootstrapError, explain, find_python

ROOT = Path(bootstrap.__file__).resolve().parents[1]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own, whose requirements may be changed."""
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "REQUIREMENTS", tmp_path / "requirements")
    monkeypatch.delenv("CARAVAN_VENV", raising=False)
    return tmp_path


def pretend_installed(checkout: Path, *groups: str) -> Path:
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    stamp = {group: bootstrap.wanted_hash(group) for group in groups}
    (checkout / ".venv/caravan.json").write_text(json.dumps(stamp))
    return python


@pytest.fixture
def installs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    monkeypatch.setattr(bootstrap, "install", lambda venv, group: asked.append(group))
    return asked


@pytest.mark.parametrize(
    ("command", "group"),
    [("up", "base"), ("bench", "base"), ("install", "base"), ("test", "dev"), ("check", "dev")],
)
def test_it_installs_what_the_command_needs(
    checkout: Path, installs: list[str], command: str, group: str
) -> None:
    find_python([command])
    assert installs == [group]


def test_it_installs_nothing_twice(checkout: Path, installs: list[str]) -> None:
    python = pretend_installed(checkout, "base")
    assert find_python(["up"]) == python
    assert installs == []
    find_python(["test"])
    assert installs == ["dev"]


def test_it_installs_again_when_requirements_change(checkout: Path, installs: list[str]) -> None:
    pretend_installed(checkout, "base", "dev")
    with (checkout / "requirements/lock.txt").open("a") as file:
        file.write("another==1.0\n")
    find_python(["up"])
    assert installs == ["base"]


def test_it_goes_on_where_an_installation_was_cut_short(
    checkout: Path, installs: list[str]
) -> None:
    pretend_installed(checkout)
    find_python(["up"])
    assert installs == ["base"]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["up", "--help"]])
def test_it_helps_before_anything_is_installed(
    checkout: Path, installs: list[str], arguments: list[str]
) -> None:
    assert find_python(arguments) is None
    assert installs == []


@pytest.mark.parametrize("command", ["down", "status", "launch"])
def test_other_commands_do_not_install(checkout: Path, installs: list[str], command: str) -> None:
    with pytest.raises(BootstrapError, match="nothing is installed yet"):
        find_python([command])
    assert installs == []


def test_it_uses_a_named_environment_as_it_is(
    checkout: Path, installs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    python = pretend_installed(checkout)
    monkeypatch.setenv("CARAVAN_VENV", str(checkout / ".venv"))
    assert find_python(["up"]) == python
    monkeypatch.setenv("CARAVAN_VENV", str(checkout / "nowhere"))
    with pytest.raises(BootstrapError, match="no usable bin/python"):
        find_python(["up"])
    assert installs == []


def test_it_says_how_much_disk_is_missing(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = shutil.disk_usage(checkout)._replace(free=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(BootstrapError, match=r"at least 3 GB must be free.*1\.0 GB are"):
        bootstrap.install(checkout / ".venv", "base")
    assert "Free on this disk: 1.0 GB" in capsys.readouterr().out
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("ERROR: No matching distribution found for ray[default]==2.60.0", "no wheel of ray"),
        ("OSError: [Errno 28] No space left on device", "no space is left on the disk"),
        ("WARNING: Retrying ... NewConnectionError: Connection refused", "cannot be reached"),
        ("noise\nERROR: something odd\nmore noise", "installation failed: ERROR: something odd"),
    ],
)
def test_it_explains_a_failed_installation_in_a_sentence(output: str, sentence: str) -> None:
    explained = explain(output, Path("/somewhere/.venv"))
    assert sentence in explained
    assert "\n" not in explained


def test_it_refuses_an_old_python_in_one_sentence() -> None:
    pretended = (
        "import sys; sys.version_info = (3, 9, 2); sys.argv = ['./caravan', 'up'];"
        f"exec(compile(open({str(ROOT / 'caravan')!r}).read(), {str(ROOT / 'caravan')!r}, 'exec'),"
        " {'__file__': '/nowhere/caravan', '__name__': '__main__'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", pretended], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert done.stderr.startswith("caravan: Python 3.11 or newer is needed")
    assert done.stderr.count("\n") == 1


def test_it_runs_with_nothing_but_the_standard_library() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "CARAVAN"))}
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import cli.bootstrap;"
        "print(sorted({m.partition('.')[0] for m in sys.modules} - sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(ROOT)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['__main__', 'cli']" or done.stdout.strip() == "['cli']"


def test_every_requirement_is_pinned_and_locked() -> None:
    locked = {line.partition("==")[0].lower() for line in _lines("lock.txt")}
    for name in ("base.txt", "dev.txt", "gpu.txt"):
        for line in _lines(name):
            package, _, version = line.partition("==")
            assert version, f"{line} in {name} is not pinned"
            assert package.partition("[")[0].lower() in locked


def _lines(name: str) -> list[str]:
    text = (ROOT / "requirements" / name).read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]
