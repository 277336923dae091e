"""The paper's tables and figures, each a file in `presets/paper`: what to run, its values, what is not comparable.

A part's model is, in this order: the file the user gives, the released GDSS weights under ISOSTEP_SHARED (or
../shared), the small model embedded for that dataset. A part without a model is left out, and the output says so.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from isostep.errors import InputError
from isostep.files import write_json
from isostep.metric.mmd import Kernel
from isostep.model.presets import read_toml
from isostep.model.zoo import embedded_names, load_model
from isostep.sampler import one_line
from isostep.study.compare import Study, Tell, run_plan
from isostep.study.output import write_outputs, write_tables
from isostep.study.plan import Arm, Plan, parse_seeds
from isostep.study.plots import parts as variation_parts
from isostep.study.tables import ARROW, Table, difference_table, number


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Quick(_Frozen):
    n: int
    seeds: str
    steps: int


class PaperArm(_Frozen):
    name: str
    schedule: str
    solver: str
    options: dict[str, Any] = {}
    paper: dict[str, float] = {}


class Part(_Frozen):
    family: Literal["gdss", "grum"]
    dataset: str
    metrics: tuple[str, ...]
    kernel: Kernel | None = None
    n: int
    paper_n: int | None = None
    arms: tuple[PaperArm, ...]


class Target(_Frozen):
    title: str
    seeds: str
    layout: Literal["values", "timing"]
    show: tuple[str, ...] = ()
    notes: tuple[str, ...]
    quick: Quick
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Options:
    """What the user may change; None takes the target's own."""

    quick: bool = False
    model: str | None = None
    n: int | None = None
    seeds: str | None = None
    steps: int | None = None
    command: str = ""


@dataclass(frozen=True)
class Reproduced:
    """A part that ran: its study, comparison, and the tables with the paper's values."""

    study: Study
    comparison: dict[str, Any]
    tables: list[Table]


def target_names() -> list[str]:
    return sorted(item.name.removesuffix(".toml") for item in _folder().iterdir() if item.name.endswith(".toml"))


def load_target(name: str) -> Target:
    if name not in target_names():
        raise InputError(f"unknown target {name!r}; choose one of {', '.join(target_names())}")
    with resources.as_file(_folder() / f"{name}.toml") as path:
        try:
            return Target.model_validate(read_toml(path))
        except ValidationError as error:
            raise InputError(one_line(error, str(path))) from error


def reproduce(name: str, out: str | Path, options: Options, tell: Tell | None = None) -> list[Reproduced]:
    """Run a target into `out`/<family>-<dataset>; targets that share runs share them there."""
    name = name.upper()
    target = load_target(name)
    done, left_out = [], []
    for part in target.parts:
        model, reason = find_model(part, options.model, target.parts)
        if model is None:
            left_out.append(reason)
            continue
        plan = part_plan(name, target, part, model, options, reason)
        study = run_plan(plan, Path(out) / f"{part.family}-{part.dataset}", tell=tell)
        comparison = write_outputs(study, plots=bool(target.show))
        done.append(Reproduced(study, comparison, _tables(target, part, study, comparison, left_out)))
    if not done:
        raise InputError(left_out[0])
    write_tables(Path(out) / name, [table for result in done for table in result.tables])
    write_json(Path(out) / f"{name}.json", _record(name, target, done, left_out))
    return done


def find_model(part: Part, given: str | None, parts: tuple[Part, ...]) -> tuple[str | None, str]:
    """Which model serves a part, and a note about it; or None, and why."""
    if given is not None:
        dataset = load_model(given).info.dataset
        fits = [p for p in parts if dataset in (p.dataset, f"{p.dataset}-small")]
        if part in fits or (not fits and part == parts[0]):
            note = "" if fits else f"The model was trained on {dataset}, the paper's on {part.dataset}: not comparable."
            return given, note
    if part.family == "gdss":
        file = f"gdss_{part.dataset.replace('-', '_')}.pth"
        for folder in shared_folders():
            if (path := folder / "checkpoints" / "gdss" / file).is_file():
                return str(path), "Released GDSS weights."
        where = f"put the released {file} into checkpoints/gdss under ISOSTEP_SHARED, or name it with --model FILE"
        return None, f"{part.dataset}: no weights found; {where}"
    name = f"grum-{part.dataset}-small"
    if name in embedded_names():
        return name, f"Embedded model {name}, smaller than the paper's: absolute values are not comparable."
    return None, f"{part.dataset}: GruM's weights are needed; name the released file or a model with --model FILE"


def shared_folders() -> list[Path]:
    """ISOSTEP_SHARED, else ../shared beside the current folder or the source tree."""
    if named := os.environ.get("ISOSTEP_SHARED"):
        return [Path(named)]
    tree = Path(__file__).resolve().parents[3]
    return [Path("..") / "shared", *([tree.parent / "shared"] if (tree / "pyproject.toml").is_file() else [])]


def part_plan(name: str, target: Target, part: Part, model: str, options: Options, reason: str) -> Plan:
    quick = target.quick if options.quick else None
    n = options.n or (quick.n if quick else part.n)
    seeds = parse_seeds(options.seeds or (quick.seeds if quick else target.seeds))
    steps = options.steps or (quick.steps if quick else None)
    notes = [note for note in (reason,) if note]
    if quick:
        notes.append(f"Quick: {n} graphs, {len(seeds)} seeds, {steps} base steps; not the paper's setting.")
    elif steps:
        notes.append(f"{steps} base steps instead of the preset's.")
    if part.paper_n and n != part.paper_n:
        notes.append(f"{n} graphs per seed; the paper has {part.paper_n}.")
    arms = []
    for arm in part.arms:
        chosen: dict[str, Any] = {"schedule": arm.schedule, "solver": arm.solver, "steps": steps}
        if arm.options:
            chosen["schedule_options"] = arm.options
        arms.append(Arm(name=arm.name, chosen={k: v for k, v in chosen.items() if v is not None}, paper=arm.paper))
    return Plan(
        title=f"{name}, {Path(model).stem}", model=model, arms=tuple(arms), seeds=seeds, n=n, kernel=part.kernel,
        metrics=_fitting_metrics(model, part.metrics), notes=(*notes, *target.notes), command=options.command,
    )  # fmt: skip


