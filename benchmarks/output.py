"""How a benchmark prints what it found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def show(found: Mapping[str, Any] | Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """As JSON, or for people: one result with a line for each of its values, several with a line each."""
    if as_json:
        print(json.dumps(found, indent=2))
    elif isinstance(found, Mapping):
        for key, value in found.items():
            print(f"{key:28} {_text(value)}")
    else:
        for row in found:
            print("  ".join(f"{key} {_text(value)}" for key, value in row.items()))


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
