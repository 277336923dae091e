"""The constants of an arm as they are in use, and where the authors' program was followed instead of the paper's text.

The paper's Tables 6 and 7 are constants: they are printed beside those that the library's presets hold.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from isostep.base.schema import Frozen
from isostep.control.dvs import Dvs
from isostep.model.lookup import embedded_names, load_model
from isostep.model.presets import find_preset
from isostep.settings.resolve import build
from isostep.settings.schedules import PAPER
from isostep.settings.schema import DvsPreset, SamplerSettings

SHOWN = (
    "kappa",
    "gamma",
    "alpha",
    "beta",
    "dt_base",
    "dt_min",
    "dt_max",
    "eps_num",
    "eps_bound",
    "active",
    "ema_start",
)


class ConstantRow(Frozen):
    """A row of Table 7."""

    family: str
    dataset: str
    kappa: float
    gamma: float
    gamma_heun: float | None = None
    active: tuple[tuple[float, float], ...]


class ConstantTable(Frozen):
    """`presets/paper/T6.toml` and `T7.toml`."""

    title: str
    notes: tuple[str, ...] = ()
    common: dict[str, float] = Field(default_factory=dict)
    rows: tuple[ConstantRow, ...] = ()


Cells = tuple[str, ...]


def constants_of(settings: SamplerSettings) -> dict[str, Any]:
    """Everything that decides an arm's steps, as its controller has it."""
    controller = build(settings).controller
    corrector = f"langevin {settings.snr:g}, {settings.scale:g}" if settings.corrector == "langevin" else "none"
    found: dict[str, Any] = {
        "schedule": settings.schedule,
        "solver": settings.solver,
        "corrector": corrector,
        "base steps": settings.steps,
    }
    if isinstance(controller, Dvs):
        low, high = controller.bounds
        values = {**vars(controller), "dt_min": low, "dt_max": high}
        found |= {name: values[name] for name in SHOWN}
    elif settings.schedule_options:
        found |= {name: value for name, value in settings.schedule_options.items() if name != "times"}
    return found


def departures(arms: list[dict[str, Any]], theirs: str | None, weights: str) -> list[str]:
    """Where text and program differ, which of the two these arms follow. `theirs`: weights that the program samples."""
    notes = []
    if any(arm["solver"] == "heun" for arm in arms):
        notes.append("Heun predicts without noise, as the authors' code; the paper's Algorithm 3 adds it (heun-noisy).")
    dvs = [arm for arm in arms if arm["schedule"] == PAPER]
    if any(arm["ema_start"] == "first" for arm in dvs):
        notes.append("The average starts from the first V, as the authors' code for generic graphs; the paper: from 0.")
    if any(arm["eps_bound"] == Dvs.eps_bound for arm in dvs):
        notes.append("A run ends within 1e-6 of T, as in the paper; the authors' code stops 2e-3 before it.")
    if theirs not in (None, weights):
        notes.append(
            f"{weights.upper()} weights, as the configuration asks; the authors' code takes the {theirs} ones."
        )
    return notes


def constant_rows(table: ConstantTable) -> tuple[Cells, list[Cells]]:
    """Header and rows: the paper's constants, and those in use."""
    if table.common:
        used = constants_of(SamplerSettings(schedule=PAPER, steps=round(1 / table.common["dt_base"])))
        return ("constant", "paper", "in use"), [
            (name, f"{value:g}", f"{used[name]:g}") for name, value in table.common.items()
        ]
    rows = []
    for row in table.rows:
        paper = DvsPreset(kappa=row.kappa, gamma=row.gamma, gamma_heun=row.gamma_heun, active=row.active)
        rows.append((f"{row.family}, {row.dataset}", "paper", *_cells(paper, "")))
        name = f"{row.family}-{row.dataset}"
        sampler = find_preset(name).sampler
        rows.append(("", f"preset {name}", *_cells(sampler.dvs, sampler.dvs.ema_start)))
        if (small := f"{name}-small") in embedded_names():
            dvs = load_model(small).info.sampler.dvs
            rows.append(("", f"model {small}", *_cells(dvs, dvs.ema_start)))
    return ("row", "", "kappa", "gamma, Euler", "gamma, Heun", "active range", "average starts from"), rows


def _cells(dvs: DvsPreset, start: str) -> Cells:
    heun = "" if dvs.gamma_heun is None else f"{dvs.gamma_heun:g}"
    active = " and ".join(f"[{a:g}, {b:g}]" for a, b in dvs.active)
    return f"{dvs.kappa:g}", f"{dvs.gamma:g}", heun, active, {"first": "first V", "zero": "0"}.get(start, "")
