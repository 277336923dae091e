"""A tuning run: its candidates, the winner and the long run, as tables, a plot and a page."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from isostep.base.files import write_text
from isostep.base.markup import Markup, join, tag
from isostep.reporting.page import document, drawn_table
from isostep.reporting.plots import COLOURS, FAINT, INK, inline, panels
from isostep.reporting.tables import ARROW, Table, interval_text, number, p_value, signed
from isostep.study.significance import spread
from isostep.study.tune_record import LEVELS, LONG, LOSS, TUNE, TuneRecord, read_tuning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LISTED = 12


def tables(record: TuneRecord) -> list[Table]:
    """The confirmation, where there is one, and the best candidates."""
    return [*([confirmation(record)] if record.tests else []), candidates(record)]


def confirmation(record: TuneRecord) -> Table:
    """The last sampler against the others, on fresh seeds."""
    rows = []
    for test in record.tests:
        arrow = "↓" if test.metric == LOSS else ARROW[record.objective.better[test.metric]]
        p = "" if test.p_holm is None else p_value(test.p_holm)
        interval = interval_text(test.low, test.high)
        values = (number(test.first), number(test.value), signed(test.difference))
        rows.append((f"{test.metric} {arrow}", test.against, test.verdict, *values, interval, p))
    seeds = record.plan.confirm_seeds
    who = record.winner if record.winner != record.baseline else record.baseline
    title = f"{who}: {record.plan.n} {record.kind}s, seeds {seeds[0]} to {seeds[-1]}, which the search never saw"
    header = ("metric", "against", "verdict", "its value", "value", "difference", "95 % interval, uncorrected", "p")
    notes = ("Verdicts follow p after Holm's correction over all metrics; the loss is one test of its own.",)
    return Table(title, header, tuple(rows), notes, text_columns=3)


def candidates(record: TuneRecord) -> Table:
    """The best of the search, the baseline, and the long run."""
    better = record.objective.better
    names = [name for name in record.yardstick if name in better]
    rows = [
        (c.name + " (loses what is kept)" * c.forbidden, str(c.seeds), number(c.calls), number(c.loss),
         *(number(c.values.get(name)) for name in names))
        for c in (*record.candidates[:LISTED], *_baseline(record))
    ]  # fmt: skip
    long = (number(_mean(record.yardstick[name])) for name in names)
    rows.append((LONG, str(len(record.yardstick[names[0]])), number(record.yardstick_calls), "", *long))
    title = (
        f"Search at {record.plan.calls} calls: {len(record.candidates)} candidates, the best {LISTED} and the baseline"
    )
    header = ("sampler", "seeds", "calls", "loss ↓", *(f"{name} {ARROW[better[name]]}" for name in names))
    note = (
        f"Loss: mean over {', '.join(record.objective.metrics)} of the logarithm of what is lost, in units of spread."
    )
    return Table(title, header, tuple(rows), (note,))


def _baseline(record: TuneRecord):
    return [c for c in record.candidates[LISTED:] if c.name == record.baseline]


def _mean(values: tuple[float | None, ...]) -> float | None:
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


def frontier(record: TuneRecord) -> Figure:
    """Every candidate as a dot: its loss, and each metric; the long run as a line with its interval."""
    from scipy.stats import t as student

    names = [name for name in record.yardstick if name in record.objective.better and _mean(record.yardstick[name])]
    figure, axes = panels(len(names))
    for axis, name in zip(axes, names, strict=True):
        found = [value for value in record.yardstick[name] if value is not None]
        centre = spread(found)
        if centre.sd is not None:
            reach = float(student.ppf(0.975, centre.n - 1)) * centre.sd / centre.n**0.5
            axis.axhspan(centre.mean - reach, centre.mean + reach, color=FAINT, alpha=0.5, lw=0)
        axis.axhline(centre.mean, color=INK, lw=1, ls="--", label=f"{LONG}, {record.yardstick_calls:.0f} calls")
        dots = [(c, c.loss, value) for c in record.candidates if (value := c.values.get(name)) is not None]
        for seeds in sorted({c.seeds for c, *_ in dots}):
            x, y = zip(*((loss, value) for c, loss, value in dots if c.seeds == seeds), strict=True)
            colour = COLOURS[0] if seeds == LEVELS[-1] else COLOURS[6]
            what = f"candidates, {seeds} seed{'s' * (seeds > 1)}"
            axis.plot(x, y, "o", ms=2.5 + 0.5 * seeds, mfc="none", color=colour, label=what)
        for c, loss, value in dots:
            if c.name == record.baseline:
                axis.plot([loss], [value], "s", color=COLOURS[1], ms=7, label="auto")
            if c.name == record.winner:
                axis.plot([loss], [value], "*", color=COLOURS[2], ms=11, label="winner")
        axis.set(xlabel="loss", title=f"{name} {ARROW[record.objective.better[name]]}")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3, frameon=False, fontsize=8.5, labelcolor=INK)  # type: ignore[arg-type]
    return figure


def write_tuning_report(path: Path, folder: Path) -> None:
    record = read_tuning(folder)
    plan = record.plan
    state = record.reason or "The search is not finished."
    kept = f"auto at {plan.calls} calls: {record.winner if record.kept else record.baseline}"
    about = (
        f"{plan.model}, {plan.calls} network calls per {record.kind}; {len(record.candidates)} candidates on seeds "
        f"{plan.search_seeds[0]} to {plan.search_seeds[-1]}, {plan.n} {record.kind}s each; reference "
        f"{Path(record.reference).name}."
    )
    items = [tag("li", text) for text in (state, kept)]
    lead = join([tag("p", about, class_="soft"), tag("div", tag("ul", *items), class_="finding")])
    caption = "Candidates of the search by their loss. Dashed: the long run, with the 95 % interval of its mean."
    drawn = tag("figure", Markup(inline(frontier(record), "frontier")), tag("figcaption", caption), class_="scrolls")
    sections = [
        ("confirmation", "Confirmation", "Confirmed on fresh seeds",
         drawn_table(confirmation(record)) if record.tests else Markup()),
        ("frontier", "Frontier", "Frontier", drawn),
        ("candidates", "Candidates", "Candidates", drawn_table(candidates(record))),
        ("repeat", "Repeat it", "Repeat it", tag("pre", plan.command)),
    ]  # fmt: skip
    made = f"Made by isostep {metadata.version('isostep')} from {folder.name}/{TUNE}."
    write_text(path, document(f"Tuning of {plan.model}", lead, sections, made))
