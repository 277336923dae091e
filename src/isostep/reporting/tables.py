"""Tables of a comparison: one plain form, four renderings (terminal, Markdown, LaTeX, CSV)."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isostep.base.text import printable

if TYPE_CHECKING:
    from rich.console import Group

SIGN = {"better": "+", "worse": "-", "not distinguishable": "="}
ARROW = {"lower": "↓", "higher": "↑"}


@dataclass(frozen=True)
class Table:
    """Plain text; names that come from files lose their control characters here."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    text_columns: int = 1  # columns aligned left

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", printable(self.title))
        object.__setattr__(self, "header", tuple(map(printable, self.header)))
        object.__setattr__(self, "rows", tuple(tuple(map(printable, row)) for row in self.rows))
        object.__setattr__(self, "notes", tuple(map(printable, self.notes)))

    def markdown(self) -> str:
        rule = ["---" if k < self.text_columns else "---:" for k in range(len(self.header))]
        lines = [self.header, rule, *self.rows]
        body = "\n".join("| " + " | ".join(map(_markdown, line)) + " |" for line in lines)
        return f"**{_markdown(self.title)}**\n\n{body}\n" + "".join(f"\n{_markdown(note)}\n" for note in self.notes)

    def latex(self) -> str:
        columns = "l" * self.text_columns + "r" * (len(self.header) - self.text_columns)
        lines = [" & ".join(map(_tex, row)) + r" \\" for row in self.rows]
        head = " & ".join(map(_tex, self.header)) + r" \\"
        inner = "\n".join([r"\toprule", head, r"\midrule", *lines, r"\bottomrule"])
        notes = "".join(f"% {note}\n" for note in self.notes)
        return f"% {self.title}\n{notes}\\begin{{tabular}}{{{columns}}}\n{inner}\n\\end{{tabular}}\n"

    def rich(self) -> Group:
        from rich import box
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for k, name in enumerate(self.header):
            table.add_column(Text(name), justify="left" if k < self.text_columns else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*map(Text, row))
        return Group(Text(self.title, style="bold"), table)  # a table's own title would wrap at the table's width


def summary_table(comparison: dict[str, Any]) -> Table:
    """One row per arm: calls, steps, seconds, and every metric as mean ± sd with the verdict's sign."""
    better = comparison["better"]
    header = ("arm", "calls", "steps", "seconds", *(f"{name} {ARROW[way]}" for name, way in better.items()))
    rows = []
    for arm in comparison["arms"]:
        counts = [number(arm[q]["mean"]) if arm[q] else "" for q in ("calls", "steps", "seconds")]
        rows.append((arm["name"], *counts, *(_mean_cell(arm["metrics"].get(name)) for name in better)))
    seeds = max((len(arm["seeds"]) for arm in comparison["arms"]), default=0)
    title = f"{comparison['title']}: {comparison['n']} graphs per seed, {seeds} paired seed{'s' * (seeds != 1)}"
    notes = [
        "Mean ± standard deviation over seeds. Against the first arm (at the same budget): + better, - worse, "
        "= not distinguishable, at 95 % after Holm's correction for the number of tests. Seconds: the clock's, for "
        "sampling one seed's graphs."
    ]
    if budgets := [f"{arm['name']}: {arm['note']}" for arm in comparison["arms"] if arm["note"]]:
        notes.append(f"{'; '.join(budgets)}.")
    return Table(title, header, tuple(rows), (*notes, *caveats(comparison)))


def caveats(comparison: dict[str, Any]) -> list[str]:
    """What stands behind the means and is not seen in them."""
    unfinished = [
        f"{arm['unfinished']} of {len(arm['seeds']) * comparison['n']} graphs of {arm['name']}"
        for arm in comparison["arms"]
        if arm["unfinished"]
    ]
    notes = [f"Not finished, but measured: {'; '.join(unfinished)}."] if unfinished else []
    cells = sum(len(arm["seeds"]) for arm in comparison["arms"])
    for name, lack in comparison["undefined"].items():
        why = f" ({lack['reason']})" if lack["reason"] else ""
        notes.append(f"{name}: not defined in {lack['cells']} of {cells} arms and seeds{why}.")
    return notes


