"""The paper's tables and figures, each a file in `presets/paper`: what to run, its values, what is not comparable.

A part's model is, in this order: the one the user gives, the released GDSS weights (fetched, or under
ISOSTEP_DATA), the small model embedded for that dataset. A part without a model is left out, and the output says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from isostep.base.errors import InputError
from isostep.base.files import write_json
from isostep.metric.mmd import Kernel
from isostep.model.lookup import embedded_names, load_model
from isostep.model.model import Model
from isostep.model.presets import read_toml
from isostep.model.released.known import fetched, known_table
from isostep.reporting.output import write_outputs, write_tables
from isostep.reporting.plots import parts as variation_parts
from isostep.reporting.plots import steps_until
from isostep.reporting.tables import ARROW, Table, difference_table, interval_text, number, signed
from isostep.settings.schema import one_line
from isostep.study.compare import Study, Tell, run_plan
from isostep.study.plan import Arm, Plan, parse_seeds
from isostep.study.significance import Verdict
from isostep.study.store import fingerprint


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
    paper_sd: dict[str, float] = {}


class PaperTest(_Frozen):
    """A paired difference that the paper reports; p as printed."""

    arm: str
    metric: str
    difference: float
    low: float | None = None
    high: float | None = None
    p: str
    verdict: Verdict
    pairs: int


class Part(_Frozen):
    family: Literal["gdss", "grum"]
    dataset: str
    metrics: tuple[str, ...]
    kernel: Kernel | None = None
    n: int
    paper_n: int | None = None
    arms: tuple[PaperArm, ...]
    paper_tests: tuple[PaperTest, ...] = ()


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
class PartResult:
    """A part that ran: its study, comparison, and the tables with the paper's values."""

    study: Study
    comparison: dict[str, Any]
    tables: list[Table]


@dataclass(frozen=True)
class Reproduced:
    """`stem`: the written files without `.md`, `.tex`, `.json`."""

    stem: Path
    parts: tuple[PartResult, ...]


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


def reproduce(name: str, out: str | Path, options: Options, tell: Tell | None = None) -> Reproduced:
    """Run a target. Each model has a folder in `out`, so targets share their runs and models do not mix."""
    name = name.upper()
    target = load_target(name)
    given = None if options.model is None else load_model(options.model)
    studies: list[tuple[Part, Study]] = []
    left_out: list[str] = []
    for part in target.parts:
        found = find_model(part, options.model, given, target.parts)
        if isinstance(found, str):
            left_out.append(found)
            continue
        plan = part_plan(name, target, part, found, options)
        folder = Path(out) / model_label(found.model)
        studies.append((part, run_plan(plan, folder, found.model, tell)))
    if not studies:
        raise InputError(left_out[0])
    parts = tuple(_part_result(target, part, study, left_out) for part, study in studies)
    stem = Path(out) / (name if given is None else f"{name}-{model_label(given)}")
    write_tables(stem, [table for result in parts for table in result.tables])
    write_json(stem.with_suffix(".json"), _record(name, target, parts, left_out))
    return Reproduced(stem, parts)


class Found(NamedTuple):
    """A part's model, what loads it, and what to say about it."""

    source: str
    model: Model
    note: str


def find_model(part: Part, source: str | None, given: Model | None, parts: tuple[Part, ...]) -> Found | str:
    """Which model serves a part; or why none does."""
    if source is not None and given is not None:
        dataset = given.info.dataset
        fits = [p for p in parts if dataset in (p.dataset, f"{p.dataset}-small")]
        if part in fits or (not fits and part == parts[0]):
            return Found(source, given, _about(f"Model {given.info.name}, given with --model", given, part))
    if part.family == "gdss":
        name = f"gdss_{part.dataset.replace('-', '_')}"
        known = known_table()[1].get(name)
        if known and (path := fetched(known)):
            return Found(str(path), load_model(path), "Released GDSS weights.")
        return f"{part.dataset}: no weights found; run `isostep fetch {name}`, or name a file with --model FILE"
    name = f"grum-{part.dataset}-small"
    if name in embedded_names():
        model = load_model(name)
        about = _about(f"Embedded model {name}, smaller than the paper's", model, part)
        return Found(name, model, f"{about} Only the order of the arms can be compared; GruM's own: --model FILE.")
    return f"{part.dataset}: GruM's weights are needed; name the released file or a model with --model FILE"


