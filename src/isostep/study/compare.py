"""Run a plan: every arm with every seed, what is stored is not computed again; then the comparison from the JSON alone.

`run_plan` computes, `load_study` reads, `compare_arms` makes the statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isostep import __version__
from isostep.base.errors import InputError
from isostep.base.files import read_json, write_json
from isostep.model.lookup import load_model
from isostep.model.model import Model
from isostep.run.write import versions
from isostep.sampling.calibrate import KNOBS, prepare
from isostep.settings.schema import SamplerSettings, resolve
from isostep.study.cell import TIMES, at_time, draw, is_complete, measure, write_cell_run
from isostep.study.plan import DEFAULT_METRICS, Plan
from isostep.study.reference import Found, find_reference
from isostep.study.significance import Better, holm, paired, spread
from isostep.study.store import FORMAT, Store, fingerprint, key_of

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Study:
    """What a folder holds: the record, and the finished cells of every arm by seed."""

    record: dict[str, Any]
    cells: list[dict[int, dict[str, Any]]]
    store: Store

    @property
    def plan(self) -> Plan:
        return Plan.model_validate(self.record["plan"])

    @property
    def metrics(self) -> list[str]:
        return list(self.record["metrics"])

    @property
    def better(self) -> dict[str, Better]:
        out: dict[str, Better] = {}
        for arm in self.cells:
            for cell in arm.values():
                out |= cell["better"]
        return out

    def path(self, arm: int) -> dict[str, Any] | None:
        """Trace and pictures of an arm's recorded seed."""
        for cell in self.cells[arm].values():
            if record := self.store.read_path(cell["run"]):
                return {**record, "metrics": cell["path_metrics"]}
        return None


def run_plan(plan: Plan, out: str | Path, model: Model | None = None, tell: Tell | None = None) -> Study:
    """Compute what is missing of a plan in the folder `out`; seeds run in the outer loop, so pairs come early."""
    model = load_model(plan.model, plan.weights) if model is None else model
    store = Store(Path(out))
    found = find_reference(plan.reference or model.info.dataset, plan.kernel)
    metrics = plan.metrics or DEFAULT_METRICS[model.info.kind]
    identity = fingerprint(model)
    resolved = [_settings(model, arm.chosen, arm.calls) for arm in plan.arms]
    runs = [
        {seed: _run_inputs(identity, settings, seed, plan, seed == plan.seeds[0]) for seed in plan.seeds}
        for settings, _ in resolved
    ]
    keys = [{seed: _cell_key(inputs, found, metrics) for seed, inputs in row.items()} for row in runs]
    record = _study_record(plan, model, identity, found, metrics, resolved, keys)
    store.write_study(record)
    for seed in plan.seeds:
        for k, (settings, _) in enumerate(resolved):
            if store.read_cell(keys[k][seed]) is not None:
                continue
            if tell:
                tell(f"{plan.arms[k].name}, seed {seed}")
            run = key_of(runs[k][seed])
            if not is_complete(store.run(run)):
                result = draw(model, settings, seed, plan.n, plan.batch_size, plan.noise, runs[k][seed]["record"])
                write_cell_run(store.run(run), result, plan.batch_size, plan.model)
            write_json(store.cell(keys[k][seed]), _cell(store, run, seed, found, metrics))
    return _collect(record, store)


def load_study(out: str | Path) -> Study:
    """A study folder, also an unfinished one."""
    store = Store(Path(out))
    return _collect(store.read_study(), store)


def _collect(record: dict[str, Any], store: Store) -> Study:
    cells = []
    for arm in record["arms"]:
        read = {int(seed): store.read_cell(key) for seed, key in arm["cells"].items()}
        cells.append({seed: cell for seed, cell in read.items() if cell is not None})
    if not any(cells):
        raise InputError(f"{store.folder} has no finished arm yet; run its command again: {record['plan']['command']}")
    return Study(record, cells, store)


