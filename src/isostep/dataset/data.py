"""A dataset in memory: flat arrays, one split code per row, rows in published order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from isostep.base.errors import InputError
from isostep.item.encoding import Molecules, MoleculeSpec, flat_rows
from isostep.item.graph import Graph

SPLITS = ("train", "val", "test")
Arrays: TypeAlias = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Graphs or molecules with their published split; `source` says where they came from."""

    name: str
    kind: Literal["graph", "molecule"]
    source: str
    spec: MoleculeSpec | None = None
    arrays: Arrays = field(default_factory=dict, repr=False)

    def rows(self, which: str) -> np.ndarray:
        """Indices of the rows of one split; "all" means every row."""
        split = self.arrays["split"]
        if which == "all":
            return np.arange(len(split))
        if which not in SPLITS:
            raise InputError(f"unknown split {which!r}; choose one of {', '.join(SPLITS)}, all")
        return np.flatnonzero(split == SPLITS.index(which))

    def split(self, which: str) -> list:
        """Graphs, or SMILES strings of molecules; a split that the benchmark does not have is empty."""
        rows = self.rows(which)
        if self.kind == "molecule":
            smiles = bytes(self.arrays["smiles"]).decode().split("\n")
            return [smiles[row] for row in rows]
        n, edges, ends = self.arrays["n"], self.arrays["edges"], self.arrays["edge_ends"]
        return [Graph(int(n[row]), edges[ends[row] : ends[row + 1]]) for row in rows]

    def encoded(self, which: str) -> Molecules:
        """Kekulized molecule graphs of a split; `.tensors(spec)` pads them."""
        if self.kind != "molecule":
            raise InputError(f"{self.name} holds graphs, not molecules; use split({which!r})")
        return self._molecules().take(self.rows(which))

    def positions(self, which: str) -> np.ndarray:
        """(atoms, 3) of the molecules of `encoded(which)`, one after the other, in ångström, centred."""
        if "positions" not in self.arrays:
            raise InputError(f"{self.name} has no positions; qm9-3d has")
        rows, _ = flat_rows(self._molecules().atom_ends, self.rows(which))
        return self.arrays["positions"][rows]

    def node_counts(self, which: str = "train") -> np.ndarray:
        """h[n] = number of graphs with n nodes."""
        sizes = self.arrays["n"] if self.kind == "graph" else self._molecules().counts
        return np.bincount(sizes[self.rows(which)])

    def _molecules(self) -> Molecules:
        return Molecules(*(self.arrays[key] for key in ("atoms", "bonds", "atom_ends", "bond_ends")))


def graph_arrays(graphs: list[Graph], split: np.ndarray) -> dict[str, np.ndarray]:
    """Flat form of graphs and their split codes."""
    return {
        "n": np.array([graph.n for graph in graphs], np.int64),
        "edges": np.concatenate([graph.edges for graph in graphs] or [np.zeros((0, 2), np.int64)]),
        "edge_ends": np.cumsum([0, *(len(graph.edges) for graph in graphs)]),
        "split": split.astype(np.int8),
    }


def molecule_arrays(smiles: list[str], molecules: Molecules, split: np.ndarray) -> dict[str, np.ndarray]:
    """Flat form of molecules; the SMILES strings are one text with a line each."""
    return {
        "smiles": np.frombuffer("\n".join(smiles).encode(), np.uint8),
        "atoms": molecules.atoms.astype(np.int8),
        "bonds": molecules.bonds.astype(np.int16),
        "atom_ends": molecules.atom_ends,
        "bond_ends": molecules.bond_ends,
        "split": split.astype(np.int8),
    }
