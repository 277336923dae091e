"""A reproduced table or figure of the paper: its values beside ours, and what is not comparable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isostep.base.files import write_json
from isostep.reporting.figures import parts as variation_parts
from isostep.reporting.figures import steps_until
from isostep.reporting.output import write_outputs, write_tables
from isostep.reporting.tables import (
    ARROW,
    TEST_HEADER,
    Table,
    caveats,
    difference_table,
    interval_text,
    number,
    paired_cells,
    signed,
)
from isostep.study.controls import against_controls
from isostep.study.record import Study

if TYPE_CHECKING:  # it samples, so it needs torch
    from isostep.study.reproduce import Part, PartResult, Reproduced, Target


@dataclass(frozen=True)
class PartTables:
    """`study` and `comparison` are None for run times."""

    result: PartResult
    tables: list[Table]
    comparison: dict[str, Any] | None = None
    controls: tuple[dict[str, Any], ...] = ()

    @property
    def study(self) -> Study | None:
        return self.result.study


def write_reproduced(done: Reproduced) -> list[PartTables]:
    """Write `stem`.md, .tex and .json, and the outputs of every part."""
    parts = [_part(done.target, result, done.left_out) for result in done.parts]
    write_tables(done.stem, [table for part in parts for table in part.tables])
    write_json(done.stem.with_suffix(".json"), _record(done, parts))
    return parts


def _part(target: Target, result: PartResult, left_out: tuple[str, ...]) -> PartTables:
    part, study = result.part, result.study
    notes = (*result.notes, *(f"Left out: {reason}." for reason in left_out))
    title = target.title if len(target.parts) == 1 else f"{target.title} ({part.dataset})"
    constants = _constants(result.constants)
    if study is None:
        return PartTables(result, [_timing(title, result, notes), constants])
    comparison = write_outputs(study, plots=bool(target.show))
    tables = [_beside_paper(title, part, study, comparison, notes)]
    if "convergence" in target.show:
        tables.append(_convergence(study))
    if target.show:
        tables.append(_path_numbers(study, result.constants))
    controls = tuple(against_controls(study))
    tables += [_differences(part, comparison), _against_controls(controls), constants]
    return PartTables(result, tables, comparison, controls)


def _constants(constants: dict[str, dict[str, Any]]) -> Table:
    rows = [
        (arm, ", ".join(f"{name} {_constant(value)}" for name, value in values.items()))
        for arm, values in constants.items()
    ]
    return Table("Constants in use", ("arm", "constants"), tuple(rows), text_columns=2)


def _constant(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " and ".join(f"[{a:g}, {b:g}]" for a, b in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _against_controls(rows: tuple[dict[str, Any], ...]) -> Table:
    """DVS minus fixed steps with the same number of network calls."""
    lines = tuple((row["arm"], row["control"], row["metric"], *paired_cells(row)) for row in rows)
    note = f"The same network calls on both sides. Holm's correction for these {len(rows)} tests."
    title = "Against fixed steps with the same calls, paired by seed"
    return Table(title, ("arm", "control", "metric", *TEST_HEADER), lines, (note,), text_columns=4)


def _beside_paper(title: str, part: Part, study: Study, comparison: dict[str, Any], notes: tuple[str, ...]) -> Table:
    """Two rows per arm: ours and the paper's."""
    better = comparison["better"]
    rows = []
    papers = {arm.name: arm for arm in part.arms}
    for arm in comparison["arms"]:
        published = papers[arm["name"]]
        ours = [_value(arm["metrics"][name]) for name in better]
        rows.append((arm["name"], "ours", number(arm["calls"]["mean"]), *ours))
        if published.paper.keys() & {*better, "calls"}:
            paper = [_published(published.paper.get(name), published.paper_sd.get(name)) for name in better]
            calls = published.paper.get("calls")
            rows.append((arm["name"], "paper", "" if calls is None else number(calls), *paper))
    seeds, kind = len(study.plan.seeds), study.record.model.kind
    head = f"{title}: {study.record.model.name}, {study.plan.n} {kind}s, {seeds} seed{'s' * (seeds != 1)}"
    header = ("arm", "", "calls", *(f"{name} {ARROW[way]}" for name, way in better.items()))
    return Table(head, header, tuple(rows), (*notes, *caveats(comparison)), text_columns=2)


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


