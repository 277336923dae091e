"""Isostep: sampling for graph diffusion models with few network calls."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isostep.control.stepper import DvsStepper
    from isostep.loop import integrate
    from isostep.metric.evaluate import evaluate
    from isostep.model.lookup import load_model
    from isostep.model.own import wrap
    from isostep.reporting.functions import compare, report, sweep, tune
    from isostep.run.engine import sample_run, save_result
    from isostep.run.loaded import load_run
    from isostep.sampling.run import SampleResult, sample
    from isostep.state import GraphState

    __version__: str

__all__ = [
    "DvsStepper",
    "GraphState",
    "SampleResult",
    "compare",
    "evaluate",
    "integrate",
    "load_model",
    "load_run",
    "report",
    "sample",
    "sample_run",
    "save_result",
    "sweep",
    "tune",
    "wrap",
]


_HOMES = {
    "DvsStepper": "isostep.control.stepper",
    "GraphState": "isostep.state",
    "SampleResult": "isostep.sampling.run",
    "compare": "isostep.reporting.functions",
    "evaluate": "isostep.metric.evaluate",
    "integrate": "isostep.loop",
    "load_model": "isostep.model.lookup",
    "load_run": "isostep.run.loaded",
    "report": "isostep.reporting.functions",
    "sample": "isostep.sampling.run",
    "sample_run": "isostep.run.engine",
    "save_result": "isostep.run.engine",
    "sweep": "isostep.reporting.functions",
    "tune": "isostep.reporting.functions",
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
