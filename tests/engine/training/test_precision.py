"""Which type the products are computed in, and the sentence that says why."""

import pytest
import torch

from engine.training import precision
from engine.training.precision import choose_precision


def test_float32_is_taken_at_its_word() -> None:
    dtype, sentence = choose_precision("float32")
    assert dtype == torch.float32 and "as the specification says" in sentence


@pytest.mark.parametrize(
    ("half", "expected", "words"),
    [(1.0, torch.bfloat16, "2.0 times as fast"), (6.0, torch.float32, "3.0 times slower")],
)
def test_bfloat16_is_taken_only_where_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, half: float, expected: torch.dtype, words: str
) -> None:
    times = {torch.bfloat16: half, torch.float32: 2.0}
    monkeypatch.setattr(precision, "_product_time", times.__getitem__)
    dtype, sentence = choose_precision("bfloat16")
    assert dtype == expected and words in sentence
