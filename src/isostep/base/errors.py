"""Errors a user can cause. The message is one line: cause, value seen, remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from types import ModuleType


class IsostepError(Exception):
    """Base of every error that Isostep raises on purpose; the command line prints it and exits with 2."""


class InputError(IsostepError, ValueError):
    """A bad argument, file, configuration or model output."""


class MissingPackageError(IsostepError, ImportError):
    """An optional package is needed; the message carries the pip line."""


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional `module`, or say which extra brings it."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"{purpose} needs the package {module!r}, which is not installed: pip install 'isostep[{extra}]'"
        ) from error


@contextlib.contextmanager
def located(place: str) -> Generator[None, None, None]:
    """Put `place` before the message of an InputError raised inside."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from error
