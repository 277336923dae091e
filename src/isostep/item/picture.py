"""Graphs and molecules as small pictures: SVG in the page's colours, and 3D coordinates for the viewer."""

# RDKit's stubs leave types open and know no None, networkx' leave types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnnecessaryComparison=false
from __future__ import annotations

import re
from typing import Any

import networkx
import numpy as np

from isostep.base.markup import Markup, join, tag
from isostep.item.graph import Graph
from isostep.item.sketch import Sketch

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
    place = MARGIN + spots * (SIZE - 2 * MARGIN)
    lines = (line for i, j, order in sketch.edges for line in _edge(place[i], place[j], order))
    radius = 3.4 if sketch.n <= 24 else 2.4 if sketch.n <= 70 else 1.6
    nodes = [
        _circle(place[k], radius, f"s{colour[k]}") if sketch.atoms is None else _atom(place[k], sketch.atoms[k])
        for k in range(sketch.n)
    ]
    dense = len(sketch.edges) > 3 * max(sketch.n, 1)
    return tag(
        "svg", tag("g", *lines), *nodes, viewBox=f"0 0 {SIZE} {SIZE}", class_="graph dense" if dense else "graph",
        role="img", aria_label=label,
    )  # fmt: skip


def plain_graph_svg(graph: Graph, label: str) -> Markup:
    net = graph.to_networkx()
    sketch = Sketch(n=graph.n, edges=tuple((int(i), int(j), 1) for i, j in graph.edges))
    return graph_svg(sketch, layout(net), groups(net), label)


def sketch_graph(sketch: Sketch) -> networkx.Graph[Any]:
    graph = networkx.empty_graph(sketch.n)
    graph.add_edges_from((i, j) for i, j, _ in sketch.edges)
    return graph


def _edge(a: np.ndarray, b: np.ndarray, order: int) -> list[Markup]:
    """A bond of order 2 or 3 has as many lines side by side."""
    along = b - a
    side = np.array([-along[1], along[0]]) / max(float(np.hypot(*along)), 1e-9)
    shifts = {1: (0.0,), 2: (-1.3, 1.3), 3: (-2.2, 0.0, 2.2)}[order]
    return [
        tag("line", **{f"{axis}{end}": f"{value:.1f}" for end, spot in ((1, a), (2, b))
                       for axis, value in zip("xy", spot + s * side, strict=True)})
        for s in shifts
    ]  # fmt: skip


def _circle(spot: np.ndarray, radius: float, kind: str) -> Markup:
    return tag("circle", cx=f"{spot[0]:.1f}", cy=f"{spot[1]:.1f}", r=radius, class_=kind)


def _atom(spot: np.ndarray, symbol: str) -> Markup:
    if not symbol:
        return _circle(spot, 1.6, "none")
    kind = f"atom {symbol}" if symbol in ELEMENTS else "atom"
    return join([_circle(spot, 6.5, kind), tag("text", symbol, x=f"{spot[0]:.1f}", y=f"{spot[1] + 2.9:.1f}")])


def molecule_svg(smiles: str) -> Markup | None:
    """RDKit's drawing without background; dark pages invert it."""
    from rdkit import Chem, rdBase
    from rdkit.Chem.Draw import rdMolDraw2D

    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(smiles)
    if mol is None or not mol.GetNumAtoms():
        return None
    drawer = rdMolDraw2D.MolDraw2DSVG(180, 140)
    options = drawer.drawOptions()
    options.clearBackground = False
    options.bondLineWidth = 1
    options.padding = 0.08
    rdMolDraw2D.PrepareAndDrawMolecule(drawer, mol)
    drawer.FinishDrawing()
    svg = drawer.GetDrawingText()
    inner = re.sub(r"<!--.*?-->", "", svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")], flags=re.S)
    return tag("svg", Markup(inner), viewBox="0 0 180 140", class_="molecule", role="img", aria_label=smiles)


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
