"""Memory of repeated work."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's names for mallopt
LARGE = 2**30  # bytes


def keep_freed_memory() -> None:
    """Let freed arrays be used again instead of being given back: fresh pages cost more than the work done on them.

    glibc only; elsewhere nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
