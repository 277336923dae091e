"""The versions that numbers depend on."""

from __future__ import annotations

import platform
from importlib import metadata


def versions() -> dict[str, str]:
    packages = ("isostep", "torch", "numpy", "rdkit")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}}