def _fitting_metrics(model: str, metrics: tuple[str, ...]) -> tuple[str, ...] | None:
    """The part's metrics, if the model makes what they measure (a model the user gives may not)."""
    molecules = load_model(model).info.kind == "molecule"
    return metrics if molecules == ("valid" in metrics) else None


def _tables(target: Target, part: Part, study: Study, comparison: dict[str, Any], left_out: list[str]) -> list[Table]:
    notes = (*study.plan.notes, *(f"Left out: {reason}." for reason in left_out))
    if target.layout == "timing":
        return [_timing(target.title, study, comparison, notes)]
    tables = [_beside_paper(f"{target.title} ({part.dataset})", study, comparison, notes)]
    if target.show:
        tables.append(_path_numbers(study))
    return [*tables, difference_table(comparison)]


def _beside_paper(title: str, study: Study, comparison: dict[str, Any], notes: tuple[str, ...]) -> Table:
    """Two rows per arm: ours and the paper's."""
    better = comparison["better"]
    rows = []
    for arm, planned in zip(comparison["arms"], study.plan.arms, strict=True):
        ours = [_value(arm["metrics"][name]) for name in better]
        rows.append((arm["name"], "ours", number(arm["calls"]["mean"]), *ours))
        if planned.paper:
            paper = [_published(planned.paper.get(name)) for name in better]
            calls = planned.paper.get("calls")
            rows.append((arm["name"], "paper", "" if calls is None else number(calls), *paper))
    seeds = len(study.plan.seeds)
    head = f"{title}: {study.record['model']['name']}, {study.plan.n} graphs, {seeds} seed{'s' * (seeds != 1)}"
    header = ("arm", "", "calls", *(f"{name} {ARROW[way]}" for name, way in better.items()))
    return Table(head, header, tuple(rows), notes, text_columns=2)


def _value(metric: dict[str, Any]) -> str:
    if not metric["n"]:
        return "not defined"
    return number(metric["mean"], 3) + (f" ± {number(metric['sd'], 2)}" if metric.get("sd") is not None else "")


def _published(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}".rstrip("0").rstrip(".") if value else "0.0000"


def _timing(title: str, study: Study, comparison: dict[str, Any], notes: tuple[str, ...]) -> Table:
    rows, first = [], None
    for arm, planned in zip(comparison["arms"], study.plan.arms, strict=True):
        total, steps = arm["seconds"]["mean"], arm["steps"]["mean"]
        first = first or (total / steps, total)
        change = [f"{100 * (now / then - 1):+.1f} %" for now, then in zip((total / steps, total), first, strict=True)]
        rows.append((arm["name"], "ours", number(total / steps), change[0], number(steps), number(total), change[1]))
        if p := planned.paper:
            rows.append((arm["name"], "paper", *_published_times(p, study.plan.arms[0].paper)))
    header = ("arm", "", "seconds a step", "change", "steps", "seconds in all", "change")
    extra = "The first seed also records its trace, which costs a little time in every arm."
    return Table(f"{title}: {study.record['model']['name']}", header, tuple(rows), (extra, *notes), text_columns=2)


def _published_times(p: dict[str, float], first: dict[str, float]) -> tuple[str, ...]:
    keys = ("step_seconds", "total_seconds")
    change = [f"{100 * (p[key] / first[key] - 1):+.1f} %" for key in keys]
    return number(p[keys[0]]), change[0], number(p["calls"]), number(p[keys[1]]), change[1]


def _path_numbers(study: Study) -> Table:
    """What the curves show, in numbers, from the first seed's trace."""
    rows = []
    for k, arm in enumerate(study.plan.arms):
        if path := study.path(k):
            trace = path["trace"]
            ds2 = np.array([v for v in trace["ds2"] if v], float)
            v_f, v_g = variation_parts(trace)
            fine = (v_g > 0) & np.isfinite(v_f)
            ratio = float(np.mean(v_f[fine] / v_g[fine])) if fine.any() else None
            dt = np.array([v for v in trace["dt"] if v], float)
            cells = (len(trace["t"]), dt.min(), dt.max(), np.median(ds2), ds2.max(), ds2.max() / np.median(ds2), ratio)
            rows.append((arm.name, *(number(None if c is None else float(c)) for c in cells)))
    header = ("arm", "steps", "least dt", "most dt", "median ds2", "most ds2", "most / median", "mean V_f / V_g")
    return Table("Along the trajectory, first seed", header, tuple(rows))


def _record(name: str, target: Target, done: list[Reproduced], left_out: list[str]) -> dict[str, Any]:
    return {
        "target": name,
        "title": target.title,
        "notes": list(target.notes),
        "left_out": left_out,
        "parts": [
            {
                "folder": result.study.store.folder.name,
                "model": result.study.record["model"],
                "notes": list(result.study.plan.notes),
                "paper": {arm.name: arm.paper for arm in result.study.plan.arms},
                "comparison": result.comparison,
            }
            for result in done
        ],
    }


def _folder():
    return resources.files("isostep") / "presets" / "paper"
