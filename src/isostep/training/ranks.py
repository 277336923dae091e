"""Processes that share one batch: those that torchrun started, or this one alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

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

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Means over all processes, in place, by one message."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        torch.distributed.all_reduce(flat)
        for tensor, mean in zip(tensors, (flat / self.size).split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(mean.view_as(tensor))


@contextlib.contextmanager
def join_ranks(device: str) -> Iterator[Ranks]:
    """The ranks of this run; the group of processes lives as long as the context."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Ranks(device=check_device(device))
        return
    cuda = device.startswith("cuda")
    place = check_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if cuda else device)
    # Optimizers import this; imported while there is a group, it keeps the group's threads alive for ever, and one that
    # still runs when the interpreter ends can abort the process.
    import torch._dynamo

    torch.distributed.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Ranks(torch.distributed.get_rank(), size, place)
    finally:
        torch.distributed.destroy_process_group()
