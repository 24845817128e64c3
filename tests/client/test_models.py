"""What transformers sees of us: pulled checkpoints that load, and a callback that reports."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from caravan import Client, Run
from caravan.models import HybridConfig, HybridForCausalLM
from caravan.transformers_callback import CaravanCallback
from tests.client.conftest import Caravan, as_json


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A small model with random weights, as a trainer saves it."""
    torch.manual_seed(0)
    config = HybridConfig(
        vocab_size=50, hidden_size=32, num_attention_heads=2, intermediate_size=32
    )
    HybridForCausalLM(config).save_pretrained(tmp_path / "checkpoint-2")
    return tmp_path / "checkpoint-2"


def test_a_pulled_folder_loads_as_a_causal_lm(caravan: Caravan, saved: Path) -> None:
    with Run(experiment="hybrid") as run:
        run.checkpoint(saved, step=1, final=True)
    pulled = as_json(caravan("checkpoints", "pull", run.id, "--json"))["folder"]
    loaded = AutoModelForCausalLM.from_pretrained(pulled)
    assert isinstance(loaded, HybridForCausalLM)
    ids = torch.randint(0, 50, (1, 9))
    with torch.no_grad():
        expected = HybridForCausalLM.from_pretrained(saved)(ids).logits
        assert torch.equal(loaded(ids).logits, expected)


class Sums(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sequences for a causal LM."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.arange(index, index + 6) % 50
        return {"input_ids": ids, "labels": ids}


def trainer(folder: Path, model: Any, callback: CaravanCallback, steps: int) -> Trainer:
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=2,
        logging_steps=1,
        save_steps=2,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    return Trainer(model=model, args=arguments, train_dataset=Sums(), callbacks=[callback])


@pytest.fixture
def gpt(tmp_path: Path) -> Any:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=16)
    return GPT2LMHeadModel(config)


def test_a_transformers_trainer_reports_itself(client: Client, gpt: Any, tmp_path: Path) -> None:
    callback = CaravanCallback(experiment="trainer", name="its own", checkpoints=True)
    training = trainer(tmp_path / "out", gpt, callback, steps=4)
    training.train()
    found = client.run("its own")
    assert (found["state"], found["step"], found["steps"]) == ("succeeded", 4, 4)
    assert found["spec"]["config"]["learning_rate"] == training.args.learning_rate
    names = {one["name"] for one in client.series(found["id"])}
    assert {"loss", "grad_norm", "learning_rate"} <= names
    losses = client.points(found["id"], ["loss"], after=0)["series"][0]["points"]
    assert [step for step, _, _ in losses] == [1, 2, 3, 4]
    saved = client.checkpoints(found["id"])
    assert [one["step"] for one in saved] == [4, 2]
    assert "model.safetensors" in saved[0]["files"]


def test_a_stop_ends_a_transformers_training(client: Client, gpt: Any, tmp_path: Path) -> None:
    class StopAt(TrainerCallback):
        """Presses Stop at the second step, and waits until the run has heard of it."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.global_step == 1 and callback.run is not None:
                client.stop(callback.run.id)
                assert callback.run._heartbeat.stop_wished.wait(30)

    callback = CaravanCallback(experiment="trainer", name="stopped early")
    training = trainer(tmp_path / "out", gpt, callback, steps=50)
    training.add_callback(StopAt())
    training.train()
    assert training.state.global_step == 2
    assert client.run("stopped early")["state"] == "stopped"


def test_other_ranks_report_nothing() -> None:
    callback = CaravanCallback(experiment="rank 1")
    callback.on_train_begin(None, TrainerState(is_world_process_zero=False), TrainerControl())
    assert callback.run is None
