"""The Triton kernels: their numbers in Triton's interpreter, and their code for an NVIDIA GPU."""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.kernels.lightning import SlopeSchedule, head_slopes, lightning_attention, packing
from tests.engine.kernels.lightning_cases import SLOPES, inputs

ROOT = Path(__file__).parents[3]
CASES = [
    *(f"{tokens} tokens" for tokens in (1, 63, 64, 65, 255, 257)),
    "two rows, head dim 20, values of 24",
    "head dim 64, values of 80",
    "tails of NaN",
    "packed",
    "tree",
    "forest",
    "views of one projection",
    "heads far apart",
]
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton exists for Linux only"
)


def interpreted(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, float]]:
    return json.loads(interpreted("-m", "tests.engine.kernels.lightning_interpreted"))


@pytest.mark.parametrize("case", CASES)
def test_it_equals_the_recurrence_in_the_interpreter(
    measured: dict[str, dict[str, float]], case: str
) -> None:
    assert all(error < 1e-5 for error in measured[case].values()), measured[case]


def test_no_case_is_left_out(measured: dict[str, dict[str, float]]) -> None:
    assert set(measured) == set(CASES)


def test_it_refuses_bf16_in_the_interpreter_which_rounds_it_wrongly() -> None:
    code = (
        "import torch; from engine.kernels.lightning import lightning_attention\n"
        "q = torch.ones(1, 1, 4, 16, dtype=torch.bfloat16)\n"
        "try: lightning_attention(q, q, q, torch.ones(1), implementation='triton')\n"
        "except TypeError as error: print(error)"
    )
    assert "q [1, 1, 4, 16] is bf16" in interpreted("-c", code)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_it_refuses_tensors_that_are_not_on_a_gpu() -> None:
    q, k, v, _ = inputs(9, torch.float32)
    with pytest.raises(ValueError, match="needs an NVIDIA GPU"):
        lightning_attention(q, k, v, SLOPES, implementation="triton")


@pytest.mark.parametrize(
    ("dtype", "dim", "form", "error", "message"),
    [
        (torch.float64, 16, {}, TypeError, r"q \[1, 4, 9, 16\] is torch.float64"),
        (torch.float32, 320, {}, ValueError, r"q \[1, 4, 9, 320\].* at most 256"),
        (
            torch.float32,
            16,
            {"packing": replace(packing([0, 9]), chunk=128)},
            ValueError,
            r"chunks of 128 tokens, for q \[1, 4, 9, 16\]",
        ),
    ],
)
def test_it_refuses_what_the_kernels_cannot_hold(
    monkeypatch: pytest.MonkeyPatch, dtype, dim: int, form: dict, error, message: str
) -> None:
    from engine.kernels.lightning import triton

    monkeypatch.setattr(triton, "_check_device", lambda q: None)
    q, k, v, _ = inputs(9, dtype, dim=dim)
    with pytest.raises(error, match=message):
        triton.lightning_attention(q, k, v, SLOPES, **form)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
def test_it_equals_the_recurrence_on_a_gpu() -> None:
    slopes = head_slopes(SlopeSchedule.MINIMAX, 4, 0, 4)
    q, k, v, state = (x.cuda() for x in inputs(600, torch.float32, dim=64))
    form = {"cu_seqlens": torch.tensor([0, 600])}
    actual = lightning_attention(q, k, v, slopes.cuda(), initial_state=state, **form)
    expected = lightning_attention(
        *(x.double().cpu() for x in (q, k, v)), slopes, initial_state=state.double().cpu(), **form
    )
    for a, e in zip(actual, expected, strict=True):
        assert (a.cpu() - e).norm() / e.norm() < 1e-5
