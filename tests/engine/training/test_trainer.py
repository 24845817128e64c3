"""The trainer: what a step does, stages, and checkpoints."""

import json
import random
from pathlib import Path

import pytest
import torch

from engine.models.logprobs import token_logprobs
from engine.records.trajectory import Trajectory
from engine.spec import (
    SftStage,
)
from engine.training import trainer as module
from engine.training.checkpoint import CheckpointError
from engine.training.reinforcement import rl_step
from engine.training.supervised import sft_step
from engine.training.trainer import Trainer
from tests.engine.training.samples import (
    MUON,
    RL,
    SFT,
    make_groups,
    make_trainer,
    make_trajectory,
)


def test_repeated_steps_make_what_was_rewarded_likelier() -> None:
    trainer, groups = make_trainer(), make_groups()
    trainer.begin(RL)

    def logprob(one: Trajectory) -> float:
        segment = one.segments[0]
        ids, mask = torch.tensor(segment.ids), torch.tensor(segment.loss_mask)[1:]
        hidden = trainer.model.hidden(ids[None])[0, :-1]
        values = token_logprobs(hidden, trainer.model.embedding.weight, ids[1:]).logprobs
        return float(values[mask].mean())

    good = [one for group in groups for one in group if one.reward.value == 1.0]
    bad = [one for group in groups for one in group if one.reward.value == 0.0]
    before = sum(map(logprob, good)), sum(map(logprob, bad))
    for _ in range(5):
        rl_step(trainer, groups)
    assert sum(map(logprob, good)) > before[0]
    assert sum(map(logprob, bad)) < before[1]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_sft_learns_its_demonstrations_by_heart(
    monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    monkeypatch.setattr(
        module, "choose_precision", lambda wanted: (getattr(torch, wanted), "as asked")
    )
    trainer = make_trainer(precision)
    rng = random.Random(0)
    shown = [make_trajectory(rng, "g") for _ in range(8)]
    trainer.begin(SftStage(steps=60, batch_size=8, optimizer=MUON.optimizer))
    losses = [sft_step(trainer, shown)["loss"] for _ in range(60)]
    assert losses[-1] < losses[0] - 2
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters())


def test_sft_and_rl_take_the_mean_over_tokens_of_the_whole_step() -> None:
    trainer = make_trainer()
    rng = random.Random(0)
    shown = [make_trajectory(rng, "g") for _ in range(8)]
    trainer.begin(SFT)
    total = count = 0.0
    for one in shown:
        segment = one.segments[0]
        ids, mask = torch.tensor(segment.ids), torch.tensor(segment.loss_mask)[1:]
        log_p = torch.log_softmax(trainer.model(ids[None]).logits[0, :-1], dim=-1)
        total -= float(log_p.gather(1, ids[1:, None])[mask].sum().detach())
        count += int(mask.sum())
    assert sft_step(trainer, shown)["loss"] == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize("stage", [RL, MUON], ids=["rl", "sft"])
def test_it_continues_from_a_checkpoint_as_if_never_stopped(tmp_path: Path, stage) -> None:
    def step(trainer: Trainer, seed: int) -> None:
        if stage is RL:
            rl_step(trainer, make_groups(seed))
        else:
            sft_step(trainer, [one for group in make_groups(seed) for one in group])

    trainer = make_trainer()
    trainer.begin(stage)
    for seed in range(3):
        step(trainer, seed)
    folder = tmp_path / "checkpoints" / "step-3"
    files = trainer.save(folder, {"stage": 2}, {"tokenizer.json": b"{}"})
    assert {path.name for path in folder.iterdir()} == set(files)
    assert set(files) >= {"config.json", "model.safetensors", "tokenizer.json", "caravan.json"}
    assert all(entry["size"] == (folder / name).stat().st_size for name, entry in files.items())

    resumed = make_trainer()
    resumed.begin(stage)
    meta = resumed.load(folder)
    assert (meta["stage"], meta["step"], resumed.step, resumed.version) == (2, 3, 3, 3)
    for seed in range(3, 6):
        step(trainer, seed)
        step(resumed, seed)
    for name, weight in resumed.weights().items():
        assert torch.equal(weight, trainer.weights()[name])


def test_a_damaged_or_half_written_checkpoint_is_refused(tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.begin(SFT)
    folder = tmp_path / "step-0"
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        trainer.load(folder)
    trainer.save(folder, {}, {})
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match="differs from its recorded hash"):
        trainer.load(folder)
    weights.unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        trainer.load(folder)


def test_saving_again_replaces_the_folder_as_a_whole(tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.begin(SFT)
    folder = tmp_path / "step"
    trainer.save(folder, {}, {"old.txt": b"old"})
    trainer.save(folder, {}, {"new.txt": b"new"})
    assert not (folder / "old.txt").exists() and (folder / "new.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["step"]
    assert json.loads((folder / "caravan.json").read_text())["version"] == 0


def test_steps_need_a_stage_of_their_kind() -> None:
    trainer = make_trainer()
    with pytest.raises(RuntimeError, match="call begin first"):
        sft_step(trainer, [make_trajectory(random.Random(0), "g")])
    trainer.begin(SFT)
    with pytest.raises(RuntimeError, match="stage of kind rl"):
        rl_step(trainer, make_groups())


def test_equal_seeds_give_equal_weights_and_leave_torchs_own_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second = make_trainer().weights(), make_trainer().weights()
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(first[name], second[name]) for name in first)
