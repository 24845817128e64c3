"""Everything here computes in float64: a difference that is not rounding cannot hide in it."""

from collections.abc import Iterator

import pytest
import torch

from engine.training import trainer


@pytest.fixture(scope="module", autouse=True)
def exact() -> Iterator[None]:
    """Weights, products and what is made without a type are float64; the code is the trainer's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "choose_precision", lambda _: (torch.float64, "float64, for tests"))
        torch.set_default_dtype(torch.float64)
        yield
        torch.set_default_dtype(torch.float32)