def difference_table(comparison: dict[str, Any]) -> Table:
    """One row per arm and metric: the paired difference with its interval, p and verdict."""
    rows = []
    for arm in comparison["arms"]:
        for name, metric in arm["metrics"].items():
            if test := metric["test"]:
                rows.append((arm["name"], name, *paired_cells(test)))
    header = ("arm", "metric", *TEST_HEADER)
    tests = comparison["tests"]
    several = f"{tests} test{'s' * (tests != 1)}"
    rule = f"Verdicts follow p (Holm), corrected for {several}; intervals and p are of each test alone."
    notes = (rule,) if tests else ()
    return Table(f"Differences to {baseline(comparison)}, paired by seed", header, tuple(rows), notes, text_columns=3)


EQUAL = "none: all pairs equal"
TEST_HEADER = ("verdict", "difference", "95 % interval, uncorrected", "p", "p (Holm)", "pairs")


def paired_cells(test: dict[str, Any]) -> tuple[str, ...]:
    """A paired test in a row of a table."""
    verdict = test["verdict"] if test["p"] is not None else "one seed: no test"
    ps = ("" if test.get(key) is None else p_value(test[key]) for key in ("p", "p_holm"))
    interval = interval_text(test["low"], test["high"], EQUAL if test["p"] is not None else "")
    return verdict, signed(test["difference"]), interval, *ps, str(test["n"])


def baseline(comparison: dict[str, Any]) -> str:
    """What the arms are compared with, in words."""
    names = {arm["baseline"] for arm in comparison["arms"]}
    if len(names) == 1:
        return names.pop()
    plain = {group(arm) for arm in comparison["arms"] if arm["name"] in names}
    return f"{plain.pop() if len(plain) == 1 else 'the first arm'} at the same budget"


def group(arm: dict[str, Any]) -> str:
    """An arm's name without its budget."""
    return arm["name"].removesuffix(f", {arm['budget']} calls")


def interval_text(low: float | None, high: float | None, none: str = "") -> str:
    return none if low is None or high is None else f"{signed(low)} to {signed(high)}"


def long_csv(comparison: dict[str, Any]) -> str:
    """All numbers at full precision, one row per arm and metric."""
    text = io.StringIO()
    fields = ("arm", "baseline", "budget", "calls", "steps", "seconds", "metric", "better", "n", "mean", "sd")
    tests = ("difference", "low", "high", "p", "p_holm", "verdict")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*fields, *tests])
    better = comparison["better"]
    for arm in comparison["arms"]:
        counts = [arm[q]["mean"] if arm[q] else None for q in ("calls", "steps", "seconds")]
        for name, m in arm["metrics"].items():
            names = [_csv(arm["name"]), _csv(arm["baseline"])]
            head = [*names, arm["budget"], *counts, _csv(name), better[name]]
            writer.writerow([*head, m["n"], m.get("mean"), m.get("sd"), *((m["test"] or {}).get(key) for key in tests)])
    return text.getvalue()


def number(value: float | None, digits: int = 3) -> str:
    """Short, with at least `digits` significant digits; whole numbers stay whole."""
    if value is None:
        return ""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    if abs(value) >= 10**digits:
        return f"{value:.0f}"
    return f"{value:.{digits}g}" if abs(value) >= 1e-4 else f"{value:.1e}"


def with_interval(value: float, low: float, high: float) -> str:
    """As many decimals as the interval gives a reason for: two digits of half its width."""
    if high <= low:
        return number(value)
    places = max(0, 1 - math.floor(math.log10((high - low) / 2)))
    value_, low_, high_ = (f"{v:.{places}f}" if places < 7 else number(v) for v in (value, low, high))
    return f"{value_} ({low_} to {high_})"


def signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value)


def p_value(p: float) -> str:
    return "< .001" if p < 0.001 else f"{p:.3f}"


def _mean_cell(metric: dict[str, Any] | None) -> str:
    if metric is None or not metric["n"]:
        return "not defined"
    sd = metric.get("sd")
    cell = number(metric["mean"]) + (f" ± {number(sd, 2)}" if sd is not None else "")
    test = metric["test"]
    return cell if test is None or test["p"] is None else f"{cell} {SIGN[test['verdict']]}"


def _markdown(text: str) -> str:
    """No cell ends early, no tag begins."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text.replace("|", "\\|"))


def _csv(text: str) -> str:
    """Spreadsheets take a cell that begins like this for a formula."""
    text = printable(text)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


_TEX = {
    "±": r"$\pm$", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "<": "$<$", ">": "$>$", "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
} | {c: f"\\{c}" for c in "_%&#${}"}  # fmt: skip


def _tex(cell: str) -> str:
    return "".join(_TEX.get(character, character) for character in cell)
