"""Parsed arrays on disk: `.npz` without pickle, one file per (name, fingerprint of the source, format)."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from isostep.base.errors import InputError
from isostep.base.files import replacing
from isostep.base.progress import log

FORMAT = 1  # raise it whenever the arrays change their meaning


def cache_folder() -> Path:
    """ISOSTEP_CACHE, else ~/.cache/isostep."""
    return Path(os.environ.get("ISOSTEP_CACHE") or Path.home() / ".cache" / "isostep")


def data_folders() -> list[Path]:
    """The one setting for files that are not part of the package: ISOSTEP_DATA names a folder with benchmark data and
    released files, or one with the folders `data` and `checkpoints`. Nothing else is looked at."""
    named = os.environ.get("ISOSTEP_DATA")
    if not named:
        return []
    root = Path(named)
    below = sorted(path for path in (root / "checkpoints").glob("*") if path.is_dir())
    return [root, root / "data", root / "checkpoints", *below]


def cache_path(name: str, fingerprint: str) -> Path:
    """Where the arrays of this source are stored."""
    return cache_folder() / "dataset" / f"{name}-{fingerprint[:16]}-v{FORMAT}.npz"


def cached(name: str, fingerprint: str, build: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays in the cache, or those of `build`, stored for the next time."""
    return kept(cache_path(name, fingerprint), build)


def kept(path: Path, build: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of a file, or those of `build`, stored there; an unreadable file is built anew."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError):
        arrays = build()
    try:
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    except InputError as error:  # it costs time, not the result
        log.warning("%s; %s is not kept for the next time", error, path.name)
    return arrays