def compare_arms(study: Study) -> dict[str, Any]:
    """Means, spreads and paired differences as plain data."""
    plan, better = study.plan, study.better
    arms = []
    for k, arm in enumerate(plan.arms):
        cells = study.cells[k]
        entry: dict[str, Any] = {"name": arm.name, "budget": arm.calls, "note": study.record["arms"][k]["note"]}
        entry["baseline"] = plan.arms[plan.baselines[k]].name
        entry["seeds"] = sorted(cells)
        for quantity in ("calls", "steps", "seconds"):
            entry[quantity] = asdict(spread([c[quantity] for c in cells.values()])) if cells else None
        entry["metrics"] = {
            name: _metric(study.cells[plan.baselines[k]], cells, name, better[name], k != plan.baselines[k])
            for name in study.metrics
            if name in better
        }
        arms.append(entry)
    tests = [m["test"] for entry in arms for m in entry["metrics"].values() if m["test"] and m["test"]["p"] is not None]
    for test, p in zip(tests, holm([test["p"] for test in tests]), strict=True):
        test["p_holm"] = p
    return {"title": plan.title, "n": plan.n, "better": better, "arms": arms, "tests": len(tests)}


def _metric(first: dict, cells: dict, name: str, better: Better, against: bool) -> dict[str, Any]:
    values = {seed: cell["metrics"][name] for seed, cell in cells.items() if cell["metrics"].get(name) is not None}
    base = {seed: cell["metrics"][name] for seed, cell in first.items() if cell["metrics"].get(name) is not None}
    both = sorted(values.keys() & base.keys())
    test = None
    if against and both:
        test = asdict(paired([base[s] for s in both], [values[s] for s in both], better))
    return {"values": values, **(asdict(spread(list(values.values()))) if values else {"n": 0}), "test": test}


def _settings(model: Model, chosen: dict, calls: int | None) -> tuple[SamplerSettings, str]:
    """An arm's settings with everything measured filled in, and what a budget came to."""
    settings = prepare(model, resolve(model.info.sampler, **{"clock": "batch", **chosen}), calls)
    if calls is None:
        return settings, ""
    knob = KNOBS.get(settings.schedule)
    if knob is None:
        each = settings.make_solver().calls_per_step
        return settings, f"{settings.steps} steps of {each} call{'s' * (each > 1)}"
    value = getattr(settings, knob.table)[knob.name]
    return settings, f"{knob.name} {value:.4g}, found on a pilot for {calls} calls"


def _run_inputs(identity: str, settings: SamplerSettings, seed: int, plan: Plan, record: bool) -> dict[str, Any]:
    """Everything that decides a run's graphs."""
    return {
        "model": identity,
        "settings": settings.model_dump(mode="json"),
        "seed": seed,
        "n": plan.n,
        "batch_size": plan.batch_size,
        "noise": plan.noise,
        "record": record,
        "isostep": __version__,
    }


def _cell_key(inputs: dict[str, Any], found: Found, metrics: tuple[str, ...]) -> str:
    return key_of([inputs, found.sha256, found.kernel, list(metrics)])


def _cell(store: Store, run: str, seed: int, found: Found, metrics: tuple[str, ...]) -> dict[str, Any]:
    folder = store.run(run)
    summary = read_json(folder / "run.json")["summary"]
    values, better = measure(folder, found, metrics)
    along = [t for t in TIMES if at_time(folder, t).is_dir()]
    return {
        "format": FORMAT,
        "run": run,
        "seed": seed,
        "metrics": values,
        "better": better,
        "calls": summary["calls_mean"],
        "steps": summary["steps_mean"],
        "seconds": summary["seconds"],
        "unfinished": summary["graphs"] - summary["done"],
        "path_metrics": {f"{t:.2f}": measure(at_time(folder, t), found, metrics)[0] for t in along},
    }


def _study_record(plan, model, identity, found, metrics, resolved, keys) -> dict[str, Any]:
    info = model.info
    return {
        "plan": plan.model_dump(mode="json"),
        "model": {
            "name": info.name,
            "kind": info.kind,
            "family": info.family,
            "dataset": info.dataset,
            "weights": info.weights,
            "source": info.provenance.source,
            "fingerprint": identity,
        },
        "reference": {"name": found.name, "sha256": found.sha256, "kernel": found.kernel},
        "metrics": list(metrics),
        "arms": [
            {
                "name": arm.name,
                "settings": settings.model_dump(mode="json"),
                "note": note,
                "cells": {str(seed): key for seed, key in row.items()},
            }
            for arm, (settings, note), row in zip(plan.arms, resolved, keys, strict=True)
        ],
        "versions": versions(),
    }
