"""Makes `.venv` on first use and hands over to it: standard library only."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "requirements"
NEEDED_DISK = 3 * 10**9
# What each installing command needs; the other commands only run on what is there.
INSTALLS = {"up": "base", "bench": "base", "install": "base", "test": "dev", "check": "dev"}
FILES = {
    "base": ("base.txt",),
    "dev": ("base.txt", "gpu.txt", "dev.txt"),
    "vllm": ("vllm.txt",),  # an environment of its own: complete, and not to be resolved
}
TORCH_SIZES = (
    "about 0.5 GB where pip finds a CPU build of torch (2 GB on disk), "
    "about 3.5 GB with Linux's usual build, which brings CUDA (8 GB on disk)"
)
SIZES = {
    "base": TORCH_SIZES,
    "dev": f"{TORCH_SIZES}, and 0.4 GB that only tests and checks need",
    "vllm": "about 0.8 GB (3 GB on disk)",
}
HELP = """\
Caravan, the control plane for agentic RL.

  ./caravan up            install what is needed, start everything, print a login link
  ./caravan down          stop it
  ./caravan status        what runs, since when, where
  ./caravan logs SERVICE  what a service wrote
  ./caravan test          the tests, on services of their own
  ./caravan check         format, lint, types, migrations, API schema, page scripts

Nothing is installed yet. After the first `./caravan up`, --help shows every command.\
"""


class BootstrapError(Exception):
    """A problem that the user can solve, as one sentence."""


def main(arguments: Sequence[str]) -> None:
    """Replace this process by `python -m cli` of the environment, made first where allowed."""
    try:
        python = find_python(arguments)
    except BootstrapError as error:
        sys.exit(_fail(f"caravan: {error}"))
    except KeyboardInterrupt:
        sys.exit(_fail("caravan: interrupted; the next start goes on from here."))
    if python is None:
        print(HELP)
        return
    path = os.pathsep.join([str(ROOT), str(ROOT / "client")])
    environment = {**os.environ, "PYTHONPATH": path}
    os.execve(python, [str(python), "-P", "-m", "cli", *arguments], environment)


def find_python(arguments: Sequence[str]) -> Path | None:
    """The environment's Python, installed or brought up to date first; None if only help is due."""
    command = next((a for a in arguments if not a.startswith("-")), "")
    asks_help = not command or "--help" in arguments or "-h" in arguments
    if chosen := os.environ.get("CARAVAN_VENV"):
        python = Path(chosen) / "bin/python"
        if not os.access(python, os.X_OK):
            raise BootstrapError(f"CARAVAN_VENV names {chosen}, which has no usable bin/python.")
        return python
    venv = ROOT / ".venv"
    python = venv / "bin/python"
    group = INSTALLS.get(command)
    if group and not asks_help:
        if not is_current(venv, group):
            install(venv, group)
        return python
    if python.exists() and read_stamp(venv):
        return python
    if asks_help:
        return None
    raise BootstrapError("nothing is installed yet: run `./caravan up` first.")


def wanted_hash(group: str) -> str:
    """A hash of every file that decides what is installed for `group`."""
    names = FILES[group] if group == "vllm" else (*FILES[group], "lock.txt")
    content = b"".join((REQUIREMENTS / name).read_bytes() for name in names)
    return hashlib.sha256(content + sys.version.split()[0].encode()).hexdigest()


