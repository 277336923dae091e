"""Graphs and molecules as small pictures: SVG in the page's colours, and 3D coordinates for the viewer."""

from __future__ import annotations

import html
import re
from typing import Any

import networkx
import numpy as np

from isostep.item.graph import Graph

Positions = np.ndarray  # (n, 2), inside the unit square
SERIES = 6
SIZE, MARGIN = 120, 9


def layout(graph: networkx.Graph) -> Positions:
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


def groups(graph: networkx.Graph) -> list[int]:
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


def graph_svg(
    n: int, edges: list[list[int]], spots: Positions, colour: list[int], label: str, atoms: list[str] | None = None
) -> str:
    """One graph; edges are [i, j] or [i, j, order]."""
    place = MARGIN + spots * (SIZE - 2 * MARGIN)
    dense = len(edges) > 3 * max(n, 1)
    lines = "".join(_edge(place[i], place[j], order[0] if order else 1) for i, j, *order in edges)
    radius = 3.4 if n <= 24 else 2.4 if n <= 70 else 1.6
    nodes = "".join(
        _atom(place[k], atoms[k]) if atoms is not None else
        f'<circle cx="{place[k][0]:.1f}" cy="{place[k][1]:.1f}" r="{radius}" class="s{colour[k]}"/>'
        for k in range(n)
    )  # fmt: skip
    kind = "graph dense" if dense else "graph"
    return (
        f'<svg viewBox="0 0 {SIZE} {SIZE}" class="{kind}" role="img" aria-label="{html.escape(label)}">'
        f"<g>{lines}</g>{nodes}</svg>"
    )


def plain_graph_svg(graph: Graph, label: str) -> str:
    net = graph.to_networkx()
    return graph_svg(graph.n, graph.edges.tolist(), layout(net), groups(net), label)


def picture_graph(picture: dict[str, Any]) -> networkx.Graph:
    graph = networkx.empty_graph(picture["n"])
    graph.add_edges_from((i, j) for i, j, _ in picture["edges"])
    return graph


def _edge(a: np.ndarray, b: np.ndarray, order: int) -> str:
    """A bond of order 2 or 3 has as many lines side by side."""
    along = b - a
    side = np.array([-along[1], along[0]]) / max(float(np.hypot(*along)), 1e-9)
    shifts = {1: (0.0,), 2: (-1.3, 1.3), 3: (-2.2, 0.0, 2.2)}[min(order, 3)]
    return "".join(
        f'<line x1="{a[0] + s * side[0]:.1f}" y1="{a[1] + s * side[1]:.1f}" '
        f'x2="{b[0] + s * side[0]:.1f}" y2="{b[1] + s * side[1]:.1f}"/>'
        for s in shifts
    )


def _atom(spot: np.ndarray, symbol: str) -> str:
    x, y = spot
    if not symbol:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.6" class="none"/>'
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6.5" class="atom {symbol}"/>'
        f'<text x="{x:.1f}" y="{y + 2.9:.1f}">{html.escape(symbol)}</text>'
    )


def molecule_svg(smiles: str) -> str | None:
    """RDKit's drawing without background; dark pages invert it."""
    from rdkit import Chem
    from rdkit.Chem.Draw import rdMolDraw2D

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
    svg = re.sub(r"<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.S)
    label = html.escape(smiles, quote=True)
    return re.sub(
        r"<svg[^>]*>",
        f'<svg viewBox="0 0 180 140" class="molecule" role="img" aria-label="{label}">',
        svg,
        count=1,
    )


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
