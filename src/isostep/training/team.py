"""Processes that share one batch: those that torchrun started, or this one alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from isostep.base.errors import InputError


@dataclass(frozen=True)
class Team:
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
def join_team(device: str) -> Iterator[Team]:
    """The team of this run; the group of processes lives as long as the context."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Team(device=_device(device))
        return
    cuda = device.startswith("cuda")
    place = _device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if cuda else device)
    torch.distributed.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Team(torch.distributed.get_rank(), size, place)
    finally:
        torch.distributed.destroy_process_group()


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        return device
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
