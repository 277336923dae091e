"""Quality against network calls: every solver and schedule at the same budgets, against the model's long run.

    python benchmarks/frontier.py MODEL --out DIR [-n 500] [--seeds 0-4] [--calls 10,20,50,100,250,1000]
                                  [--arms TEXT] [--grid gdss] [--solver euler] [--eta 1] [--metrics NAMES]
                                  [--csv FILE] [--markdown FILE] [--plot FILE.svg] [--no-record]

A study (resumable: finished cells are kept in DIR) whose arms are compared, paired by seed, with the yardstick: 1000
uniform Euler steps with the model's own corrector (`--grid gdss`: on the grid of GDSS' own samplers). Prints a table:
mean and standard deviation over seeds, and a verdict by p after Holm's correction for all tests of the table (+ better,
= not distinguishable, - worse); and, for every budget, the best arm: the one with the smallest mean of standardised
differences over the metrics. `--csv` has all of it, with intervals and both p. `--arms` keeps the arms whose name
contains one of the texts, separated by semicolons; the arm `auto` is what the model's card says for that budget.
`--no-record` keeps no traces for `isostep report`, whose pilot of 32 graphs costs more than the arms on a large model.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isostep.base.files import write_text
from isostep.base.progress import showing
from isostep.model.lookup import load_model
from isostep.model.model import Model
from isostep.reporting.plots import COLOURS, MARKERS, STYLES
from isostep.reporting.tables import ARROW, SIGN, group, number
from isostep.study.compute import run_study
from isostep.study.plan import Arm, StudyPlan, parse_counts, parse_seeds, words
from isostep.study.record import Cell, Study
from isostep.study.significance import Paired, Verdict, holm, paired, spread, verdict

BUDGETS = "10,20,50,100,250,1000"
FEW = 100  # up to here every arm runs, beyond only the main ones


@dataclass(frozen=True)
class Method:
    """One line of the frontier: what goes to the sampler, and whether it also runs with many calls."""

    name: str
    schedule: str
    solver: str
    many: bool = False
    extra: tuple[tuple[str, Any], ...] = ()

    def arm(self, calls: int) -> Arm:
        solver = {"solver": self.solver} if self.solver else {}
        chosen = {"clock": "graph", "schedule": self.schedule, **solver, **dict(self.extra)}
        return Arm(name=f"{self.name}, {calls} calls", chosen=chosen, calls=calls)


def method(schedule: str, solver: str, note: str = "", many: bool = False, eta: float = 1, **extra: Any) -> Method:
    name = f"{schedule}{note}, {solver}"
    if eta != 1:
        name, extra = f"{name} eta {eta:g}", {**extra, "solver_options": {"eta": eta}}
    return Method(name, schedule, solver, many, tuple(extra.items()))


COMMON = (
    Method("auto", "auto", ""),
    method("uniform", "euler", many=True),
    method("dvs", "euler", " (batch)", many=True, clock="batch"),
    method("dvs", "euler", " (graph)"),
    method("uniform", "exponential"),
    method("uniform", "exponential-2"),
    method("cosine", "exponential"),
    method("cosine", "exponential-2", many=True),
    method("karras", "exponential"),
    method("arclength", "exponential", many=True),
    method("arclength", "exponential-2"),
    method("decisions", "exponential-2"),
)
METHODS = {
    "grum": (
        *COMMON,
        method("quadratic", "exponential"),
        method("quadratic", "exponential-2"),
        method("error", "heun-error"),
        *(method("cosine", "exponential-2", many=eta == 8, eta=eta) for eta in (2, 4, 8)),
    ),
    "gdss": (
        *COMMON,
        method("uniform", "s4"),
        method("arclength", "s4", many=True),
        method("uniform", "flow-heun", corrector="none"),
        method("error", "heun-error", corrector="none"),
        method("uniform", "exponential", eta=1.5),
        *(method("cosine", "exponential-2", " (no corrector)", eta=eta, corrector="none") for eta in (2, 4)),
    ),
}


def make_plan(model: Model, args: argparse.Namespace) -> StudyPlan:
    budgets = parse_counts(args.calls, "--calls")
    methods = [m for m in METHODS[model.info.family] if not args.arms or any(t in m.name for t in args.arms.split(";"))]
    yardstick = {"schedule": args.grid, "solver": args.solver, "steps": args.yardstick, "clock": "graph"}
    name = f"yardstick: {args.yardstick} steps, {args.grid}, {args.solver}"
    if args.eta is not None:
        yardstick["solver_options"], name = {"eta": args.eta}, f"{name} eta {args.eta:g}"
    arms = [Arm(name=name, chosen=yardstick)]
    arms += [m.arm(calls) for m in methods for calls in budgets if m.many or calls <= FEW]
    return StudyPlan(
        title=f"Quality against calls: {model.info.name}", model=args.model, arms=tuple(arms),
        seeds=parse_seeds(args.seeds), n=args.number, batch_size=args.batch_size, noise="step",
        metrics=tuple(words(args.metrics)) or None, record=args.record,
        command=f"python benchmarks/frontier.py {args.model} -n {args.number} --seeds {args.seeds}",
    )  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One arm: calls really made, values by metric and seed, and their comparison with the yardstick."""

    method: str
    budget: int | None
    calls: float
    values: dict[str, dict[int, float]]
    tests: dict[str, Paired]
    corrected: dict[str, float | None]  # p after Holm's correction for all tests of the table
    verdicts: dict[str, Verdict]


