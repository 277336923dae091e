"""Questions about values of unknown type that tell the type checker the answer, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether something has names; here they are always texts."""
    return isinstance(value, Mapping)
