"""The lightning benchmark compares like with like, and its measure of exactness can fail."""

import math
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch

from bench import _lightning_cases as lightning
from bench import lightning as bench
from bench.figures import Figure
from engine.kernels.lightning import chunked, reference


@pytest.mark.parametrize("block", [32, 64])
def test_the_peers_loop_computes_the_same(block: int) -> None:
    q, k, v = torch.randn(3, 1, 4, 128, 16, dtype=torch.float64)
    rate = lightning.slopes(4)
    expected, _ = reference.lightning_attention(q, k, v, rate)
    assert torch.allclose(lightning.block_loop(q, k, v, rate.double(), block), expected)


def test_the_measure_of_exactness_notices_a_shifted_decay_and_nan() -> None:
    case = lightning.cases()[3]
    assert lightning.worst_error(torch.float64, [case]) < 1e-12
    with patch.object(chunked, "_decays", lightning.one_exponent_short):
        assert lightning.worst_error(torch.float64, [case]) > 1e-3
    poisoned = replace(case, q=torch.full_like(case.q, torch.nan))
    assert lightning.worst_error(torch.float64, [poisoned]) == math.inf


def test_the_cases_cover_every_form() -> None:
    forms = [set(case.form) for case in lightning.cases()]
    assert {"cu_seqlens"} in forms and {"cu_seqlens", "parents"} in forms
    assert {"lengths"} in forms and forms.count(set()) == len(lightning.LENGTHS) + 1


def test_bf16_is_null_with_the_reason_where_the_cpu_has_no_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench, "_has_bf16_instructions", lambda: False)
    figure: Figure = bench._bf16({"ours": 1.0, "bf16": 2.0})
    assert figure.value is None and "no bf16 instructions" in figure.setup


def test_decoding_reports_both_of_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "_state_after", lambda tokens, rate: torch.zeros(1, 8, 64, 64))
    figures = {figure.metric: figure for figure in bench.decoding()}
    assert set(figures) == {"decode_vs_sdpa_16k", "decode_128k_vs_1k"}
    assert figures["decode_vs_sdpa_16k"].ratio is not None
