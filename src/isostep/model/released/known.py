"""Released files that are known by their sha256, and the folder where fetched ones are kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from isostep.base.cache import cache_folder, data_folders
from isostep.base.errors import InputError
from isostep.base.files import PACKAGE, read_toml, sha256


@dataclass(frozen=True)
class Known:
    """One row of `presets/known.toml`; `path` is relative to the table's site."""

    name: str
    path: str
    sha256: str
    bytes: int
    preset: str

    @property
    def file(self) -> str:
        return f"{self.name}.pth"


@cache
def known_table() -> tuple[str, dict[str, Known]]:
    """The site that has the files, and the files by name."""
    table = read_toml(PACKAGE / "presets" / "known.toml")
    return table["site"], {name: Known(name, **row) for name, row in table["models"].items()}


def known_file(digest: str) -> Known | None:
    """The known file with this sha256."""
    return next((known for known in known_table()[1].values() if known.sha256 == digest), None)


def models_folder() -> Path:
    """Where fetched files go, and where models are looked up by name."""
    return cache_folder() / "models"


def fetched(known: Known, folder: Path | None = None) -> Path | None:
    """The file if it is there and whole: in `folder`, else where fetched files go and in ISOSTEP_DATA."""
    for place in (folder,) if folder else (models_folder(), *data_folders()):
        path = place / known.file
        try:
            if path.is_file() and path.stat().st_size == known.bytes and sha256(path) == known.sha256:
                return path
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    return None
