"""Two processes that share a batch compute the gradients of one process."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as multiprocessing
from safetensors.torch import load_file, save_file

from isostep.base.errors import InputError
from isostep.training.ranks import Ranks, join_ranks
from isostep.training.trainer import Trainer
from tests.training.configs import LOLLIPOP, STAR, config, data


def _gradients(trainer: Trainer) -> dict[str, torch.Tensor]:
    for _ in range(2):
        trainer.step()
    trainer.gradients()
    return {name: p.grad.clone() for name, p in trainer.network.named_parameters() if p.grad is not None}


def _worker(rank: int, family: str, port: int, folder: Path) -> None:
    import os

    torch.set_num_threads(1)
    os.environ.update(WORLD_SIZE="2", RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with join_ranks("cpu") as ranks:
        trainer = Trainer(config(family), data(family, [STAR, LOLLIPOP], 7), ranks)
        save_file(_gradients(trainer), folder / f"{rank}.safetensors")
        validated = trainer.validate()
        save_file(validated, folder / f"val{rank}.safetensors")
    # A thread of the group that is alive when the interpreter ends can abort the process.
    names = [Path(f"/proc/self/task/{task}/comm").read_text() for task in os.listdir("/proc/self/task")]
    assert not [name for name in names if "gloo" in name], names


@pytest.mark.parametrize("family", ["grum", "gdss"])
def test_two_processes_give_the_gradients_of_one(family, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.start_processes(_worker, (family, port, tmp_path), nprocs=2, start_method="spawn")
    alone = Trainer(config(family), data(family, [STAR, LOLLIPOP], 7))
    expected = _gradients(alone)
    for rank in range(2):
        found = load_file(tmp_path / f"{rank}.safetensors")
        assert found.keys() == expected.keys()
        for name, gradient in found.items():
            torch.testing.assert_close(
                gradient, expected[name], rtol=1e-4, atol=1e-4 * float(expected[name].abs().max()) + 1e-7
            )
        validated = load_file(tmp_path / f"val{rank}.safetensors")
        torch.testing.assert_close(validated["A"], alone.validate()["A"], rtol=1e-4, atol=0)


def test_a_batch_that_cannot_be_shared_is_refused():
    with pytest.raises(InputError, match="multiple of the 3 processes"):
        Trainer(config("grum"), data("grum", [STAR], 4), Ranks(0, 3))
