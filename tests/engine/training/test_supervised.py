"""How likely demonstrations are to a policy that does not learn from them."""

import random

import pytest
import torch

from engine.training.supervised import judge, sft_step
from tests.engine.training.samples import SFT, make_trainer, make_trajectory


def test_demonstrations_are_judged_as_a_step_on_them_says_and_change_nothing() -> None:
    rng = random.Random(3)
    shown = [make_trajectory(rng, f"g{index}") for index in range(6)]
    trainer = make_trainer()
    trainer.begin(SFT)
    before = trainer.weights()
    found = judge(trainer, shown)
    after = trainer.weights()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert trainer.version == 0
    step = sft_step(trainer, shown)
    assert found == {name: pytest.approx(step[name], abs=1e-6) for name in found}
    assert set(found) == {"loss", "token_accuracy"}
    assert judge(trainer, shown)["loss"] < found["loss"]