def _about(origin: str, model: Model, part: Part) -> str:
    info, differs = model.info, []
    if info.dataset != part.dataset:
        differs.append(f"trained on {info.dataset}, the paper's on {part.dataset}")
    if info.family != part.family:
        differs.append(f"of the family {info.family}, the paper's of {part.family}")
    return f"{origin}: {'; '.join(differs)}; values are not comparable." if differs else f"{origin}."


def model_label(model: Model) -> str:
    """A file name that tells models apart, also two files of the same name."""
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '-', model.info.name)}-{fingerprint(model)[:8]}"


def part_plan(name: str, target: Target, part: Part, found: Found, options: Options) -> Plan:
    quick, info = target.quick if options.quick else None, found.model.info
    n = options.n or (quick.n if quick else part.n)
    seeds = parse_seeds(options.seeds or (quick.seeds if quick else target.seeds))
    steps = options.steps or (quick.steps if quick else None)
    notes = [found.note]
    if quick:
        notes.append("Quick: fewer graphs, seeds and steps than the full run.")
    if steps and steps != info.sampler.steps:
        notes.append(f"{steps} base steps; the model's preset has {info.sampler.steps}.")
    if part.paper_n and n != part.paper_n:
        notes.append(f"{n} {info.kind}s per seed; the paper has {part.paper_n}.")
    molecules = "valid" in part.metrics
    fitting = molecules == (info.kind == "molecule")
    if not fitting:
        notes.append(f"The model makes {info.kind}s: other metrics than the paper's, whose values have no counterpart.")
    arms = []
    for arm in part.arms:
        chosen: dict[str, Any] = {"schedule": arm.schedule, "solver": arm.solver, "steps": steps}
        if arm.options:
            chosen["schedule_options"] = arm.options
        chosen = {key: value for key, value in chosen.items() if value is not None}
        arms.append(Arm(name=arm.name, chosen=chosen, paper=arm.paper))
    return Plan(
        title=f"{name}, {info.name}", model=found.source, arms=tuple(arms), seeds=seeds, n=n, kernel=part.kernel,
        metrics=part.metrics if fitting else None, notes=(*notes, *target.notes), command=options.command,
    )  # fmt: skip


def _part_result(target: Target, part: Part, study: Study, left_out: list[str]) -> PartResult:
    comparison = write_outputs(study, plots=bool(target.show))
    notes = (*study.plan.notes, *(f"Left out: {reason}." for reason in left_out))
    title = target.title if len(target.parts) == 1 else f"{target.title} ({part.dataset})"
    if target.layout == "timing":
        return PartResult(study, comparison, [_timing(title, study, comparison, notes)])
    tables = [_beside_paper(title, part, study, comparison, notes)]
    if "convergence" in target.show:
        tables.append(_convergence(study))
    if target.show:
        tables.append(_path_numbers(study))
    return PartResult(study, comparison, [*tables, _differences(part, comparison)])


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
    seeds, kind = len(study.plan.seeds), study.record["model"]["kind"]
    head = f"{title}: {study.record['model']['name']}, {study.plan.n} {kind}s, {seeds} seed{'s' * (seeds != 1)}"
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
    return Table(f"{title}: {study.record['model']['name']}", header, tuple(rows), (extra, *notes), text_columns=2)


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
        if path := study.path(k):
            times = list(path["metrics"])
            header = ("arm", "", *(f"t = {float(t):.1f}" for t in times))
            steps = steps_until(path, [float(t) for t in times])
            rows.append((arm.name, "step", *(f"{step:.0f}" for step in steps)))
            values = {name: [number(path["metrics"][t].get(name)) or "-" for t in times] for name in study.metrics}
            rows += [(arm.name, name, *cells) for name, cells in values.items()]
    return Table("Metrics along the trajectory, first seed", header, tuple(rows), text_columns=2)


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


def _record(name: str, target: Target, done: tuple[PartResult, ...], left_out: list[str]) -> dict[str, Any]:
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
