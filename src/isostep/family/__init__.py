"""Families of models by name: each module here but `base` holds one record, `FAMILY`; other packages give theirs as
entry points of the group `isostep.families`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from isostep.base.errors import InputError
from isostep.base.plugins import FAMILIES, entry_points
from isostep.family.base import Family, ReleasedFormat, Training

__all__ = ["Family", "ReleasedFormat", "Training", "families", "find_family"]


@cache
def find_family(name: str) -> Family:
    """The record of a family."""
    if name in _own():
        return importlib.import_module(f"{__name__}.{name}").FAMILY
    given = entry_points()
    if name not in given:
        raise InputError(f"unknown family {name[:60]!r}; known: {', '.join([*_own(), *given])}")
    family = given[name].load()
    if not isinstance(family, Family) or family.name != name:
        raise InputError(f"the entry point {given[name].value} of {FAMILIES} is not the record of a family {name!r}")
    return family


def families() -> list[Family]:
    """All of them, ours first."""
    return [find_family(name) for name in dict.fromkeys((*_own(), *entry_points()))]


def _own() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__) if module.name != "base"]
