"""Which graphs are asked for, and how many at a time: the same limits in memory and in a run folder."""

from __future__ import annotations

from isostep.base.errors import InputError

MOST, MOST_BATCH = 2**40, 2**20  # indices of graphs end here; graphs of a batch, and of a shard


def check_extent(n: int, start: int, batch_size: int) -> None:
    """Refuse what cannot be, before any work. A part of what may be asked for may be, too."""
    if n < 1 or start < 0 or start + n > MOST:
        raise InputError(f"n must be at least 1, start at least 0, their sum at most 2^40, got {n} and {start}")
    if not 1 <= batch_size <= MOST_BATCH:
        raise InputError(f"the batch size must be at least 1 and at most 2^20, got {batch_size}")
