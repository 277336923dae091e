"""The versions that numbers depend on."""

from __future__ import annotations

import contextlib
import hashlib
import platform
from functools import lru_cache
from importlib import metadata

from isostep.base.files import PACKAGE

ELSEWHERE = ("cli", "reporting", "training")  # rooms that decide no graph and no metric


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("isostep", "torch", "numpy", "rdkit", "numba"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@lru_cache(maxsize=1)
def code_digest() -> str:
    """A digest of the program that decides graphs and metrics: a developer's changes do not raise the version."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] not in ELSEWHERE:
            digest.update(str(path.relative_to(PACKAGE)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
