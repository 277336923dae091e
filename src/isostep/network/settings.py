"""Reading a network's constructor settings, which come from files: each value is checked before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isostep.base.errors import InputError

MAX_WIDTH = 65_536  # of one layer
MAX_LAYERS = 256


def entry(settings: Mapping[str, Any], key: str) -> Any:
    """The value of `key`, which must be there."""
    if not isinstance(settings, Mapping) or key not in settings:
        found = ", ".join(map(repr, settings)) if isinstance(settings, Mapping) else repr(settings)[:60]
        raise InputError(f"network settings lack {key!r}; found: {found[:200]}")
    return settings[key]


def whole(settings: Mapping[str, Any], key: str, limit: int = MAX_WIDTH) -> int:
    """A whole number from 1 to `limit`."""
    value = entry(settings, key)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise InputError(f"network setting {key!r} must be a whole number from 1 to {limit}, got {repr(value)[:60]}")
    return value


def positive(settings: Mapping[str, Any], key: str) -> float:
    """A finite number above 0."""
    value = entry(settings, key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise InputError(f"network setting {key!r} must be a number above 0, got {repr(value)[:60]}")
    return value


def choice(settings: Mapping[str, Any], key: str, known: tuple[str, ...]) -> str:
    """One of the `known` names."""
    value = entry(settings, key)
    if value not in known:
        raise InputError(f"network setting {key!r} must be one of {', '.join(known)}; got {repr(value)[:60]}")
    return value
