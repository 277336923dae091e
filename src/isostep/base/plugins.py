"""What other packages bring: families of models (with items of their own), as entry points of one group."""

from __future__ import annotations

from importlib import metadata

FAMILIES = "isostep.families"


def entry_points() -> dict[str, metadata.EntryPoint]:
    """By name; `load()` imports the package."""
    return {point.name: point for point in metadata.entry_points(group=FAMILIES)}
