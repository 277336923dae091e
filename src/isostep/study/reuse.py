"""Cells of other studies on this machine. A study leaves word in the cache of the folder that holds a run; another one
that needs the same run copies it. Word counts only for the same code: a key holds all inputs, but of the program its
version alone, and a developer's changes do not raise that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from isostep.base.cache import cache_folder
from isostep.base.errors import InputError
from isostep.base.files import sha256, write_text
from isostep.base.versions import code_digest
from isostep.run.reading import read_run
from isostep.study.cell import is_complete
from isostep.study.record import Store, key_of


def leave_word(store: Store, run: str) -> None:
    with contextlib.suppress(InputError):  # a cache that cannot be written costs time, not the result
        write_text(_word(run), str(store.folder.resolve()))


def copy_cell(store: Store, run: str, cell: str) -> bool:
    """Copy a run from the study that has it, and its cell; whether the cell is there now."""
    other = _other(store, run)
    if other is None:
        return False
    if not is_complete(store.run(run)) and not _copy_run(other.run(run), store.run(run)):
        return False
    with contextlib.suppress(InputError):
        found = other.read_cell(cell)
        if found is not None:
            store.write_cell(cell, found)
            leave_word(store, run)
            return True
    return False


def _other(store: Store, run: str) -> Store | None:
    try:
        folder = Path(_word(run).read_text(encoding="utf-8"))
        return None if folder == store.folder.resolve() or not folder.is_dir() else Store(folder)
    except (OSError, ValueError):
        return None


def _copy_run(source: Path, target: Path) -> bool:
    """All or nothing, and only what its checksum confirms; not over the rest of an interrupted run."""
    try:
        run = read_run(source)
        if run.joined is None or sha256(run.plain) != run.joined.sha256:
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".copy-", dir=target.parent) as folder:
            shutil.copytree(source, Path(folder) / "run")
            os.rename(Path(folder) / "run", target)
    except (InputError, OSError, shutil.Error):
        return False
    return True


def _word(run: str) -> Path:
    return cache_folder() / "study" / key_of([run, code_digest()])
