"""One self-contained HTML page of a study: it opens without a network, and its content policy forbids requests.

The policy allows the page's own scripts by their hashes, and no other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from isostep.base.files import write_text
from isostep.base.markup import Markup, join, script_data, source_hash, tag
from isostep.reporting.chart import drawn, swatch
from isostep.reporting.figures import Dots, Figure, figures, groups, percent
from isostep.reporting.forming import forming, reels_of
from isostep.reporting.generated import generated, molecules_3d
from isostep.reporting.tables import Table, caveats, difference_table, number, summary_table
from isostep.study.record import Study

POLICY = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"

CAPTIONS = {
    "quality": "Mean over seeds with its 95 % interval, inside the metric's range.",
    "differences": "Paired differences to the first arm of the same budget with their 95 % intervals, uncorrected; an "
    "arrow: the interval goes on; none: all pairs are equal.",
    "placement": "The share of its calls that an arm has made by t. Wide grey line: the share of "
    "the decisions before t (length of the predicted entries' path in the Fisher-Rao metric, from a pilot). Calls "
    "where nothing is decided are lost.",
    "step-size": "Step size along the generative time, first seed.",
    "information": "Information covered by each step. Equal-information stepping aims at a level line.",
    "variation": "The two parts of the information rate: drift V_f and noise V_g, summed over components.",
    "convergence": "Metrics of the denoised graphs on the way, first seed (at most 256 graphs).",
}


def write_report(path: str | Path, study: Study, comparison: dict[str, Any], extra: list[Table] | None = None) -> None:
    write_text(path, page(study, comparison, extra or []))


def page(study: Study, comparison: dict[str, Any], extra: list[Table]) -> str:
    shown = figures(study, comparison)
    molecules, reels = molecules_3d(study), reels_of(study)
    sections = [
        ("quality", "Quality", "Quality", _quality(comparison, shown, extra)),
        ("differences", "Differences", "Differences", _differences(comparison, shown)),
        ("forming", "A graph forming", "A graph forming", forming(reels)),
        ("placement", "Decisions", "Where the calls fall", _figure(shown, "placement")),
        ("step", "Step size", "Step size", _figure(shown, "step-size")),
        ("information", "Information", "Information per step", _figure(shown, "information")),
        ("variation", "Drift and noise", "Drift and noise parts", _figure(shown, "variation")),
        ("convergence", "Convergence", "Convergence", _figure(shown, "convergence")),
        ("generated", "Generated", "Generated", generated(study, molecules)),
        ("settings", "Settings", "Settings", _settings(study)),
    ]
    made = f"Made by isostep {study.record.versions.get('isostep', '')} from {study.store.folder.name}/study.json."
    data = {"molecules-3d": molecules, "films": [reel.data() for reel in reels]}
    arms = _arms(comparison)
    return document(comparison["title"], _lead(study, comparison), sections, made, data, arms)


Section = tuple[str, str, str, Markup]  # key, name in the navigation, title, content
SCRIPTS = {"molecules-3d": "viewer.js", "films": "film.js"}  # by the data they show


def document(
    title: str,
    lead: Markup,
    sections: list[Section],
    made: str,
    data: Mapping[str, Any] | None = None,
    arms: Markup | None = None,
) -> str:
    """The page around its sections; empty ones are left out. `data` goes to the scripts that show it; `arms` is a bar
    of switches below the navigation.
    """
    sections = [section for section in sections if section[3]]
    data = {key: value for key, value in (data or {}).items() if value}
    links = join(tag("a", short, href=f"#{key}") for key, short, _, _ in sections)
    body = join(tag("section", tag("h2", name), content, id=key) for key, _, name, content in sections)
    scripts = [_asset("page.js"), *(_asset(SCRIPTS[key]) for key in data)]
    style = _asset("style.css")
    allowed = f"script-src {' '.join(map(source_hash, scripts))}; style-src {source_hash(style)}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=f"{POLICY}; {allowed}"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} · Isostep"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(style)),
    )
    content = tag(
        "body",
        tag("header", tag("h1", title), lead),
        tag("div", tag("nav", links, aria_label="Sections"), arms or "", class_="bar"),
        tag("main", body),
        tag("footer", made),
        tag("div", id="tip", role="status", hidden=True),
        *(script_data(key, value) for key, value in data.items()),
        *(tag("script", Markup(text)) for text in scripts),
    )
    return "<!doctype html>" + tag("html", head, content, lang="en") + "\n"


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _arms(comparison: dict[str, Any]) -> Markup:
    """Legend and switches in one."""
    switches = [
        tag("label", tag("input", type="checkbox", checked=True, data_toggle=k), swatch(k), name)
        for name, k in groups(comparison).items()
    ]
    return tag("div", *switches, class_="arms", role="region", aria_label="Arms shown")


def _lead(study: Study, comparison: dict[str, Any]) -> Markup:
    """What was compared, and what came out, in words."""
    lines = [
        *(line for arm in comparison["arms"] if (line := finding(arm, comparison))),
        *([rule] if (rule := _rule(comparison)) else []),
        *caveats(comparison),
        *study.plan.notes,
    ]
    compared = tag("p", compared_sentence(study, comparison))
    return join([compared, tag("div", tag("ul", *(tag("li", line) for line in lines)), class_="finding")])


def compared_sentence(study: Study, comparison: dict[str, Any]) -> str:
    model, arms = study.record.model, comparison["arms"]
    names = list(groups(comparison))
    seeds = max(len(arm["seeds"]) for arm in arms)
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    calls = [arm["calls"]["mean"] for arm in arms if arm["calls"]]
    spread = number(calls[0]) if max(calls) - min(calls) < 0.5 else f"{number(min(calls))} to {number(max(calls))}"
    return (
        f"{'Compared: ' * (len(names) > 1)}{listed} on {model.name} ({model.source.split(', sha256')[0]}), at {spread} "
        f"network calls a graph; {comparison['n']} {model.kind}s for each of {seeds} seed{'s' * (seeds != 1)}, "
        f"measured against {study.record.reference.name}."
    )


def finding(arm: dict[str, Any], comparison: dict[str, Any]) -> str:
    """One sentence per arm that has been tested: on what it is better or worse, and by how much."""
    means = {other["name"]: other["metrics"] for other in comparison["arms"]}
    by: dict[str, list[str]] = {"better": [], "worse": [], "not distinguishable": []}
    for name, metric in arm["metrics"].items():
        if (test := metric["test"]) and test["p"] is not None:
            base = means[arm["baseline"]][name]["mean"]
            change = f", {percent(100 * test['difference'] / abs(base))}" if base else ""
            amount = f" ({number(metric['mean'])} instead of {number(base)}{change})"
            by[test["verdict"]].append(name + amount * (test["verdict"] != "not distinguishable"))
    told = [f"{verdict} on {', '.join(names)}" for verdict, names in by.items() if names]
    return f"{arm['name']} against {arm['baseline']}: {'; '.join(told)}." if told else ""


def _rule(comparison: dict[str, Any]) -> str:
    tests = comparison["tests"]
    return (
        f"Verdicts are paired by seed, at 95 %, corrected for {tests} test{'s' * (tests != 1)} (Holm)." if tests else ""
    )


def _quality(comparison: dict[str, Any], shown: Mapping[str, Figure], extra: list[Table]) -> Markup:
    # Notes of the extra tables stand at the top of the page.
    tables = [*(replace(table, notes=()) for table in extra), summary_table(comparison)]
    return join([_figure(shown, "quality"), *(drawn_table(table) for table in tables if table.rows)])


def _differences(comparison: dict[str, Any], shown: Mapping[str, Figure]) -> Markup:
    table = difference_table(comparison)
    return join([_figure(shown, "differences"), drawn_table(table) if table.rows else ""])


def drawn_table(table: Table) -> Markup:
    """Columns are sorted by their buttons; the first one stays when the rest scrolls."""

    def head(cell: str, k: int) -> Markup:
        kind = "text" if k < table.text_columns else None
        return tag("th", tag("button", cell, type="button"), scope="col", class_=kind, aria_sort="none")

    def row(cells: tuple[str, ...]) -> Markup:
        out = []
        for k, cell in enumerate(cells):
            marks = ["text"] if k < table.text_columns else []
            marks += [cell] if cell in ("better", "worse") else []
            marks += [{"+": "better", "-": "worse"}[cell[-1]]] if cell[-2:] in (" +", " -") else []
            name = "th" if k == 0 and table.text_columns else "td"
            scope = "row" if name == "th" else None
            out.append(tag(name, cell, class_=" ".join(marks) or None, scope=scope))
        return tag("tr", *out)

    rows = tag("tbody", *(row(cells) for cells in table.rows))
    columns = tag("thead", tag("tr", *(head(cell, k) for k, cell in enumerate(table.header))))
    inner = tag("table", tag("caption", tag("span", table.title)), columns, rows)
    shown = tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=table.title)
    return join([shown, *(tag("p", note, class_="notes") for note in table.notes)])


def _figure(shown: Mapping[str, Figure], name: str) -> Markup:
    if name not in shown:
        return Markup()
    dots = [dot for panel in shown[name] if isinstance(panel, Dots) for dot in panel.dots]
    caption = CAPTIONS[name] + " Ticks: single seeds." * any(dot.single for dot in dots)
    if any(dot.verdict in ("better", "worse") for dot in dots):
        caption += " A value in colour is better (green) or worse than that of the first arm, after correction."
    return tag("div", tag("p", caption, class_="soft"), drawn(shown[name], name), id=f"figure-{name}")


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
        tag("h3", "Repeat it"), copied(plan.command or "run_study(plan, folder)"),
        tag("details", tag("summary", "All sampler settings"), copied(json.dumps(arms, indent=2))),
    ])  # fmt: skip


def copied(text: str) -> Markup:
    """Text to be used elsewhere, with a button that copies it."""
    button = tag("button", "Copy", type="button", class_="copy", hidden=True)
    return tag("div", tag("pre", text, tabindex=0), button, class_="copied")
