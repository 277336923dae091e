"""Graphs and molecules as small pictures: SVG in the page's colours, and 3D coordinates for the viewer."""

# RDKit's stubs leave types open and know no None, networkx' leave types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnnecessaryComparison=false
from __future__ import annotations

import re
from typing import Any

import networkx
import numpy as np

from isostep.base.markup import Markup, join, tag, unstyled
from isostep.item.film import LIKELY, Sketch
from isostep.item.graph import Graph

Positions = np.ndarray  # (n, 2), inside the unit square
SERIES = 6
SIZE, MARGIN = 120, 9
ELEMENTS = ("N", "O", "F", "Cl", "S")  # with a colour of their own


def layout(graph: networkx.Graph[Any]) -> Positions:
    """Positions of all nodes; stress layout where the graph is in one piece and small, springs otherwise."""
    n = graph.number_of_nodes()
    linked = [node for node, degree in graph.degree if degree > 0]
    inner = graph.subgraph(linked)
    if 1 < len(linked) <= 80 and networkx.is_connected(inner):
        found = networkx.kamada_kawai_layout(inner)
    else:
        found = networkx.spring_layout(inner, seed=0, iterations=120)
    spots = np.array([found[node] for node in linked]).reshape(-1, 2)
    out = np.full((n, 2), 0.5)
    if len(linked):
        low, high = spots.min(0), spots.max(0)
        out[linked] = 0.5 + (spots - (low + high) / 2) / max(float((high - low).max()), 1e-9)
    # Nodes without an edge wait on the rim.
    rest = [node for node in graph if node not in found]
    for k, node in enumerate(rest):
        angle = 2 * np.pi * k / len(rest)
        out[node] = 0.5 + 0.5 * np.array([np.cos(angle), np.sin(angle)])
    return out


def groups(graph: networkx.Graph[Any]) -> list[int]:
    """A colour number per node: its community, where there are few; else 0."""
    colour = [0] * graph.number_of_nodes()
    if not graph.number_of_edges():
        return colour
    found = networkx.community.greedy_modularity_communities(graph)
    large = [community for community in found if len(community) > 2]
    if len(large) <= SERIES:
        for k, community in enumerate(large):
            for node in community:
                colour[node] = k
    return colour


def graph_svg(sketch: Sketch, spots: Positions, colour: list[int], label: str) -> Markup:
    """Edges in a few strokes, so that a large graph stays a small picture; what is not decided yet is faint."""
    place = MARGIN + spots * (SIZE - 2 * MARGIN)
    weights = sketch.weights or (1.0,) * len(sketch.edges)
    strokes: dict[str, list[str]] = {}
    for (i, j, order), weight in zip(sketch.edges, weights, strict=True):
        kind = "edge" if order else f"faint{min(int(10 * weight), 4)}"
        strokes.setdefault(kind, []).extend(_edge(place[i], place[j], max(order, 1)))
    dense = len(sketch.decided) > 3 * max(sketch.n, 1)
    return tag(
        "svg", *(tag("path", d="".join(lines), class_=kind) for kind, lines in sorted(strokes.items())),
        *_nodes(sketch, place, colour), viewBox=f"0 0 {SIZE} {SIZE}", class_="graph dense" if dense else "graph",
        fill="none", stroke="gray", role="img", aria_label=label,
    )  # fmt: skip


def _nodes(sketch: Sketch, place: np.ndarray, colour: list[int]) -> list[Markup]:
    if sketch.atoms is not None:
        chances = sketch.chances or (1.0,) * sketch.n
        return [
            _atom(place[k], symbol if chance > LIKELY else "")
            for k, (symbol, chance) in enumerate(zip(sketch.atoms, chances, strict=True))
        ]
    dots: dict[int, list[str]] = {}
    for k in range(sketch.n):
        dots.setdefault(colour[k], []).append(f"M{place[k][0]:.1f} {place[k][1]:.1f}h0")
    width = 6.8 if sketch.n <= 24 else 4.8 if sketch.n <= 70 else 3.2
    return [
        tag("path", d="".join(spots), class_=f"node s{k}", stroke_width=width, stroke_linecap="round")
        for k, spots in dots.items()
    ]


