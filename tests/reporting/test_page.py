"""The report page: every figure is there, nothing is said on the console, nothing leaves the file."""

from __future__ import annotations

import html
import json
import re

import pytest

from isostep.base.files import write_json
from isostep.item.picture import layout, molecule_3d, molecule_svg, sketch_graph
from isostep.item.sketch import Sketch
from isostep.reporting.page import write_report
from isostep.study.comparison import compare_arms
from isostep.study.record import load_study
from tests.reporting.browser import open_page

FIGURES = ("differences", "frontier", "step-size", "information", "variation", "convergence")
SMILES = ["CCO", "C1CC1N", "CC(=O)O", "c1ccco1", "C#N", "OC1CNC1", "CC(C)C=O"]


@pytest.fixture(scope="module")
def graph_page(toy_study, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(path, toy_study, compare_arms(toy_study))
    return path


@pytest.fixture(scope="module")
def molecule_page(toy_study, tmp_path_factory):
    """The same study told as one of molecules: the page knows only the JSON."""
    folder = tmp_path_factory.mktemp("molecules")
    record = json.loads((toy_study.store.folder / "study.json").read_text())
    record["model"]["kind"] = "molecule"
    write_json(folder / "study.json", record)
    for k, arm in enumerate(record["arms"]):
        for seed, key in arm["cells"].items():
            cell = toy_study.cells[k][int(seed)]
            write_json(folder / "cells" / f"{key}.json", cell.model_dump(mode="json"))
            run = folder / "runs" / cell.run
            run.mkdir(parents=True)
            lines = (f"{smiles}\t{i}\t1\n" for i, smiles in enumerate(["", *SMILES]))
            (run / "molecules.smi").write_text("".join(lines))
    study = load_study(folder)
    path = folder / "report.html"
    write_report(path, study, compare_arms(study))
    return path


def test_figures_are_there_and_nothing_leaves(graph_page, tmp_path):
    page = open_page(graph_page, tmp_path)
    assert page.console == []
    assert page.requests == []
    for name in FIGURES:
        figure = re.search(rf'<figure id="figure-{name}".*?</figure>', page.dom, re.S)
        assert figure, name
        assert len(re.findall(r"<path|<use", figure[0])) > 10
    assert page.dom.count("t = 0.0<") == 2  # one strip of snapshots per arm
    assert page.dom.count("t = 1.0<") == 2
    assert len(re.findall(r'class="graph', page.dom)) == 2 * 6 + 2 * 12
    assert "not distinguishable" in page.dom
    assert "Repeat it" in page.dom


def test_molecules_are_drawn_flat_and_in_three_dimensions(molecule_page, tmp_path):
    page = open_page(molecule_page, tmp_path)
    assert page.console == []
    assert page.requests == []
    assert page.dom.count('class="molecule"') == 2 * len(SMILES)
    widths = re.findall(r"<canvas[^>]*?width=\"(\d+)\"", page.dom)  # the viewer sets it when it draws
    assert len(widths) == 6
    assert all(int(width) > 50 for width in widths)


TURN = """
<script>
  HTMLElement.prototype.setPointerCapture = () => {};  // made-up pointers cannot be captured
  const canvas = document.querySelector("canvas[data-molecule]");
  const point = (kind, clientX, pointerType) =>
    canvas.dispatchEvent(new PointerEvent(kind, { clientX, clientY: 9, pointerType }));
  const drag = (type, end) => { point("pointerdown", 9, type); point("pointermove", 60, type); point(end, 60, type); };
  const told = {};
  function note(name, act) {
    const before = canvas.toDataURL();
    act();
    told[name] = canvas.toDataURL() !== before;
  }
  note("hover", () => point("pointermove", 90, "mouse"));
  note("mouse", () => drag("mouse", "pointerup"));
  note("after", () => point("pointermove", 120, "mouse"));
  note("touch", () => drag("touch", "pointercancel"));
  note("key", () => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft" })));
  note("other key", () => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "a" })));
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  told.red = told.blue = told.grey = 0;
  for (let k = 0; k < data.length; k += 4) {
    const [r, g, b, a] = data.slice(k, k + 4);
    if (a < 255) continue;
    told.red += r > 2 * g && r > 2 * b;
    told.blue += b > 1.5 * r && b > 1.3 * g;
    told.grey += Math.abs(r - g) < 14 && Math.abs(g - b) < 14;
  }
  document.body.dataset.told = JSON.stringify(told);
</script>"""


def test_molecules_turn_by_mouse_touch_and_keys_and_wear_element_colours(molecule_page, tmp_path):
    turned = tmp_path / "turned.html"
    text = re.sub(r"<meta http-equiv[^>]*>", "", molecule_page.read_text())  # the policy forbids other scripts
    turned.write_text(text.replace("</body>", f"{TURN}</body>"))
    page = open_page(turned, tmp_path)
    assert page.console == []
    match = re.search(r'data-told="([^"]*)"', page.dom)
    assert match
    told = json.loads(html.unescape(match[1]))
    acts = {name: told[name] for name in ("hover", "mouse", "after", "touch", "key", "other key")}
    assert acts == {"hover": False, "mouse": True, "after": False, "touch": True, "key": True, "other key": False}
    assert told["red"] > 50  # ethanol: one oxygen, no nitrogen, carbon and hydrogen
    assert told["blue"] == 0
    assert told["grey"] > 200


def test_a_page_of_graphs_carries_no_viewer(graph_page):
    assert "canvas.getContext" not in graph_page.read_text()
    assert "<script" not in graph_page.read_text()


def test_the_check_sees_a_page_that_asks_the_network(graph_page, tmp_path):
    """The guard itself: without the content policy and with a foreign picture, a request and a console line appear."""
    text = graph_page.read_text()
    text = re.sub(r"<meta http-equiv[^>]*>", "", text)
    leaky = tmp_path / "leaky.html"
    script = "<script>console.error('seen')</script>"
    leaky.write_text(text.replace("<main>", f'<main><img src="http://127.0.0.1:9/x.png">{script}'))
    page = open_page(leaky, tmp_path)
    assert page.requests == ["http://127.0.0.1:9/x.png"]
    assert any("seen" in line for line in page.console)


def test_the_file_names_no_outside_source(graph_page, molecule_page):
    for path in (graph_page, molecule_page):
        text = path.read_text()
        assert "default-src 'none'" in html.unescape(text)
        links = re.findall(r'(?:src|href)="([^"]*)"', text) + re.findall(r"url\(([^)]*)\)", text)
        assert all(link.startswith(("#", "data:")) for link in links)


def test_ids_are_unique(graph_page):
    ids = re.findall(r'\bid="([^"]+)"', graph_page.read_text())
    assert len(ids) == len(set(ids))


def test_text_from_outside_is_escaped(toy_study, tmp_path):
    comparison = compare_arms(toy_study)
    comparison["title"] = "<script>alert(1)</script>"
    write_report(tmp_path / "r.html", toy_study, comparison)
    assert "<script>alert" not in (tmp_path / "r.html").read_text()


def test_layout_stays_in_the_square_and_places_every_node():
    cases = ([], [[0, 1, 1]], [[0, 1, 1], [1, 2, 1], [3, 4, 1]], [[i, j, 1] for i in range(6) for j in range(i)])
    for edges in cases:
        spots = layout(sketch_graph(Sketch(n=6, edges=edges)))
        assert spots.shape == (6, 2)
        assert spots.min() >= -1e-9
        assert spots.max() <= 1 + 1e-9


def test_a_conformer_has_bonds_of_chemical_length():
    molecule = molecule_3d("CCO")
    assert molecule is not None
    assert sorted(molecule["atoms"]) == ["C", "C"] + ["H"] * 6 + ["O"]
    for i, j, _ in molecule["bonds"]:
        length = sum((a - b) ** 2 for a, b in zip(molecule["xyz"][i], molecule["xyz"][j], strict=True)) ** 0.5
        assert 0.9 < length < 1.7
    assert molecule_3d("not a molecule") is None
    assert molecule_svg("") is None