def read_stamp(venv: Path) -> dict[str, str]:
    """What was installed completely: group -> hash of its requirements."""
    try:
        stamp: dict[str, str] = json.loads((venv / "caravan.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return stamp


def is_current(venv: Path, group: str) -> bool:
    python = venv / "bin/python"
    return python.exists() and read_stamp(venv).get(group) == wanted_hash(group)


def install(venv: Path, group: str) -> None:
    """Make or update `venv`. Raises BootstrapError with the reason where that fails."""
    free = shutil.disk_usage(ROOT).free
    first = not read_stamp(venv)
    if first:
        print(f"First start: Python packages go to {venv}.")
        print(f"To download: {SIZES[group]}. Free on this disk: {free / 1e9:.1f} GB.", flush=True)
        if free < NEEDED_DISK:
            raise BootstrapError(
                f"at least {NEEDED_DISK / 1e9:.0f} GB must be free on the disk of {ROOT}, "
                f"and {free / 1e9:.1f} GB are."
            )
    else:
        print(f"Installing what `{group}` needs and is missing or changed.", flush=True)
    lock = os.open(ROOT, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)  # another start may be installing
    try:
        if not is_current(venv, group):
            _make_venv(venv)
            _pip_install(venv, group)
            stamp = {**read_stamp(venv), group: wanted_hash(group)}
            if group == "dev":
                stamp["base"] = wanted_hash("base")
            (venv / "caravan.json").write_text(json.dumps(stamp))
    finally:
        os.close(lock)


def _make_venv(venv: Path) -> None:
    python = venv / "bin/python"
    if python.exists() and _version_of(python) == sys.version.split()[0]:
        return
    shutil.rmtree(venv, ignore_errors=True)
    command = [sys.executable, "-m", "venv", str(venv)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode == 0:
        return
    shutil.rmtree(venv, ignore_errors=True)
    output = made.stdout + made.stderr
    if "ensurepip" in output or "No module named venv" in output:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise BootstrapError(
            f"{sys.executable} cannot make environments: "
            f"install the system's package python{version}-venv."
        )
    raise BootstrapError(explain(output, venv))


def _version_of(python: Path) -> str:
    command = [str(python), "-c", "import sys; print(sys.version.split()[0])"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _pip_install(venv: Path, group: str) -> None:
    began = time.monotonic()
    command = [
        str(venv / "bin/python"), "-m", "pip", "install", "--progress-bar=off", "--no-input",
        "--disable-pip-version-check", "--only-binary=:all:",
        *(("--no-deps",) if group == "vllm" else ("-c", str(REQUIREMENTS / "lock.txt"))),
        *(part for name in FILES[group] for part in ("-r", str(REQUIREMENTS / name))),
    ]  # fmt: skip
    log = venv / "install.log"
    environment: Mapping[str, str] = {**os.environ, "PYTHONUNBUFFERED": "1"}
    last: deque[str] = deque(maxlen=60)
    progress = Progress()
    with log.open("w") as file:
        pip = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert pip.stdout is not None
        for line in pip.stdout:
            file.write(line)
            last.append(line)
            progress.see(line)
    progress.close()
    if pip.wait() != 0:
        raise BootstrapError(f"{explain(''.join(last), venv)} All of pip's output: {log}")
    print(f"packages installed  {time.monotonic() - began:.0f} s", flush=True)


class Progress:
    """One line about pip's progress: rewritten on a terminal, else one per large download."""

    def __init__(self) -> None:
        self.seen = 0
        self.terminal = sys.stdout.isatty()

    def see(self, line: str) -> None:
        if line.startswith("Collecting "):
            self.seen += 1
        download = re.match(r"\s+(?:Downloading|Using cached) (\S+?)-[\d.]+\S* \((.+)\)", line)
        if download:
            name, size = download.groups()
            self._show(
                f"downloading package {self.seen}: {name} ({size})", "GB" in size or _is_large(size)
            )
        elif line.startswith("Installing collected"):
            self._show("unpacking all of them", True)

    def _show(self, text: str, notable: bool) -> None:
        if self.terminal:
            print(f"\r\x1b[K  {text}", end="", flush=True)
        elif notable:
            print(f"  {text}", flush=True)

    def close(self) -> None:
        if self.terminal:
            print("\r\x1b[K", end="", flush=True)


def _is_large(size: str) -> bool:
    number = re.match(r"([\d.]+) MB", size)
    return bool(number) and float(number.group(1)) >= 20  # type: ignore[union-attr]


def explain(output: str, venv: Path) -> str:
    """One sentence for what pip or venv reported."""
    if "No space left on device" in output or "Errno 28" in output:
        return f"no space is left on the disk that holds {venv}."
    if "Connection" in output and "Retrying" in output:
        return "the package index cannot be reached: check the network, or pip's configuration."
    missing = re.search(r"No matching distribution found for (\S+)", output)
    if missing:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        machine = f"{sys.platform} on {os.uname().machine}"
        return (
            f"no wheel of {missing.group(1)} fits Python {version} for {machine}: "
            "use Python 3.11 on Linux (x86-64, arm64) or macOS (arm64)."
        )
    errors = [line for line in output.splitlines() if line.lower().startswith("error")]
    lines = errors or output.strip().splitlines() or ["no message"]
    return f"the installation failed: {lines[-1].strip()}"


def _fail(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2
