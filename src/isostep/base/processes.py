"""Processes of our own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator

SAFE = "PYTHONSAFEPATH"


@contextlib.contextmanager
def safe_path() -> Generator[None, None, None]:
    """Interpreters started inside import nothing from the current folder, which may hold anything."""
    before = os.environ.get(SAFE)
    os.environ[SAFE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE]
        else:
            os.environ[SAFE] = before
