"""A dataset in memory: flat arrays, one split code per row, rows in published order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from isostep.base.errors import InputError
from isostep.item.encoding import Molecules, MoleculeSpec, flat_rows
from isostep.item.graph import Graph
from isostep.item.molecule import Molecule

SPLITS = ("train", "val", "test")
STAND_IN = "stand-in, "  # how the source of generated graphs begins that a benchmark's file would replace
Arrays: TypeAlias = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Dataset(ABC):
    """Items with their published split; `source` says where they came from."""

    kind: ClassVar[str]
    features: ClassVar[tuple[str, ...]]  # what nodes of training examples can carry

    name: str
    source: str
    spec: MoleculeSpec | None = None
    arrays: Arrays = field(default_factory=dict, repr=False)

    @property
    def title(self) -> str:
        """The name; where generated graphs stand in for the benchmark's file, it says so."""
        return f"{self.name} (generated stand-in)" if self.source.startswith(STAND_IN) else self.name

    def rows(self, which: str) -> np.ndarray:
        """Indices of the rows of one split; "all" means every row."""
        split = self.arrays["split"]
        if which == "all":
            return np.arange(len(split))
        if which not in SPLITS:
            raise InputError(f"unknown split {which!r}; choose one of {', '.join(SPLITS)}, all")
        return np.flatnonzero(split == SPLITS.index(which))

    @abstractmethod
    def split(self, which: str) -> list[Any]:
        """Graphs, or SMILES strings of molecules; a split that the benchmark does not have is empty."""

    def with_test(self, which: str) -> Dataset:
        """The same rows with the split `which` in the place of the test split, and the other way round."""
        split = self.arrays["split"]
        swapped = split.copy()
        swapped[self.rows(which)], swapped[self.rows("test")] = SPLITS.index("test"), SPLITS.index(which)
        return replace(self, arrays={**self.arrays, "split": swapped})

    def encoded(self, which: str) -> Molecules:
        """Kekulized molecule graphs of a split; `.tensors(spec)` pads them."""
        raise InputError(f"{self.name} holds {self.kind}s, not molecules; use split({which!r})")

    def positions(self, which: str) -> np.ndarray:
        """(atoms, 3) of the molecules of `encoded(which)`, one after the other, in ångström, centred."""
        raise InputError(f"{self.name} has no positions; qm9-3d has")

    def node_counts(self, which: str = "train") -> np.ndarray:
        """h[n] = number of graphs with n nodes."""
        return np.bincount(self.sizes[0][self.rows(which)])

    @property
    @abstractmethod
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """Nodes and edges of every row."""


class GraphDataset(Dataset):
    kind = Graph.kind
    features = ("eigenvectors", "degree")

    def split(self, which: str) -> list[Graph]:
        n, edges, ends = self.arrays["n"], self.arrays["edges"], self.arrays["edge_ends"]
        return [Graph(int(n[row]), edges[ends[row] : ends[row + 1]]) for row in self.rows(which)]

    @property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        return self.arrays["n"], np.diff(self.arrays["edge_ends"])


class MoleculeDataset(Dataset):
    kind = Molecule.kind
    features = ("atoms",)

    def split(self, which: str) -> list[str]:
        smiles = bytes(self.arrays["smiles"]).decode().split("\n")
        return [smiles[row] for row in self.rows(which)]

    def encoded(self, which: str) -> Molecules:
        return self._molecules().take(self.rows(which))

    def positions(self, which: str) -> np.ndarray:
        if "positions" not in self.arrays:
            return super().positions(which)
        rows, _ = flat_rows(self._molecules().atom_ends, self.rows(which))
        return self.arrays["positions"][rows]

    @property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        return self._molecules().counts, np.diff(self.arrays["bond_ends"])

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