def _timing(title: str, result: PartResult, notes: tuple[str, ...]) -> Table:
    """CPU seconds a step, steps and seconds in all, means over seeds; changes are to the first arm."""
    rows, firsts = [], {}
    for k, arm in enumerate(result.part.arms):
        mine = [one for one in result.times if one.arm == arm.name]
        total, noise, steps = (
            float(np.mean([getattr(one, name) for one in mine])) for name in ("cpu_seconds", "noise_seconds", "steps")
        )
        paper = (arm.paper.get("total_seconds"), None, arm.paper.get("calls"))
        for who, (seconds, drawn, count) in {"ours": (total, noise, steps), "paper": paper}.items():
            if seconds is None or count is None:
                continue
            first = firsts.setdefault(who, (seconds, count))
            change = ("", "") if k == 0 else (_change(seconds / count, first[0] / first[1]), _change(seconds, first[0]))
            share = "" if drawn is None else f"{100 * drawn / seconds:.0f} %"
            cells = (number(seconds / count), change[0], share, number(count), number(seconds), change[1])
            rows.append((arm.name, who, *cells))
    header = ("arm", "", "seconds a step", "change", "of it noise", "steps", "seconds in all", "change")
    n, seeds = result.times[0].n, len({one.seed for one in result.times})
    head = f"{title}: {result.model}, one batch of {n}, {seeds} seed{'s' * (seeds != 1)}"
    return Table(head, header, tuple(rows), notes, text_columns=2)


def _change(now: float, then: float) -> str:
    return f"{100 * (now / then - 1):+.1f} %"


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


def _path_numbers(study: Study, constants: dict[str, dict[str, Any]]) -> Table:
    """What the curves show, in numbers, from the first seed's trace.

    "Before dt_min" is the stretch up to the first of the steps at the end that all have the least length allowed; where
    nothing binds, and for grids, the whole trajectory.
    """
    rows = []
    for k, arm in enumerate(study.plan.arms):
        if found := study.recorded(k):
            trace = found[0].trace
            ds2, dt, t = (np.array([np.nan if v is None else v for v in trace[c]], float) for c in ("ds2", "dt", "t"))
            v_f, v_g = variation_parts(trace)
            fine = (v_g > 0) & np.isfinite(v_f)
            ratio = v_f[fine] / v_g[fine]  # its mean is that of the last steps, where the drift has a pole
            ratios = (ratio.mean(), np.median(ratio)) if fine.any() else (None, None)
            bound = constants[arm.name].get("dt_min", 0.0) * (1 + 1e-9)
            free = np.flatnonzero(dt[:-1] > bound)  # the last step ends where the time does
            binds = int(free[-1]) + 1 if len(free) else 0
            level = ds2[1 : binds + 1]  # the first step has nothing to compare with
            low, middle, high, most = np.nanquantile(level, (0.05, 0.5, 0.95, 1)) if len(level) else (np.nan,) * 4
            start = t[binds] if bound and binds < len(t) - 1 else None
            cells = (len(t), np.nanmin(dt), np.nanmax(dt), start, middle, high / low, most / middle)
            cells = (*cells, np.nanmax(ds2) / middle, *ratios)
            rows.append((arm.name, *(number(None if c is None or c != c else float(c)) for c in cells)))
    header = (
        "arm", "steps", "least dt", "most dt", "dt_min from t", "median ds2", "95 % / 5 %", "most / median",
        "most / median, to the end", "mean V_f / V_g", "median V_f / V_g",
    )  # fmt: skip
    note = "ds2: the median and the next two columns are of the stretch before dt_min binds for good."
    return Table("Along the trajectory, first seed", header, tuple(rows), (note,))


def _record(done: Reproduced, parts: list[PartTables]) -> dict[str, Any]:
    return {
        "target": done.name,
        "title": done.target.title,
        "notes": list(done.target.notes),
        "left_out": list(done.left_out),
        "parts": [
            {
                "folder": None if part.study is None else part.study.store.folder.name,
                "model": part.result.model if part.study is None else part.study.record.model.model_dump(),
                "notes": list(part.result.notes),
                "constants": part.result.constants,
                "paper": {arm.name: arm.paper for arm in part.result.part.arms},
                "comparison": part.comparison,
                "controls": list(part.controls),
                "times": [one.model_dump() for one in part.result.times],
            }
            for part in parts
        ],
    }
