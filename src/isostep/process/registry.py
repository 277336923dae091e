"""Processes by name, and made from settings: plain data, as cards and configurations hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isostep.base.errors import InputError
from isostep.process.base import Process
from isostep.process.bridge import Bridge
from isostep.process.score_sde import VE, VP, SubVP

PROCESSES = {"VP": VP, "VE": VE, "subVP": SubVP, "bridge": Bridge}
MAX_NUMBER = 1e6


def make_process(settings: Mapping[str, Any]) -> Process:
    """A process from its settings, such as {"type": "VP", "beta_min": 0.1, "beta_max": 1.0}."""
    options = dict(settings)
    kind = options.pop("type", None)
    if not isinstance(kind, str) or kind not in PROCESSES:
        raise InputError(f"unknown process type {str(kind)[:60]!r}; choose one of: {', '.join(PROCESSES)}")
    known = PROCESSES[kind].settings
    if unknown := sorted(options.keys() - set(known)):
        raise InputError(f"process {kind} has no setting {unknown[0]!r}; it takes: {', '.join(known)}")
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_NUMBER:
            raise InputError(
                f"process {kind}: {name} must be a number of at most {MAX_NUMBER:g}, got {str(value)[:60]!r}"
            )
    return PROCESSES[kind](**options)
