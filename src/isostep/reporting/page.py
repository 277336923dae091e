"""One self-contained HTML page of a study: it opens without a network, and its content policy forbids requests."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isostep.base.files import write_text
from isostep.item.graph import Graph, read_graphs
from isostep.reporting.draw import (
    graph_svg,
    groups,
    layout,
    molecule_3d,
    molecule_svg,
    picture_graph,
    plain_graph_svg,
)
from isostep.reporting.plots import figures, inline
from isostep.reporting.tables import Table, difference_table, summary_table
from isostep.study.compare import Study
from isostep.study.plan import Arm

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_ARMS, SHOWN_ITEMS, SHOWN_3D = 4, 12, 6
SHOWN_TIMES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

CAPTIONS = {
    "differences": "Paired differences to the first arm of the same budget. Across zero: not distinguishable.",
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
    sections = [
        ("comparison", "Comparison", "Comparison", _comparison(comparison, plots, extra)),
        ("calls", "Calls", "Quality against calls", _figure(plots, "frontier")),
        ("step", "Step size", "Step size", _figure(plots, "step-size", narrow=True)),
        ("information", "Information", "Information per step", _figure(plots, "information", narrow=True)),
        ("variation", "Drift and noise", "Drift and noise parts", _figure(plots, "variation")),
        ("convergence", "Convergence", "Convergence", _figure(plots, "convergence")),
        ("snapshots", "Snapshots", "Snapshots", _snapshots(study)),
        ("generated", "Generated", "Generated", _generated(study)),
        ("settings", "Settings", "Settings", _settings(study)),
    ]
    sections = [section for section in sections if section[3]]
    links = "".join(f'<a href="#{key}">{short}</a>' for key, short, _, _ in sections)
    body = "".join(f'<section id="{key}"><h2>{name}</h2>{content}</section>' for key, _, name, content in sections)
    title = html.escape(comparison["title"])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<title>{title} · Isostep</title><link rel="icon" href="data:,">'
        f"<style>{_asset('style.css')}</style></head><body>"
        f"<header><h1>{title}</h1>{_lead(study, comparison)}</header><nav><div>{links}</div></nav><main>{body}</main>"
        f"<footer>Made by isostep {html.escape(study.record['versions']['isostep'])} from {study.store.folder.name}/"
        f"study.json.</footer>{_scripts(study)}</body></html>\n"
    )


def _asset(name: str) -> str:
    return (resources.files("isostep") / "reporting" / name).read_text(encoding="utf-8")


def _lead(study: Study, comparison: dict[str, Any]) -> str:
    """What was run, and what came out, in words."""
    model = study.record["model"]
    seeds = max(len(arm["seeds"]) for arm in comparison["arms"])
    source = model["source"].split(", sha256")[0]
    about = (
        f"{model['name']} ({source}); {comparison['n']} {model['kind']}s for each of {seeds} "
        f"seed{'s' * (seeds != 1)}; reference {study.record['reference']['name']}"
    )
    lines = [line for arm in comparison["arms"] if (line := finding(arm))]
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in study.plan.notes)
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines) + notes
    return f'<p class="soft">{html.escape(about)}</p>' + (
        f'<div class="finding"><ul>{items}</ul></div>' if items else ""
    )


def finding(arm: dict[str, Any]) -> str:
    """One sentence per arm that has been tested."""
    by: dict[str, list[str]] = {"better": [], "worse": [], "not distinguishable": []}
    for name, metric in arm["metrics"].items():
        if metric["test"] and metric["test"]["p"] is not None:
            by[metric["test"]["verdict"]].append(name)
    told = [f"{verdict} on {', '.join(names)}" for verdict, names in by.items() if names]
    return f"{arm['name']} against {arm['baseline']}: {'; '.join(told)} (95 % intervals, paired seeds)." if told else ""


def _comparison(comparison: dict[str, Any], plots: dict[str, Figure], extra: list[Table]) -> str:
    # Notes of the extra tables stand at the top of the page.
    tables = [*(replace(table, notes=()) for table in extra), summary_table(comparison)]
    shown = "".join(_titled(table) for table in tables if table.rows)
    differences = difference_table(comparison)
    return shown + _figure(plots, "differences", narrow=True) + (_titled(differences) if differences.rows else "")


def _titled(table: Table) -> str:
    return f"<h3>{html.escape(table.title)}</h3>{_table(table)}"


def _table(table: Table) -> str:
    def row(cells: tuple[str, ...], tag: str) -> str:
        out = []
        for k, cell in enumerate(cells):
            marks = ["text"] if k < table.text_columns else []
            marks += [cell] if cell in ("better", "worse") else []
            marks += [{"+": "better", "-": "worse"}[cell[-1]]] if cell[-2:] in (" +", " -") else []
            out.append(f"<{tag} class='{' '.join(marks)}'>{html.escape(cell)}</{tag}>")
        return f"<tr>{''.join(out)}</tr>"

    body = "".join(row(cells, "td") for cells in table.rows)
    notes = "".join(f'<p class="notes">{html.escape(note)}</p>' for note in table.notes)
    return (
        f'<div class="scroll"><table><thead>{row(table.header, "th")}</thead><tbody>{body}</tbody></table></div>{notes}'
    )


def _figure(plots: dict[str, Figure], name: str, narrow: bool = False) -> str:
    if name not in plots:
        return ""
    kind = "narrow" if narrow else "scrolls"
    caption = f"<figcaption>{html.escape(CAPTIONS[name])}</figcaption>"
    return f'<figure id="figure-{name}" class="{kind}">{inline(plots[name], name)}{caption}</figure>'


def _snapshots(study: Study) -> str:
    """The same graph (same seed and index) at the same times, one strip per arm."""
    strips, which = [], None
    for k, arm in _shown_arms(study):
        path = study.path(k)
        if path is None or not path["pictures"]:  # a run that left the numbers has none
            continue
        which = _liveliest(path["pictures"]) if which is None else which
        last = picture_graph(path["pictures"][-1][which])
        spots, colour = layout(last), groups(last)
        tiles = []
        for t, pictures in zip(path["times"], path["pictures"], strict=True):
            if min(abs(t - shown) for shown in SHOWN_TIMES) < 1e-9:
                picture = pictures[which]
                label = f"{arm.name} at t = {t:.1f}"
                svg = graph_svg(picture["n"], picture["edges"], spots, colour, label, picture.get("atoms"))
                tiles.append(f'<div class="tile">{svg}<div class="caption">t = {t:.1f}</div></div>')
        strips.append(f'<h3>{html.escape(arm.name)}</h3><div class="strip">{"".join(tiles)}</div>')
    if not strips:
        return ""
    return (
        '<p class="soft">The denoised state of one graph on its way from noise to data; same seed and index in every '
        f'arm, nodes placed as in its final graph.</p><div id="figure-snapshots">{"".join(strips)}</div>'
    )


def _shown_arms(study: Study) -> list[tuple[int, Arm]]:
    """Arms whose graphs are drawn: the first few, of the largest budget where there are several."""
    most = max((arm.calls or 0 for arm in study.plan.arms), default=0)
    return [(k, arm) for k, arm in enumerate(study.plan.arms) if (arm.calls or 0) == most][:SHOWN_ARMS]


def _liveliest(pictures: list[list[dict[str, Any]]]) -> int:
    """Of the recorded graphs, the one with most edges in the end."""
    return max(range(len(pictures[-1])), key=lambda k: len(pictures[-1][k]["edges"]))


def _generated(study: Study) -> str:
    parts = []
    for k, arm in _shown_arms(study):
        items = _items(study, k)
        if not items:
            continue
        tiles = "".join(_tile(item) for item in items)
        grid = f'<div class="grid{"" if isinstance(items[0], Graph) else " wide"}">{tiles}</div>'
        parts.append(f"<h3>{html.escape(arm.name)}</h3>{grid}")
    if not parts:
        return ""
    about = '<p class="soft">The first graphs of the first seed, not selected.</p>'
    return f'{about}<div id="figure-generated">{"".join(parts)}</div>{_three_d(study)}'


def _tile(item: Graph | str) -> str:
    """A graph, or the molecule of a SMILES string (nothing where RDKit cannot draw it)."""
    if isinstance(item, Graph):
        caption = f"{item.n} nodes, {len(item.edges)} edges"
        svg = plain_graph_svg(item, caption)
    else:
        caption, svg = item, molecule_svg(item)
    return f'<div class="tile">{svg}<div class="caption">{html.escape(caption)}</div></div>' if svg else ""


def _three_d(study: Study) -> str:
    molecules = _molecules_3d(study)
    if not molecules:
        return ""
    tiles = "".join(
        f'<div class="tile"><canvas data-molecule="{k}" tabindex="0" role="img" '
        f'aria-label="{html.escape(m["smiles"], quote=True)}, ball and stick"></canvas>'
        f'<div class="caption">{html.escape(m["smiles"])}</div></div>'
        for k, m in enumerate(molecules)
    )
    return (
        '<h3>In three dimensions</h3><p class="soft">Conformers by RDKit (ETKDG, MMFF) of the last arm\'s molecules; '
        f'drag to turn.</p><div id="figure-3d" class="grid wide">{tiles}</div>'
    )


def _molecules_3d(study: Study) -> list[dict[str, Any]]:
    if study.record["model"]["kind"] != "molecule":
        return []
    smiles = _items(study, len(study.plan.arms) - 1)
    return [m for s in smiles if isinstance(s, str) and (m := molecule_3d(s))][:SHOWN_3D]


def _items(study: Study, arm: int) -> list[Graph] | list[str]:
    """The first graphs, or SMILES, of an arm's first finished seed."""
    for seed in study.plan.seeds:
        if cell := study.cells[arm].get(seed):
            folder = study.store.run(cell["run"])
            if (folder / "graphs.jsonl").is_file():
                return read_graphs(folder / "graphs.jsonl")[:SHOWN_ITEMS]
            lines = (folder / "molecules.smi").read_text(encoding="utf-8").splitlines()
            return [smiles for line in lines if (smiles := line.split("\t")[0])][:SHOWN_ITEMS]
    return []


