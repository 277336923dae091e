"""Processes that share one batch: those that torchrun started, or this one alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from isostep.model.lookup import check_device


@dataclass(frozen=True)
class Ranks:
    """This process's number, how many there are, and its device."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def share(self, total: int) -> slice:
        """Rows of a batch that are this process's."""
        each = total // self.size
        return slice(self.rank * each, (self.rank + 1) * each)


@contextlib.contextmanager
def join_ranks(device: str) -> Iterator[Ranks]:
    """The ranks of this run; the group of processes lives as long as the context."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Ranks(device=check_device(device))
        return
    cuda = device.startswith("cuda")
    place = check_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if cuda else device)
    torch.distributed.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Ranks(torch.distributed.get_rank(), size, place)
    finally:
        torch.distributed.destroy_process_group()
