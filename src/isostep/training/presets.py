"""Training configurations that ship with the package."""

from __future__ import annotations

from pathlib import Path

from isostep.base.errors import InputError
from isostep.base.files import packaged


def names() -> list[str]:
    """Names that `isostep train` knows without a file."""
    return list(packaged("train"))


def find(config: str) -> Path:
    """A configuration file: the path given, else the preset of that name."""
    path = Path(config)
    if path.suffix == ".toml" or path.is_file():
        return path
    if config not in names():
        raise InputError(f"no preset {config!r}; give a .toml file or one of: {', '.join(names())}")
    return packaged("train")[config]
