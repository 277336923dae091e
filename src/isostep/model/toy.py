"""The analytic model and its own law as a reference: quick checks of studies, since the answer is known."""

from __future__ import annotations

from pathlib import Path

from isostep.base.cache import cache_folder
from isostep.item.graph import Graph
from isostep.metric.graph_reference import GraphReference
from isostep.model.analytic import NAME, NODES
from isostep.model.analytic import analytic_model as toy_model

__all__ = ["NAME", "NODES", "toy_model", "toy_reference"]


def toy_reference() -> Path:
    """The law's own graphs, half of each kind, as a reference file."""
    ring = Graph.of(NODES, [(i, (i + 1) % NODES) for i in range(NODES)])
    star = Graph.of(NODES, [(0, i) for i in range(1, NODES)])
    path = cache_folder() / "reference" / f"{NAME}.npz"
    if not path.is_file():
        GraphReference.fit([ring, star] * 20, [ring, star] * 20).save(path)
    return path
