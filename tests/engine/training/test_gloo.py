"""Two real processes that average gradients over gloo equal one."""

import socket
from pathlib import Path

import torch
import torch.distributed
import torch.multiprocessing
from safetensors.torch import load_file, save_file

from engine.training.reinforcement import rl_step
from engine.training.supervised import sft_step
from tests.engine.training.samples import MUON, RL, make_groups, make_trainer


def _rank(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    trainer = make_trainer(merge="on", rank=rank, world=2, all_reduce=torch.distributed.all_reduce)
    _steps(trainer)
    save_file(trainer.weights(), Path(folder) / f"{rank}.safetensors")
    torch.distributed.destroy_process_group()


def _steps(trainer) -> None:
    trainer.begin(MUON)
    for seed in range(2):
        sft_step(trainer, [one for group in make_groups(seed) for one in group])
    trainer.begin(RL)
    for seed in range(2):
        rl_step(trainer, make_groups(seed))


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.start_processes(_rank, (port, str(tmp_path)), nprocs=2)
    alone = make_trainer()
    _steps(alone)
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    for name, weight in alone.weights().items():
        assert torch.equal(first[name], second[name])
        assert torch.allclose(first[name], weight, atol=2e-3), name
