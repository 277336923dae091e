"""A reproduced table or figure of the paper: its values beside ours, and what is not comparable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isostep.base.files import write_json
from isostep.reporting.output import write_outputs, write_tables
from isostep.reporting.plots import parts as variation_parts
from isostep.reporting.plots import steps_until
from isostep.reporting.tables import ARROW, Table, difference_table, interval_text, number, signed
from isostep.study.record import Study

if TYPE_CHECKING:  # it samples, so it needs torch
    from isostep.study.reproduce import Part, Reproduced, Target


@dataclass(frozen=True)
class PartTables:
    study: Study
    comparison: dict[str, Any]
    tables: list[Table]


def write_reproduced(done: Reproduced) -> list[PartTables]:
    """Write `stem`.md, .tex and .json, and the outputs of every part."""
    parts = [_part(done.target, part, study, done.left_out) for part, study in done.parts]
    write_tables(done.stem, [table for part in parts for table in part.tables])
    write_json(done.stem.with_suffix(".json"), _record(done, parts))
    return parts


def _part(target: Target, part: Part, study: Study, left_out: tuple[str, ...]) -> PartTables:
    comparison = write_outputs(study, plots=bool(target.show))
    notes = (*study.plan.notes, *(f"Left out: {reason}." for reason in left_out))
    title = target.title if len(target.parts) == 1 else f"{target.title} ({part.dataset})"
    if target.layout == "timing":
        return PartTables(study, comparison, [_timing(title, study, comparison, notes)])
    tables = [_beside_paper(title, part, study, comparison, notes)]
    if "convergence" in target.show:
        tables.append(_convergence(study))
    if target.show:
        tables.append(_path_numbers(study))
    return PartTables(study, comparison, [*tables, _differences(part, comparison)])


def _beside_paper(title: str, part: Part, study: Study, comparison: dict[str, Any], notes: tuple[str, ...]) -> Table:
    """Two rows per arm: ours and the paper's."""
    better = comparison["better"]
    rows = []
    for arm, published in zip(comparison["arms"], part.arms, strict=True):
        ours = [_value(arm["metrics"][name]) for name in better]
        rows.append((arm["name"], "ours", number(arm["calls"]["mean"]), *ours))
        if published.paper.keys() & {*better, "calls"}:
            paper = [_published(published.paper.get(name), published.paper_sd.get(name)) for name in better]
            calls = published.paper.get("calls")
            rows.append((arm["name"], "paper", "" if calls is None else number(calls), *paper))
    seeds, kind = len(study.plan.seeds), study.record.model.kind
    head = f"{title}: {study.record.model.name}, {study.plan.n} {kind}s, {seeds} seed{'s' * (seeds != 1)}"
    header = ("arm", "", "calls", *(f"{name} {ARROW[way]}" for name, way in better.items()))
    return Table(head, header, tuple(rows), notes, text_columns=2)


def _differences(part: Part, comparison: dict[str, Any]) -> Table:
    """Ours, with the paper's tests below where it has any."""
    table = difference_table(comparison)
    rows = [
        (f"{test.arm} (paper)", test.metric, test.verdict, signed(test.difference), interval_text(test.low, test.high),
         test.p, "", str(test.pairs))
        for test in part.paper_tests if test.metric in comparison["better"]
    ]  # fmt: skip
    return replace(table, rows=(*table.rows, *rows))


def _value(metric: dict[str, Any]) -> str:
    if not metric["n"]:
        return "not defined"
    return number(metric["mean"], 3) + (f" ± {number(metric['sd'], 2)}" if metric.get("sd") is not None else "")


def _published(value: float | None, sd: float | None = None) -> str:
    if value is None:
        return ""
    text = f"{value:.4f}".rstrip("0").rstrip(".") if value else "0.0000"
    return text if sd is None else f"{text} ± {number(sd, 2)}"


def _timing(title: str, study: Study, comparison: dict[str, Any], notes: tuple[str, ...]) -> Table:
    """Seconds a step, steps and seconds in all; changes are to the first arm."""
    rows = []
    ours = [(arm["seconds"]["mean"], arm["steps"]["mean"]) for arm in comparison["arms"]]
    theirs = [(arm.paper.get("total_seconds"), arm.paper.get("calls")) for arm in study.plan.arms]
    for k, arm in enumerate(study.plan.arms):
        rows.append((arm.name, "ours", *_times(*ours[k], None if k == 0 else ours[0])))
        if theirs[k][0] is not None:
            rows.append((arm.name, "paper", *_times(*theirs[k], None if k == 0 else theirs[0])))
    header = ("arm", "", "seconds a step", "change", "steps", "seconds in all", "change")
    extra = "The first seed also records its trace, which costs a little time in every arm."
    return Table(f"{title}: {study.record.model.name}", header, tuple(rows), (extra, *notes), text_columns=2)


def _times(total: Any, steps: Any, first: tuple[Any, Any] | None) -> tuple[str, ...]:
    each, change = total / steps, ("", "")
    if first is not None:
        change = tuple(
            f"{100 * (now / then - 1):+.1f} %" for now, then in ((each, first[0] / first[1]), (total, first[0]))
        )
    return number(each), change[0], number(steps), number(total), change[1]


def _convergence(study: Study) -> Table:
    """Metrics of the denoised graphs at the recorded times, with the steps taken until then."""
    rows, header = [], ("arm", "")
    for k, arm in enumerate(study.plan.arms):
        if found := study.recorded(k):
            trajectory, along = found
            header = ("arm", "", *(f"t = {t:.1f}" for t in along))
            rows.append((arm.name, "step", *(f"{step:.0f}" for step in steps_until(trajectory.trace, list(along)))))
            rows += [(arm.name, m, *(number(v.get(m)) or "-" for v in along.values())) for m in study.metrics]
    return Table("Metrics along the trajectory, first seed", header, tuple(rows), text_columns=2)


def _path_numbers(study: Study) -> Table:
    """What the curves show, in numbers, from the first seed's trace."""
    rows = []
    for k, arm in enumerate(study.plan.arms):
        if found := study.recorded(k):
            trace = found[0].trace
            ds2 = np.array([v for v in trace["ds2"] if v], float)
            v_f, v_g = variation_parts(trace)
            fine = (v_g > 0) & np.isfinite(v_f)
            ratio = float(np.mean(v_f[fine] / v_g[fine])) if fine.any() else None
            dt = np.array([v for v in trace["dt"] if v], float)
            cells = (len(trace["t"]), dt.min(), dt.max(), np.median(ds2), ds2.max(), ds2.max() / np.median(ds2), ratio)
            rows.append((arm.name, *(number(None if c is None else float(c)) for c in cells)))
    header = ("arm", "steps", "least dt", "most dt", "median ds2", "most ds2", "most / median", "mean V_f / V_g")
    return Table("Along the trajectory, first seed", header, tuple(rows))


def _record(done: Reproduced, parts: list[PartTables]) -> dict[str, Any]:
    return {
        "target": done.name,
        "title": done.target.title,
        "notes": list(done.target.notes),
        "left_out": list(done.left_out),
        "parts": [
            {
                "folder": part.study.store.folder.name,
                "model": part.study.record.model.model_dump(),
                "notes": list(part.study.plan.notes),
                "paper": {arm.name: arm.paper for arm in part.study.plan.arms},
                "comparison": part.comparison,
            }
            for part in parts
        ],
    }
