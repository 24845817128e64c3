"""Small decisions of the stack."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from workers.local.places import Places, prepare
from workers.local.scratch import PREFIX, sweep
from workers.local.stack import last_message
from workers.local.state import State, end, record_self, write_state


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "no message"),
        ("working\ncould not work\n", "could not work"),
        (
            "Traceback (most recent call last):\n  File 'x'\nValueError: first\n\n"
            "During handling of the above exception, another exception occurred:\n\n"
            "Traceback (most recent call last):\n  File 'y'\n    y()\n"
            "app.Broken: second\nwith more lines\nof advice\n",
            "app.Broken: second",
        ),
    ],
)
def test_it_picks_the_line_that_says_what_went_wrong(output: str, message: str) -> None:
    assert last_message(output) == message


def test_it_sweeps_away_scratch_stacks_that_nobody_owns(tmp_path: Path) -> None:
    folder = tmp_path / f"{PREFIX}old"
    places = Places(folder / "home", folder / "run")
    prepare(places)
    left = psutil.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={"CARAVAN_INSTANCE": "swept"},
    )
    try:
        write_state(places, State(instance="swept", supervisor=record_self()))
        sweep(tmp_path, stale_seconds=-1)
        assert left.is_running()  # its owner lives
        write_state(places, State(instance="swept"))
        sweep(tmp_path, stale_seconds=3600)
        assert left.is_running()  # it may be about to get an owner
        sweep(tmp_path, stale_seconds=-1)
        assert not left.is_running()
        assert not folder.exists()
    finally:
        end([left], grace=0)