def plain_graph_svg(graph: Graph, label: str) -> Markup:
    net = graph.to_networkx()
    sketch = Sketch(n=graph.n, edges=tuple((int(i), int(j), 1) for i, j in graph.edges))
    return graph_svg(sketch, layout(net), groups(net), label)


def sketch_graph(sketch: Sketch) -> networkx.Graph[Any]:
    graph = networkx.empty_graph(sketch.n)
    graph.add_edges_from((i, j) for i, j, _ in sketch.decided)
    return graph


def _edge(a: np.ndarray, b: np.ndarray, order: int) -> list[str]:
    """A bond of order 2 or 3 has as many lines side by side."""
    along = b - a
    side = np.array([-along[1], along[0]]) / max(float(np.hypot(*along)), 1e-9)
    shifts = {1: (0.0,), 2: (-1.3, 1.3), 3: (-2.2, 0.0, 2.2)}[order]
    ends = [(a + s * side, b + s * side) for s in shifts]
    return [f"M{p[0]:.1f} {p[1]:.1f}L{q[0]:.1f} {q[1]:.1f}" for p, q in ends]


def _circle(spot: np.ndarray, radius: float, kind: str) -> Markup:
    return tag("circle", cx=f"{spot[0]:.1f}", cy=f"{spot[1]:.1f}", r=radius, class_=kind)


def _atom(spot: np.ndarray, symbol: str) -> Markup:
    if not symbol:
        return _circle(spot, 1.6, "none")
    kind = f"atom {symbol}" if symbol in ELEMENTS else "atom"
    return join([_circle(spot, 6.5, kind), tag("text", symbol, x=f"{spot[0]:.1f}", y=f"{spot[1] + 2.9:.1f}")])


def molecule_svg(smiles: str) -> Markup:
    """RDKit's drawing without background, labels of one size; dark pages invert it. Words where nothing is left."""
    from rdkit import Chem, rdBase
    from rdkit.Chem.Draw import rdMolDraw2D

    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(smiles)
    if mol is None or not mol.GetNumAtoms():
        inner = tag("text", "no atom left" if not smiles else "not readable", x=90, y=74, class_="nothing")
    else:
        drawer = rdMolDraw2D.MolDraw2DSVG(180, 140)
        options = drawer.drawOptions()
        options.clearBackground = False
        options.bondLineWidth = 1
        options.padding = 0.08
        options.fixedBondLength = 24
        options.fixedFontSize = 12
        rdMolDraw2D.PrepareAndDrawMolecule(drawer, mol)
        drawer.FinishDrawing()
        svg = drawer.GetDrawingText()
        inner = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
        inner = Markup(unstyled(re.sub(r"<!--.*?-->|\s*class='[^']*'", "", inner, flags=re.S)))
    label = smiles or "no atom left"
    return tag("svg", inner, viewBox="0 0 180 140", class_="molecule", role="img", aria_label=label)


def molecule_3d(smiles: str) -> dict[str, Any] | None:
    """Elements, coordinates in ångström (ETKDG, then MMFF where it applies) and bonds; None where RDKit finds none."""
    from rdkit import Chem
    from rdkit.Chem import AllChem

    mol = Chem.MolFromSmiles(smiles)
    if mol is None or mol.GetNumAtoms() < 2:
        return None
    mol = Chem.AddHs(mol)
    if AllChem.EmbedMolecule(mol, randomSeed=7, maxAttempts=20) != 0:  # type: ignore[attr-defined]
        return None
    if AllChem.MMFFHasAllMoleculeParams(mol):  # type: ignore[attr-defined]
        AllChem.MMFFOptimizeMolecule(mol, maxIters=200)  # type: ignore[attr-defined]
    spots = mol.GetConformer().GetPositions()
    spots = spots - spots.mean(0)
    Chem.Kekulize(mol)
    return {
        "smiles": smiles,
        "atoms": [atom.GetSymbol() for atom in mol.GetAtoms()],
        "xyz": np.round(spots, 2).tolist(),
        "bonds": [[b.GetBeginAtomIdx(), b.GetEndAtomIdx(), int(b.GetBondTypeAsDouble())] for b in mol.GetBonds()],
    }
