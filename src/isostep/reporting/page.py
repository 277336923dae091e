"""One self-contained HTML page of a study: it opens without a network, and its content policy forbids requests.

The policy allows the page's own scripts by their hashes, and no other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isostep.base.files import write_text
from isostep.base.markup import Markup, join, script_data, source_hash, tag
from isostep.item import Item
from isostep.item.picture import graph_svg, groups, layout, sketch_graph
from isostep.item.sketch import Sketch
from isostep.reporting.plots import figures, inline
from isostep.reporting.tables import Table, difference_table, summary_table
from isostep.study.plan import Arm
from isostep.study.record import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_ARMS, SHOWN_ITEMS, SHOWN_3D = 4, 12, 6
SHOWN_TIMES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

CAPTIONS = {
    "differences": "Paired differences to the first arm of the same budget, with uncorrected 95 % intervals.",
    "frontier": "Quality against network calls per graph. Bars: 95 % interval of the mean over seeds.",
    "step-size": "Step size along the generative time, first seed.",
    "information": "Information covered by each step. Equal-information stepping aims at a level line.",
    "variation": "The two parts of the information rate: drift V_f and noise V_g, summed over components.",
    "convergence": "Metrics of the denoised graphs on the way, first seed (at most 256 graphs).",
}


def write_report(path: str | Path, study: Study, comparison: dict[str, Any], extra: list[Table] | None = None) -> None:
    write_text(path, page(study, comparison, extra or []))


def page(study: Study, comparison: dict[str, Any], extra: list[Table]) -> str:
    plots = figures(study, comparison)
    molecules = _molecules_3d(study)
    sections = [
        ("comparison", "Comparison", "Comparison", _comparison(comparison, plots, extra)),
        ("calls", "Calls", "Quality against calls", _figure(plots, "frontier")),
        ("step", "Step size", "Step size", _figure(plots, "step-size", narrow=True)),
        ("information", "Information", "Information per step", _figure(plots, "information", narrow=True)),
        ("variation", "Drift and noise", "Drift and noise parts", _figure(plots, "variation")),
        ("convergence", "Convergence", "Convergence", _figure(plots, "convergence")),
        ("snapshots", "Snapshots", "Snapshots", _snapshots(study)),
        ("generated", "Generated", "Generated", _generated(study, molecules)),
        ("settings", "Settings", "Settings", _settings(study)),
    ]
    made = f"Made by isostep {study.record.versions.get('isostep', '')} from {study.store.folder.name}/study.json."
    return document(comparison["title"], _lead(study, comparison), sections, made, molecules)


Section = tuple[str, str, str, Markup]  # key, name in the navigation, title, content


def document(
    title: str, lead: Markup, sections: list[Section], made: str, molecules: list[dict[str, Any]] | None = None
) -> str:
    """The page around its sections; empty ones are left out."""
    sections = [section for section in sections if section[3]]
    links = join(tag("a", short, href=f"#{key}") for key, short, _, _ in sections)
    body = join(tag("section", tag("h2", name), content, id=key) for key, _, name, content in sections)
    scripts = [_asset("viewer.js")] if molecules else []
    hashes = " ".join(map(source_hash, scripts)) or "'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=f"{POLICY}; script-src {hashes}"),
        tag("title", f"{title} · Isostep"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(_asset("style.css"))),
    )
    content = tag(
        "body",
        tag("header", tag("h1", title), lead),
        tag("nav", tag("div", links)),
        tag("main", body),
        tag("footer", made),
        script_data("molecules-3d", molecules) if molecules else "",
        *(tag("script", Markup(text)) for text in scripts),
    )
    return "<!doctype html>" + tag("html", head, content, lang="en") + "\n"


def _asset(name: str) -> str:
    return (resources.files("isostep") / "reporting" / name).read_text(encoding="utf-8")


def _lead(study: Study, comparison: dict[str, Any]) -> Markup:
    """What was run, and what came out, in words."""
    model = study.record.model
    seeds = max(len(arm["seeds"]) for arm in comparison["arms"])
    about = (
        f"{model.name} ({model.source.split(', sha256')[0]}); {comparison['n']} {model.kind}s for each of {seeds} "
        f"seed{'s' * (seeds != 1)}; reference {study.record.reference.name}"
    )
    lines = [line for arm in comparison["arms"] if (line := finding(arm, comparison["tests"]))]
    items = [tag("li", line) for line in (*lines, *study.plan.notes)]
    return join([tag("p", about, class_="soft"), tag("div", tag("ul", *items), class_="finding") if items else ""])


def finding(arm: dict[str, Any], tests: int) -> str:
    """One sentence per arm that has been tested."""
    by: dict[str, list[str]] = {"better": [], "worse": [], "not distinguishable": []}
    for name, metric in arm["metrics"].items():
        if metric["test"] and metric["test"]["p"] is not None:
            by[metric["test"]["verdict"]].append(name)
    told = [f"{verdict} on {', '.join(names)}" for verdict, names in by.items() if names]
    rule = f"paired seeds, 95 %, Holm-corrected for {tests} test{'s' * (tests != 1)}"
    return f"{arm['name']} against {arm['baseline']}: {'; '.join(told)} ({rule})." if told else ""


def _comparison(comparison: dict[str, Any], plots: Mapping[str, Figure], extra: list[Table]) -> Markup:
    # Notes of the extra tables stand at the top of the page.
    tables = [*(replace(table, notes=()) for table in extra), summary_table(comparison)]
    differences = difference_table(comparison)
    return join([
        *(_titled(table) for table in tables if table.rows),
        _figure(plots, "differences", narrow=True),
        _titled(differences) if differences.rows else "",
    ])  # fmt: skip


def _titled(table: Table) -> Markup:
    return join([tag("h3", table.title), drawn_table(table)])


def drawn_table(table: Table) -> Markup:
    def row(cells: tuple[str, ...], name: str) -> Markup:
        out = []
        for k, cell in enumerate(cells):
            marks = ["text"] if k < table.text_columns else []
            marks += [cell] if cell in ("better", "worse") else []
            marks += [{"+": "better", "-": "worse"}[cell[-1]]] if cell[-2:] in (" +", " -") else []
            out.append(tag(name, cell, class_=" ".join(marks) or None))
        return tag("tr", *out)

    body = tag("tbody", *(row(cells, "td") for cells in table.rows))
    shown = tag("div", tag("table", tag("thead", row(table.header, "th")), body), class_="scroll")
    return join([shown, *(tag("p", note, class_="notes") for note in table.notes)])


def _figure(plots: Mapping[str, Figure], name: str, narrow: bool = False) -> Markup:
    if name not in plots:
        return Markup()
    kind = "narrow" if narrow else "scrolls"
    drawn = Markup(inline(plots[name], name))
    return tag("figure", drawn, tag("figcaption", CAPTIONS[name]), id=f"figure-{name}", class_=kind)


def _snapshots(study: Study) -> Markup:
    """The same graph (same seed and index) at the same times, one strip per arm."""
    strips, which = [], None
    for k, arm in _shown_arms(study):
        found = study.recorded(k)
        if found is None or not found[0].pictures or not found[0].pictures[0]:  # a run that left the numbers has none
            continue
        path = found[0]
        which = _liveliest(path.pictures) if which is None else min(which, len(path.pictures[-1]) - 1)
        last = sketch_graph(path.pictures[-1][which])
        spots, colour = layout(last), groups(last)
        tiles = []
        for t, pictures in zip(path.times, path.pictures, strict=True):
            if min(abs(t - shown) for shown in SHOWN_TIMES) < 1e-9 and pictures[which].n == len(spots):
                svg = graph_svg(pictures[which], spots, colour, f"{arm.name} at t = {t:.1f}")
                tiles.append(_tile(svg, f"t = {t:.1f}"))
        strips += [tag("h3", arm.name), tag("div", *tiles, class_="strip")]
    if not strips:
        return Markup()
    about = "The denoised state of one graph on its way from noise to data; same seed and index in every arm, nodes "
    placed = "placed as in its final graph."
    return join([tag("p", about + placed, class_="soft"), tag("div", *strips, id="figure-snapshots")])


def _shown_arms(study: Study) -> list[tuple[int, Arm]]:
    """Arms whose graphs are drawn: the first few, of the largest budget where there are several."""
    most = max((arm.calls or 0 for arm in study.plan.arms), default=0)
    return [(k, arm) for k, arm in enumerate(study.plan.arms) if (arm.calls or 0) == most][:SHOWN_ARMS]


def _liveliest(pictures: tuple[tuple[Sketch, ...], ...]) -> int:
    """Of the recorded graphs, the one with most edges in the end."""
    return max(range(len(pictures[-1])), key=lambda k: len(pictures[-1][k].edges))


def _generated(study: Study, molecules: list[dict[str, Any]]) -> Markup:
    parts = []
    for k, arm in _shown_arms(study):
        items = study.generated(k, SHOWN_ITEMS)
        if items:
            wide = "grid wide" if items[0].wide else "grid"
            parts += [tag("h3", arm.name), tag("div", *map(_item, items), class_=wide)]
    if not parts:
        return Markup()
    about = tag("p", "The first graphs of the first seed, not selected.", class_="soft")
    return join([about, tag("div", *parts, id="figure-generated"), _three_d(molecules)])


def _item(item: Item) -> Markup:
    """Its picture, where it has one."""
    picture = item.picture()
    return Markup() if picture is None else _tile(picture.svg, picture.caption)


def _tile(picture: Markup, caption: str) -> Markup:
    return tag("div", picture, tag("div", caption, class_="caption"), class_="tile")


def _three_d(molecules: list[dict[str, Any]]) -> Markup:
    if not molecules:
        return Markup()
    tiles = []
    for k, molecule in enumerate(molecules):
        label = f"{molecule['smiles']}, ball and stick"
        canvas = tag("canvas", data_molecule=k, tabindex=0, role="img", aria_label=label)
        tiles.append(_tile(canvas, molecule["smiles"]))
    about = "Conformers by RDKit (ETKDG, MMFF) of the last arm's molecules; drag to turn."
    return join([
        tag("h3", "In three dimensions"), tag("p", about, class_="soft"),
        tag("div", *tiles, id="figure-3d", class_="grid wide"),
    ])  # fmt: skip


def _molecules_3d(study: Study) -> list[dict[str, Any]]:
    items = study.generated(len(study.plan.arms) - 1, SHOWN_ITEMS)
    return [found for item in items if (found := item.in_space())][:SHOWN_3D]


def _settings(study: Study) -> Markup:
    record, plan = study.record, study.plan
    facts = {
        "model": f"{record.model.name}, {record.model.weights} weights",
        "fingerprint": record.model.fingerprint[:16],
        "reference": ", kernel ".join(filter(None, (record.reference.name, record.reference.kernel))),
        "seeds": ", ".join(map(str, plan.seeds)),
        "noise": "one Brownian path per graph, read by all arms" if plan.noise == "path" else "the same step by step",
        "batch size": str(plan.batch_size),
        "versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
    }
    arms = {arm.name: arm.settings for arm in record.arms}
    return join([
        tag("dl", *(join([tag("dt", key), tag("dd", value)]) for key, value in facts.items())),
        tag("h3", "Repeat it"), tag("pre", plan.command or "run_study(plan, folder)"),
        tag("details", tag("summary", "All sampler settings"), tag("pre", json.dumps(arms, indent=2))),
    ])  # fmt: skip
