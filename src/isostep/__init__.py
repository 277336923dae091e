"""Isostep: equal-information sampling for graph diffusion models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from isostep.control.stepper import DvsStepper
    from isostep.loop import integrate
    from isostep.metric.evaluate import evaluate
    from isostep.model.lookup import load_model
    from isostep.sampling.run import SampleResult, sample
    from isostep.state import GraphState

_HOMES = {
    "DvsStepper": "isostep.control.stepper",
    "GraphState": "isostep.state",
    "SampleResult": "isostep.sampling.run",
    "evaluate": "isostep.metric.evaluate",
    "integrate": "isostep.loop",
    "load_model": "isostep.model.lookup",
    "sample": "isostep.sampling.run",
}

__all__ = ["DvsStepper", "GraphState", "SampleResult", "evaluate", "integrate", "load_model", "sample"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import isostep` and `isostep --help` stay quick."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'isostep' has no attribute {name!r}")
