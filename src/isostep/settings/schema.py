"""Sampler settings: which schedule, solver and corrector, with which numbers. Frozen, checked, plain data.

They come from three layers, later ones winning: the library's defaults, the model's preset, the user's choice
(`settings/resolve.py`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from isostep.base.schema import Frozen


class DvsPreset(Frozen):
    """DVS constants of one (model, dataset) row; gamma depends on the solver."""

    kappa: float = 1.0
    gamma: float = 0.22
    gamma_heun: float | None = None
    active: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    ema_start: Literal["zero", "first"] = "zero"

    def options(self, solver: str) -> dict[str, Any]:
        heun = solver.startswith("heun") and self.gamma_heun is not None
        return {
            "kappa": self.kappa,
            "gamma": self.gamma_heun if heun else self.gamma,
            "active": self.active,
            "ema_start": self.ema_start,
        }


class CorrectorPreset(Frozen):
    snr: float = Field(gt=0)
    scale: float = Field(ge=0)


class AutoChoice(Frozen):
    """One answer of `auto`: the combination that did best with so many network calls per graph (`isostep tune`)."""

    calls: int = Field(ge=1, le=10_000_000)
    schedule: str = "cosine"
    solver: str = "exponential-2"
    corrector: Literal["none", "langevin"] | None = None  # None: as in the rest of the preset
    schedule_options: dict[str, Any] = Field(default_factory=dict)
    solver_options: dict[str, Any] = Field(default_factory=dict)
    origin: str = ""  # what measured it on this model; empty: nobody did


class SamplerPreset(Frozen):
    """What a model's card says about sampling from it."""

    steps: int = Field(default=1000, ge=1, le=10_000_000)
    solver: str = "euler"
    corrector: CorrectorPreset | None = None
    weights: Literal["raw", "ema"] = "ema"
    released_solver: str | None = None  # what the released program samples with, on its own grid
    dvs: DvsPreset = DvsPreset()
    auto: tuple[AutoChoice, ...] = ()  # measured choices by number of calls

    def schedule_options(self, schedule: str, solver: str) -> dict[str, Any]:
        """The preset's table of that schedule's name."""
        table = getattr(self, schedule, None)
        return table.options(solver) if isinstance(table, DvsPreset) else {}


class SamplerSettings(Frozen):
    """Everything that decides a graph besides model, seed and index (and, with `clock="batch"`, its batch)."""

    schedule: str = "uniform"
    steps: int = Field(default=1000, ge=1, le=10_000_000)
    solver: str = "euler"
    corrector: Literal["none", "langevin"] = "none"
    snr: float = Field(default=0.1, gt=0)
    scale: float = Field(default=0.7, ge=0)
    clock: Literal["batch", "graph"] = "graph"
    schedule_options: dict[str, Any] = Field(default_factory=dict)
    solver_options: dict[str, Any] = Field(default_factory=dict)
    max_steps: int = Field(default=100_000, ge=1)
