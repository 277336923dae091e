"""A tuning run: its candidates, the winner and the long run, as tables, a figure and a page."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from isostep.base.files import write_text
from isostep.base.markup import Markup, join, tag
from isostep.reporting.chart import drawn
from isostep.reporting.figures import Curve, Curves, Figure
from isostep.reporting.page import copied, document, drawn_table
from isostep.reporting.tables import ARROW, EQUAL, Table, interval_text, number, p_value, signed
from isostep.study.tune_record import LEVELS, LONG, LOSS, TUNE, Candidate, TuneRecord, read_tuning

LISTED = 12
FAR = 1.0  # in loss, behind auto
LOOKS = (6, 5, 0, 1, 2)  # colour and marker of candidates by their seeds, of auto, of the winner


def tables(record: TuneRecord) -> list[Table]:
    """The confirmation, where there is one, and the best candidates."""
    return [*([confirmation(record)] if record.tests else []), candidates(record)]


def confirmation(record: TuneRecord) -> Table:
    """The last sampler against the others, on fresh seeds."""
    rows = []
    for test in record.tests:
        arrow = "↓" if test.metric == LOSS else ARROW[record.objective.better[test.metric]]
        p = "" if test.p_holm is None else p_value(test.p_holm)
        interval = interval_text(test.low, test.high, EQUAL if test.p is not None else "")
        values = (number(test.first), number(test.value), signed(test.difference))
        rows.append((f"{test.metric} {arrow}", test.against, test.verdict, *values, interval, p))
    seeds = record.plan.confirm_seeds
    who = record.winner if record.winner != record.baseline else record.baseline
    title = f"{who}: {record.plan.n} {record.kind}s, seeds {seeds[0]} to {seeds[-1]}, which the search never saw"
    header = ("metric", "against", "verdict", "other", "own", "difference", "95 % interval, uncorrected", "p")
    notes = ("Verdicts follow p after Holm's correction over all metrics; the loss is one test of its own.",)
    return Table(title, header, tuple(rows), notes, text_columns=3)


def candidates(record: TuneRecord) -> Table:
    """The best of the search, the baseline, and the long run."""
    better = record.objective.better
    names = [name for name in record.yardstick if name in better]
    listed, rest = record.candidates[:LISTED], record.candidates[LISTED:]
    rows = [
        (c.name + " (loses what is kept)" * c.forbidden, str(c.seeds), number(c.calls), number(c.loss),
         *(number(c.values.get(name)) for name in names))
        for c in (*listed, *(c for c in rest if c.name == record.baseline))
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


def _mean(values: tuple[float | None, ...]) -> float | None:
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


def frontier(record: TuneRecord) -> Figure:
    """Every candidate near the best as a dot, by its loss, in each metric; the long run as a line."""
    near, _ = _near(record)
    panels: Figure = []
    for name in (name for name in record.yardstick if name in record.objective.better):
        found = [(c, value) for c in near if (value := c.values.get(name)) is not None]
        level = _mean(record.yardstick[name])
        if not found or level is None:
            continue
        parts = {f"{n} seed{'s' * (n > 1)}": [pair for pair in found if pair[0].seeds == n] for n in LEVELS}
        parts["auto"] = [pair for pair in found if pair[0].name == record.baseline]
        parts["winner"] = [pair for pair in found if pair[0].name == record.winner]
        curves = tuple(
            Curve(k, part, tuple(c.loss for c, _ in pairs), tuple(value for _, value in pairs))
            for k, (part, pairs) in zip(LOOKS, parts.items(), strict=True)
            if pairs
        )
        title = f"{name} {ARROW[record.objective.better[name]]}, {LONG} {number(level)}"
        panels.append(Curves(title, curves, "loss", points=True, joined=False, level=level, group=0))
    return panels


def _near(record: TuneRecord) -> tuple[list[Candidate], int]:
    """Candidates by their loss, and the number of those too far behind, which would flatten the rest."""
    known = [c.loss for c in record.candidates if c.name in (record.baseline, record.winner)]
    most = max(known or [record.candidates[0].loss]) + FAR
    near = sorted((c for c in record.candidates if c.loss <= most), key=lambda c: c.loss)
    return near, len(record.candidates) - len(near)


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
    _, far = _near(record)
    shown = (
        f"Candidates of the search by their loss; dashed: the {LONG}, {number(record.yardstick_calls)} calls. "
        + f"{far} candidates with a loss more than {FAR:g} behind are not drawn." * bool(far)
    )
    drawn_figure = join([tag("p", shown, class_="soft"), drawn(frontier(record), "frontier")])
    sections = [
        ("confirmation", "Confirmation", "Confirmed on fresh seeds",
         drawn_table(confirmation(record)) if record.tests else Markup()),
        ("frontier", "Frontier", "Frontier", drawn_figure),
        ("candidates", "Candidates", "Candidates", drawn_table(candidates(record))),
        ("repeat", "Repeat it", "Repeat it", copied(plan.command)),
    ]  # fmt: skip
    made = f"Made by isostep {metadata.version('isostep')} from {folder.name}/{TUNE}."
    write_text(path, document(f"Tuning of {plan.model}", lead, sections, made))