def rows_of(study: Study) -> list[Row]:
    """Rows in plan order; arms without a finished seed are left out."""
    better, first = study.better, study.cells[0]
    found = [(arm, cells) for arm, cells in zip(study.plan.arms, study.cells, strict=True) if cells]
    values = [{m: by_seed(cells, m) for m in study.metrics} for _, cells in found]
    tests = [{m: compare(by_seed(first, m), row[m]) for m in better} for row in values]
    asked = [(k, m) for k, row in enumerate(tests) for m, test in row.items() if k and test.p is not None]
    p = dict(zip(asked, holm([tests[k][m].p or 0.0 for k, m in asked]), strict=True))
    rows = []
    for k, (arm, cells) in enumerate(found):
        corrected = {m: p.get((k, m)) for m in better}
        verdicts: dict[str, Verdict] = {
            m: verdict(test.difference, corrected[m], better[m]) for m, test in tests[k].items()
        }
        calls = spread([c.calls for c in cells.values()]).mean
        name = group({"name": arm.name, "budget": arm.calls})
        rows.append(Row(name, arm.calls, calls, values[k], tests[k], corrected, verdicts))
    return rows


def by_seed(cells: Mapping[int, Cell], metric: str) -> dict[int, float]:
    return {seed: value for seed, cell in cells.items() if (value := cell.metrics.get(metric)) is not None}


def compare(first: dict[int, float], other: dict[int, float]) -> Paired:
    seeds = sorted(first.keys() & other.keys())
    return paired([first[s] for s in seeds], [other[s] for s in seeds])


def score(row: Row, yardstick: Row, better: Mapping[str, str]) -> float:
    """Mean over the metrics of the loss against the yardstick, in standard deviations of the yardstick over seeds."""
    losses = []
    for m, test in row.tests.items():
        sd = spread(list(yardstick.values[m].values())).sd or math.inf
        losses.append((1 if better[m] == "lower" else -1) * test.difference / sd)
    return math.fsum(losses) / len(losses)


def markdown(study: Study, rows: list[Row]) -> str:
    metrics, better = study.metrics, study.better
    plan = study.plan
    kernel = study.record.reference.kernel
    yardstick, *others = rows
    head = ["schedule, solver", "calls", *(f"{m} {ARROW[better[m]]}" for m in metrics)]
    lines = [
        f"{study.record.model.name}: seeds {plan.seeds[0]}-{plan.seeds[-1]}, {plan.n} graphs a seed, reference "
        f"{study.record.reference.name}" + (f", kernel {kernel}" if kernel else "") + ".",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        line(yardstick, metrics, signs=False),
        *(line(row, metrics, signs=True) for row in sorted(others, key=lambda r: (r.budget or 0, r.method))),
        "",
        "| budget | best here | not worse on every metric | mean loss in sd of the yardstick |",
        "|---|---|---|---|",
    ]
    for budget in sorted({row.budget for row in others if row.budget}):
        best = min((r for r in others if r.budget == budget), key=lambda r: score(r, yardstick, better))
        fine = "worse" not in best.verdicts.values()
        loss = score(best, yardstick, better)
        lines.append(f"| {budget} | {best.method} | {'yes' if fine else 'no'} | {loss:+.2f} |")
    return "\n".join(lines) + "\n"


