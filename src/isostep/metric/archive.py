"""References as `.npz` archives without pickles: written whole, read whatever they may be."""

from __future__ import annotations

import contextlib
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from isostep.base.archive import check_entries
from isostep.base.errors import InputError
from isostep.base.files import replacing
from isostep.base.limits import within

PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What numpy and zipfile raise on damaged files; numpy reads an array's header as Python.
DAMAGE = (
    LookupError, ValueError, TypeError, AttributeError, EOFError, ArithmeticError, RuntimeError, MemoryError,
    SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def store(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[np.lib.npyio.NpzFile]:
    """An `.npz` file opened without pickle; whatever is wrong with it becomes one line."""
    try:
        _check(path)
        arrays = np.load(path, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise InputError(f"{path} is not a reference file; build it with `isostep reference build`")
        with arrays:
            yield arrays
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    except DAMAGE as error:
        cause = " ".join(str(error).split())[:200]
        raise InputError(f"{path} is not a reference file: {cause}; build it again") from error


def _check(path: str | Path) -> None:
    """What the archive declares, before anything is unpacked."""
    with open(path, "rb") as file:
        if file.read(2) != b"PK":
            raise InputError(f"{path} is not a reference file; build it with `isostep reference build`")
        check_entries(file, path)
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            within("unpacked_bytes", sum(e.file_size for e in entries), f"{path} unpacks to too many bytes")
            for entry in entries:
                if entry.flag_bits & 1 or entry.compress_type not in PACKED:
                    raise InputError(f"{path} is encrypted or packed in an unknown way; build it again")
                with archive.open(entry) as array:
                    _check_array(array, entry.file_size, path)


def _check_array(array, size: int, path: str | Path) -> None:
    """numpy takes the memory that a header declares, so the bytes must be there."""
    version = np.lib.format.read_magic(array)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise InputError(f"{path} holds an array of an unknown version; build it again")
    shape, _, dtype = read(array)
    if math.prod(shape) * dtype.itemsize > size:
        raise InputError(f"{path} declares an array of shape {str(shape)[:60]} in {size} bytes; build it again")


Shapes = Mapping[str, tuple[int | str, ...]]


def check_shapes(path: str | Path, arrays: Mapping[str, np.ndarray], shapes: Shapes) -> None:
    """Arrays of finite numbers (or text) of these shapes; a word stands for any size, the same wherever it stands."""
    sizes: dict[str, int] = {}
    for key, shape in shapes.items():
        array = arrays.get(key)
        fits = array is not None and array.ndim == len(shape) and (array.dtype.kind != "f" or np.isfinite(array).all())
        if array is not None and fits and array.dtype.kind in "iufU":
            wanted = [
                s if isinstance(s, int) else sizes.setdefault(s, n) for s, n in zip(shape, array.shape, strict=True)
            ]
            fits = list(array.shape) == wanted
        if array is None or not fits or array.dtype.kind not in "iufU":
            raise InputError(f"{path} has no statistics {key} that could be used; build it again")
