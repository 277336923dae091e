"""The arms of a study against each other: means, spreads and paired differences, as plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from isostep.study.record import Cell, Study
from isostep.study.significance import judge, paired, spread


def compare_arms(study: Study) -> dict[str, Any]:
    """What `comparison.json` holds. One rule for every verdict: p after Holm's correction over all tests."""
    plan, better = study.plan, study.better
    arms = []
    for k, (arm, record, cells) in enumerate(zip(plan.arms, study.record.arms, study.cells, strict=True)):
        base = plan.baselines[k]
        entry: dict[str, Any] = {"name": arm.name, "budget": arm.calls, "note": record.note}
        entry["baseline"] = plan.arms[base].name
        entry["seeds"] = sorted(cells)
        entry["unfinished"] = sum(cell.unfinished for cell in cells.values())
        for quantity in ("calls", "steps", "seconds"):
            values = [getattr(cell, quantity) for cell in cells.values()]
            entry[quantity] = asdict(spread(values)) if values else None
        entry["metrics"] = {name: _metric(study.cells[base], cells, name, k != base) for name in better}
        arms.append(entry)
    tests = [(m["test"], name) for entry in arms for name, m in entry["metrics"].items() if m["test"]]
    count = judge([test for test, _ in tests], [better[name] for _, name in tests])
    bounds = {name: ends for name, ends in study.bounds.items() if name in better}
    undefined = {name: {"cells": cells, "reason": reason} for name, (cells, reason) in study.undefined.items()}
    return {
        "title": plan.title, "n": plan.n, "better": better, "bounds": bounds, "undefined": undefined, "arms": arms,
        "tests": count,
    }  # fmt: skip


def _metric(first: dict[int, Cell], cells: dict[int, Cell], name: str, against: bool) -> dict[str, Any]:
    values, base = _values(cells, name), _values(first, name)
    both = sorted(values.keys() & base.keys())
    test = None
    if against and both:
        test = asdict(paired([base[s] for s in both], [values[s] for s in both]))
    return {"values": values, **(asdict(spread(list(values.values()))) if values else {"n": 0}), "test": test}


def _values(cells: dict[int, Cell], name: str) -> dict[int, float]:
    found = {seed: cell.metrics.get(name) for seed, cell in cells.items()}
    return {seed: value for seed, value in found.items() if value is not None}
