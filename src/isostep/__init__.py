"""Isostep: equal-information sampling for graph diffusion models."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isostep.control.stepper import DvsStepper
    from isostep.loop import integrate
    from isostep.metric.evaluate import evaluate
    from isostep.model.lookup import load_model
    from isostep.model.own import wrap
    from isostep.run.engine import sample_run
    from isostep.sampling.run import SampleResult, sample
    from isostep.state import GraphState

    __version__: str

__all__ = [
    "DvsStepper",
    "GraphState",
    "SampleResult",
    "evaluate",
    "integrate",
    "load_model",
    "sample",
    "sample_run",
    "wrap",
]


_HOMES = {
    "DvsStepper": "isostep.control.stepper",
    "GraphState": "isostep.state",
    "SampleResult": "isostep.sampling.run",
    "evaluate": "isostep.metric.evaluate",
    "integrate": "isostep.loop",
    "load_model": "isostep.model.lookup",
    "sample": "isostep.sampling.run",
    "sample_run": "isostep.run.engine",
    "wrap": "isostep.model.own",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import isostep` and `isostep --help` stay quick."""
    if name == "__version__":
        return metadata.version("isostep")
    if name not in _HOMES:
        raise AttributeError(f"module 'isostep' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