def _settings(study: Study) -> str:
    record, plan = study.record, study.plan
    facts = {
        "model": f"{record['model']['name']}, {record['model']['weights']} weights",
        "fingerprint": record["model"]["fingerprint"][:16],
        "reference": ", kernel ".join(filter(None, (record["reference"]["name"], record["reference"]["kernel"]))),
        "seeds": ", ".join(map(str, plan.seeds)),
        "noise": "one Brownian path per graph, read by all arms" if plan.noise == "path" else "the same step by step",
        "batch size": str(plan.batch_size),
        "versions": ", ".join(f"{name} {version}" for name, version in record["versions"].items()),
    }
    pairs = "".join(f"<dt>{key}</dt><dd>{html.escape(value)}</dd>" for key, value in facts.items())
    arms = {arm["name"]: arm["settings"] for arm in record["arms"]}
    shown = html.escape(json.dumps(arms, indent=2))
    command = html.escape(plan.command or "run_plan(plan, folder)")
    return (
        f"<dl>{pairs}</dl><h3>Repeat it</h3><pre>{command}</pre>"
        f"<details><summary>All sampler settings</summary><pre>{shown}</pre></details>"
    )


def _scripts(study: Study) -> str:
    molecules = _molecules_3d(study)
    if not molecules:
        return ""
    data = json.dumps(molecules, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="molecules-3d">{data}</script><script>{_asset("viewer.js")}</script>'