def line(row: Row, metrics: list[str], signs: bool) -> str:
    cells = []
    for m in metrics:
        values = list(row.values[m].values())
        if not values:
            cells.append("none")
            continue
        s = spread(values)
        text = number(s.mean) + (f" ± {number(s.sd, 2)}" if s.sd is not None else "")
        cells.append(f"{text} {SIGN[row.verdicts[m]]}" if signs else text)
    return "| " + " | ".join([row.method, f"{row.calls:.4g}", *cells]) + " |"


def table(study: Study, rows: list[Row]) -> str:
    """Everything, as CSV: one line per arm and metric."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = "arm,budget,calls,metric,seeds,mean,sd,difference,low,high,p,p_holm,verdict"
    writer.writerow(head.split(","))
    for k, row in enumerate(rows):
        for m, values in row.values.items():
            if not values:
                continue
            s, test = spread(list(values.values())), row.tests[m]
            against = (test.difference, test.low, test.high, test.p, row.corrected[m]) if k else (None,) * 5
            numbers = [None if v is None else f"{v:.6g}" for v in (s.mean, s.sd, *against)]
            fixed = [row.method, row.budget, f"{row.calls:.5g}", m, s.n]
            writer.writerow([*fixed, *numbers, row.verdicts[m] if k else ""])
    return out.getvalue()


def plot(study: Study, rows: list[Row], path: Path) -> None:
    """Means; the grey band is the yardstick's mean and standard deviation, those of the arms are in the table."""
    from matplotlib.figure import Figure

    metrics = study.metrics
    yardstick, *others = rows
    names = list(dict.fromkeys(row.method for row in others))
    height = math.ceil(len(metrics) / 2)
    figure = Figure(figsize=(11, 3.6 * height + 1.4), layout="constrained")
    for k, m in enumerate(metrics):
        title = f"{m} {ARROW[study.better[m]]}"
        axes = figure.add_subplot(height, 2, k + 1, xlabel="network calls per graph", title=title, xscale="log")
        s = spread(list(yardstick.values[m].values()))
        axes.axhspan(s.mean - (s.sd or 0), s.mean + (s.sd or 0), color="0.88", zorder=0)
        axes.axhline(s.mean, color="0.3", lw=1, ls=":", label=yardstick.method)
        for j, name in enumerate(names):
            points = sorted((r for r in others if r.method == name and r.values[m]), key=lambda r: r.calls)
            aside = 1.012 ** (j - len(names) / 2)  # so that markers of equal calls do not hide each other
            axes.plot(
                [r.calls * aside for r in points], [spread(list(r.values[m].values())).mean for r in points],
                label=name, color=COLOURS[j % len(COLOURS)], ls=STYLES[j // len(COLOURS)],
                marker=MARKERS[j % len(MARKERS)], ms=5, lw=1,
            )  # fmt: skip
        if study.better[m] == "lower" and min(min(r.values[m].values(), default=1) for r in rows) > 0:
            axes.set_yscale("log")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9, handlelength=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("-n", "--number", type=int, default=500)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--calls", default=BUDGETS)
    parser.add_argument("--yardstick", type=int, default=1000, help="steps of the yardstick")
    parser.add_argument("--eta", type=float, help="noise of the yardstick's exponential steps")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--arms", help="only arms whose name contains one of these texts")
    parser.add_argument("--grid", default="uniform", help="grid of the yardstick")
    parser.add_argument("--solver", default="euler", help="solver of the yardstick")
    parser.add_argument("--metrics", default="", help="comma-separated; default: those of a study")
    parser.add_argument("--no-record", dest="record", action="store_false", help="no traces, and no pilot for them")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    model = load_model(args.model)
    with showing(True):
        study = run_study(make_plan(model, args), args.out, model)
    rows = rows_of(study)
    text = markdown(study, rows)
    if args.csv:
        write_text(args.csv, table(study, rows))
    if args.markdown:
        write_text(args.markdown, text)
    if args.plot:
        plot(study, rows, args.plot)
    print(text)


if __name__ == "__main__":
    main()
