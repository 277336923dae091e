"""Only one process writes into a run folder. The system drops the lock when its holder dies, however it does."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isostep.base.errors import InputError

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder, made if it is not there, or say who does."""
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+b", buffering=0)  # noqa: SIM115
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}; choose a folder you can write to") from error
    with file:
        if not _try_lock(file):
            raise InputError(f"{folder} is in use by {_holder(path)}; wait for it, stop it, or choose another folder")
        with contextlib.suppress(OSError):  # who holds it is a courtesy: a full disk must not stop us here
            file.truncate(0)
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            file.write(f"process {os.getpid()} on {socket.gethostname()} since {now}\n".encode())
        yield


def in_use(folder: Path) -> str | None:
    """Who writes into the folder now, or None."""
    try:
        with open(folder / LOCK, encoding="utf-8") as file:
            return None if _try_lock(file, shared=True) else _holder(folder / LOCK)
    except OSError:
        return None


def _try_lock(file: Any, shared: bool = False) -> bool:
    if fcntl is None:  # pragma: no cover
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(200).strip() or "another process"
    except OSError:
        return "another process"
