"""Files written whole or not at all: write beside the target, then rename, then the folder is synchronised.

A rename is relied on to put either the old or the new file in place; it is on disk when `replacing` returns.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import gzip
import hashlib
import json
import os
import tempfile
import tomllib
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, Any

from isostep.base.errors import InputError
from isostep.base.limits import VARIABLE, limit, within

PACKAGE = Path(__file__).resolve().parent.parent
FREE_GROWTH = 2**20  # bytes that any compressed file may unpack to
TEMPORARY = ".isostep.tmp"  # how our unfinished files end


@contextlib.contextmanager
def replacing(path: str | Path) -> Generator[Path, None, None]:
    """Yield a temporary path in the target's folder; on success it replaces `path`, on failure it is removed.

    A link is followed; what is there and is no regular file (a device, a pipe, a folder) is refused.
    """
    asked = path
    try:
        path = Path(os.path.realpath(path))
        if path.is_symlink() or (path.exists() and not path.is_file()):  # a link that is left leads to itself
            raise InputError(f"cannot write {asked}: it is not a file; choose another name")
        make_folder(path.parent)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=TEMPORARY, dir=path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose a folder you can write to") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    finally:
        with contextlib.suppress(OSError):  # what went wrong before is the message
            temporary.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, on disk when this returns."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Put a folder's names on disk, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems without it
            raise
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Delete a file that may be gone already."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot remove {path}: {error.strerror}; move it away and repeat the command") from error


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any, indent: int | None = 2) -> None:
    """Write `value` as JSON to `path` atomically; NaN and infinity are refused, for other readers' sake."""
    write_text(path, json.dumps(value, indent=indent, allow_nan=False) + "\n")


def read_json(path: str | Path) -> Any:
    """Read a JSON file of at most the allowed size."""
    path = Path(path)
    try:
        size = path.stat().st_size
        within("json_bytes", size, f"{path} has {size:,} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the path") from error
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:  # also bad UTF-8, and integers of thousands of digits
        raise InputError(f"{path} is not valid JSON: {error}; restore or delete the file") from error


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file of at most 4 MB."""
    path = Path(path)
    try:
        if path.stat().st_size > 4 * 2**20:
            raise InputError(f"{path} is too large for a settings file")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the path") from error
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # also bad UTF-8, and integers of thousands of digits
        raise InputError(f"{path} is not valid TOML: {error}") from error


def packaged(table: str) -> dict[str, Path]:
    """The TOML files of a folder of `presets`, by name."""
    return {path.stem: path for path in sorted((PACKAGE / "presets" / table).glob("*.toml"))}


def bounded_lines(file: IO[bytes] | gzip.GzipFile, path: str | Path) -> Iterator[bytes]:
    """Lines of an open file; a small compressed file can hold a line, or a number of them, that fills the memory."""
    if isinstance(file, gzip.GzipFile):
        _check_growth(file, path)
    longest = limit("line_bytes")
    while line := file.readline(longest):
        if len(line) >= longest:
            raise InputError(f"{path}: a line has {longest} bytes or more; that is no graph or molecule")
        yield line


def _check_growth(file: gzip.GzipFile, path: str | Path) -> None:
    """Refuse a compressed file that unpacks to too much, before its first line is read: blocks cost less than lines."""
    read, most = 0, FREE_GROWTH + limit("growth") * Path(path).stat().st_size
    while block := file.read(1 << 20):
        read += len(block)
        if read > most:
            raise InputError(
                f"{path} unpacks to more than {limit('growth')} times its size; for a file you trust, set {VARIABLE}"
            )
    file.seek(0)


def numbered_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Lines of a text file (or of a `.gz` of one) with their numbers from 1; blank lines are counted and left out."""
    opener = gzip.open if Path(path).suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            lines = enumerate((line.decode() for line in bounded_lines(file, path)), start=1)
            yield from ((number, line.replace("\r\n", "\n")) for number, line in lines if line.strip())
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason}; check what the file holds") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}; check the file") from error


def csv_fields(line: str) -> list[str]:
    """Fields of one line of a CSV file."""
    try:
        return next(csv.reader([line]), list[str]())
    except csv.Error as error:
        raise InputError(f"not a line of CSV: {error}") from error


def sha256(path: str | Path) -> str:
    """Hex digest of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
