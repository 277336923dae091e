"""The report page: every figure is there, nothing is said on the console, nothing leaves the file."""

from __future__ import annotations

import html
import json
import re

import pytest

from isostep.base.files import write_json
from isostep.item.film import Sketch
from isostep.item.picture import layout, molecule_3d, molecule_svg, sketch_graph
from isostep.reporting.page import write_report
from isostep.study.comparison import compare_arms
from isostep.study.record import load_study
from tests.reporting.browser import audit, open_page

FIGURES = ("quality", "differences", "step-size", "information", "variation", "convergence")
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
            lines = (f"{smiles}\t{i}\t{int(i > 1)}\n" for i, smiles in enumerate(["", *SMILES]))
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
        figure = re.search(rf'<div id="figure-{name}".*?</div></div>', page.dom, re.S)
        assert figure, name
        assert len(re.findall(r"<path|<line|<polyline", figure[0])) > 5
    assert len(re.findall(r'<svg[^>]*class="graph stage"', page.dom)) == 2  # one film per arm
    assert len(re.findall(r'class="graph', page.dom)) == 2 + 2 * 12
    assert "not distinguishable" in page.dom
    assert "Repeat it" in page.dom


def test_without_a_script_there_are_stills_that_begin_with_noise(graph_page):
    text = graph_page.read_text()
    assert text.count("t = 0, noise<") == 2
    assert text.count("t = 1.0<") == 2
    assert len(re.findall(r'class="graph', text)) == 2 * 6 + 2 * 12


def test_words_come_first(graph_page):
    """What was compared at how many calls, and the verdicts with their correction, before any table."""
    text = re.sub(r"<style>.*?</style>", "", graph_page.read_text(), flags=re.S)
    head = text[: text.index("<table")]
    assert "Compared: uniform and dvs on rings-and-stars" in head
    assert re.search(r"at \d+ to 8 network calls a graph", head)
    assert "dvs against uniform: " in head
    assert re.search(r"corrected for \d+ tests \(Holm\)", head)


def test_molecules_are_drawn_flat_and_in_three_dimensions(molecule_page, tmp_path):
    page = open_page(molecule_page, tmp_path)
    assert page.console == []
    assert page.requests == []
    assert page.dom.count('class="molecule"') == 2 * (1 + len(SMILES))  # none is left out
    assert page.dom.count(">no atom left<") == 2
    assert page.dom.count('class="fault">nothing left<') == page.dom.count('class="fault">corrected<') == 2
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


DRIVE = """
<script>
  const told = {}, all = (what) => [...document.querySelectorAll(what)], one = (what) => document.querySelector(what);
  const send = (part, kind, set) => part.dispatchEvent(new (kind.startsWith("key") ? KeyboardEvent : PointerEvent)(kind,
    { bubbles: true, ...set }));
  const tip = one("#tip"), seen = (part) => part.getClientRects().length > 0;

  const plot = one("#figure-step-size .plot"), box = plot.querySelector(".lines").getBoundingClientRect();
  send(plot, "pointermove", { clientX: box.left + box.width / 2, clientY: box.top + 20 });
  told.hover = tip.hidden ? "" : tip.innerText;
  send(plot, "pointerleave", {});
  told.left = tip.hidden;
  plot.focus();
  send(plot, "keydown", { key: "ArrowRight" });
  const first = tip.innerText;
  send(plot, "keydown", { key: "ArrowRight" });
  told.keys = first !== tip.innerText && tip.innerText.includes("dvs");

  const box1 = one('[data-toggle="1"]'), arms = all('main [data-arm="1"]');
  told.arms = arms.length;
  box1.click();
  told.off = arms.filter(seen).length;
  send(plot, "keydown", { key: "ArrowRight" });
  told.others = tip.innerText.includes("uniform:") && !tip.innerText.includes("dvs:");
  box1.click();
  told.on = arms.every(seen);

  const table = one("#differences table"), heads = [...table.tHead.rows[0].cells];
  const column = heads.find((cell) => cell.innerText.startsWith("difference"));
  const values = () => [...table.tBodies[0].rows].map((row) => parseFloat(row.cells[column.cellIndex].innerText));
  column.querySelector("button").click();
  told.up = [values(), column.ariaSort];
  column.querySelector("button").click();
  told.down = [values(), column.ariaSort];

  const time = one("#film-time"), said = one("#film-said"), note = () => all(".film-note").map((p) => p.innerText);
  const move = (value) => {
    time.value = value;
    time.dispatchEvent(new Event("input"));
    return [said.innerText, ...note()];
  };
  told.noise = move(0);
  told.end = move(time.max);
  told.speaks = time.getAttribute("aria-valuetext");
  const edge = one(".stage path.edge");
  send(edge, "pointermove", { clientX: 9, clientY: 9 });
  told.chance = tip.innerText;
  const shape = one(".stage path").getAttribute("d"), pick = one("#film-graph");
  pick.value = pick.value === "0" ? "1" : "0";
  pick.dispatchEvent(new Event("change"));
  told.other = one(".stage path").getAttribute("d") !== shape;

  const tiles = () => all("#figure-generated .tile").filter(seen).length, text = one("#items-text");
  told.items = [tiles()];
  if (!one("#items-next").disabled) one("#items-next").click();
  told.items.push(tiles());
  const find = (words) => { text.value = words; text.dispatchEvent(new Event("input")); return tiles(); };
  told.items.push(find("no such words"), find("8 nodes"), find(""));

  const copied = [];
  document.addEventListener("copy", () => copied.push(getSelection().toString()));
  Object.defineProperty(navigator, "clipboard", { value: { writeText: async (words) => copied.push(words) } });
  one(".copied .copy").click();
  told.copied = copied[0];
  told.wide = document.documentElement.scrollWidth - innerWidth;
  told.plots = all(".plot").filter(seen).map((p) => p.getBoundingClientRect().width / p.parentElement.clientWidth);
  told.type = [...new Set(all(".tick").map((t) => getComputedStyle(t).fontSize))];
  const th = one("#differences tbody th");
  told.fixed = [th.scope, getComputedStyle(th).position];
  document.body.dataset.told = JSON.stringify(told);
</script>"""


