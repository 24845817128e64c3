"""The new loss of docs/algorithms.md: one file and one line, in a copy of the engine."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.parity import GOLDEN
from workers.local.places import CHECKOUT

LINES = 60

# Run in the copy: the loss on TRL's own batch, and a step of a trainer with it.
USE = """
import json, sys
import torch
from bench._parity_losses import policy_loss
from engine.spec import RlStage
from engine.training.reinforcement import rl_step
from tests.engine.training.samples import FLAT, make_groups, make_trainer

given = json.load(sys.stdin)
how = {"algorithm": "grpo", "loss": "sapo", "aggregation": "seq-mean-token-mean"}
found = policy_loss(given, how)
trainer = make_trainer()
trainer.begin(RlStage(**how, steps=20, optimizer=FLAT))
figures = rl_step(trainer, make_groups())
print(json.dumps({
    "loss": float(found["loss"]),
    "gradient": found["gradient"].tolist(),
    "version": trainer.version,
    "grad_norm": figures["grad_norm"],
}))
"""


def test_a_loss_is_added_by_one_file_and_one_line(tmp_path: Path) -> None:
    page = (CHECKOUT / "docs/algorithms.md").read_text()
    file, line = re.findall(r"```python\n(.*?)```", page.partition("## A new loss")[2], re.DOTALL)
    assert len(file.splitlines()) <= LINES and len(line.splitlines()) == 1
    for part in ("engine", "bench", "workers", "tests/engine/training"):
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / part, tmp_path / part, ignore=skipped)
    (tmp_path / "engine/algorithms/losses/sapo.py").write_text(file)
    registry = tmp_path / "engine/spec/algorithms.py"
    before = registry.read_text()
    after = re.sub(r"^Loss = Literal\[.*\]$", line.strip(), before, flags=re.MULTILINE)
    assert after != before
    registry.write_text(after)

    (one,) = (
        one
        for one in json.loads((GOLDEN / "trl.json").read_text())["cases"]
        if one["name"] == "loss.sapo"
    )
    done = subprocess.run(
        [sys.executable, "-c", USE],
        input=json.dumps(one["inputs"]),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["loss"] == pytest.approx(one["outputs"]["loss"], abs=1e-10)
    for row, known in zip(found["gradient"], one["outputs"]["gradient"], strict=True):
        assert row == pytest.approx(known, abs=1e-10)
    assert found["version"] == 1 and found["grad_norm"] > 0
