"""Reading `.npz` archives that may be anything."""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from isostep.base.errors import InputError


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[np.lib.npyio.NpzFile]:
    """An `.npz` file opened without pickle; whatever is wrong with it becomes one line."""
    try:
        arrays = np.load(path, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise InputError(f"{path} is not a reference file; build it with `isostep reference build`")
        with arrays:
            yield arrays
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    except (KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} is not a reference file: {error}; build it again") from error