def _driven(path, scratch, *flags):
    """What the page did under DRIVE's hands."""
    text = re.sub(r"<meta http-equiv[^>]*>", "", path.read_text())  # the policy forbids other scripts
    driven = scratch / "driven.html"
    driven.write_text(text.replace("</body>", f"{DRIVE}</body>"))
    page = open_page(driven, scratch, *flags)
    assert page.console == []
    match = re.search(r'data-told="([^"]*)"', page.dom)
    assert match
    return json.loads(html.unescape(match[1]))


@pytest.mark.parametrize("size", ["1400,900", "500,844"])  # a headless window is at least 500 wide
def test_a_page_answers_to_mouse_and_keys(graph_page, tmp_path, size):
    told = _driven(graph_page, tmp_path, f"--window-size={size}")
    assert re.search(r"^t 0\.\d+\nuniform: 0\.125\ndvs[^\n]*: 0\.\d+$", told["hover"])
    assert told["left"]
    assert told["keys"]
    assert told["arms"] > 8
    assert told["off"] == 0
    assert told["others"]
    assert told["on"]
    assert told["up"] == [sorted(told["up"][0]), "ascending"]
    assert told["down"] == [told["up"][0][::-1], "descending"]
    assert told["noise"][0] == "t = 0.00, noise"
    assert told["noise"][1:] != told["end"][1:]
    assert told["end"][0] == "t = 1.00"
    assert re.fullmatch(r"t = 1.00; uniform: \d+ edges; dvs: \d+ edges", told["speaks"])
    assert re.fullmatch(r"\d–\d: (0\.[5-9]\d|1\.00)", told["chance"])
    assert told["other"]
    assert told["items"] == [24, 24, 0, 24, 24]  # twelve of each arm: one page
    assert told["copied"].startswith(("isostep", "run_study"))
    assert told["wide"] <= 0
    assert all(0.98 < share <= 1.001 for share in told["plots"])
    assert told["type"] == ["12px"]
    assert told["fixed"] == ["row", "sticky"]


def test_a_page_of_graphs_carries_no_viewer(graph_page):
    assert "canvas.getContext" not in graph_page.read_text()


def test_a_page_can_be_read_by_machines(graph_page):
    """Every picture has words, every table a caption and headers with a scope, every control a label."""
    text = re.sub(r"<script.*?</script>", "", graph_page.read_text(), flags=re.S)
    for svg in re.findall(r"<svg[^>]*>", text):
        assert 'role="img" ' not in svg or "aria-label" in svg
    assert text.count("<table>") == text.count("<caption>") > 0
    assert all("scope=" in cell for cell in re.findall(r"<th[ >][^>]*", text))
    for control in re.findall(r"<(?:input|select)[^>]*>", text):
        before = text[: text.index(control)]
        assert before.rfind("<label>") > before.rfind("</label>"), control


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_axe_finds_nothing_serious(graph_page, tmp_path, width, dark):
    assert audit(graph_page, tmp_path, width, dark) == []


def test_axe_sees_what_is_wrong(tmp_path):
    (tmp_path / "page.html").write_text('<html lang="en"><title>x</title><body><img src="x.png"></body></html>')
    (line,) = audit(tmp_path / "page.html", tmp_path, 390, dark=False)
    assert line.startswith("critical image-alt")


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
    assert "no atom left" in molecule_svg("")
    assert "not readable" in molecule_svg("C1CC")
