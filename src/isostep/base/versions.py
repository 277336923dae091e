"""The versions that numbers depend on."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("isostep", "torch", "numpy", "rdkit", "numba"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
