"""Molecules as tensors (kekulized, hydrogens, charges and stereo marks left out), with s = `spec.scale`:

X_ic = [atom i is element c],  A_ij = (bond order of i and j) / s.
"""

# RDKit's stubs leave types open and know no None.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnnecessaryComparison=false
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

import numpy as np

from isostep.base.errors import InputError, located

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class MoleculeSpec:
    """What the tensors of a molecule model mean: elements of X in order, A = bond order / scale, most atoms."""

    atoms: tuple[str, ...]
    max_nodes: int = field(kw_only=True)
    scale: float = field(default=3.0, kw_only=True)

    def __post_init__(self) -> None:
        if not self.atoms or len(set(self.atoms)) != len(self.atoms):
            raise InputError(f"atoms must be different element symbols, at least one, got {self.atoms!r}")
        if not self.scale > 0 or self.max_nodes < 1:
            raise InputError(
                f"scale and max_nodes must be positive, got scale {self.scale} and max_nodes {self.max_nodes}"
            )


@dataclass(frozen=True, eq=False)
class MoleculeGraph:
    """Element index of each atom (n,), and bonds (m, 3) as rows i < j, order 1..3."""

    atoms: np.ndarray
    bonds: np.ndarray


@dataclass(frozen=True, eq=False)
class Molecules(Sequence[MoleculeGraph]):
    """Many molecules in four flat arrays: molecule k owns atoms[atom_ends[k]:atom_ends[k + 1]], bonds likewise."""

    atoms: np.ndarray
    bonds: np.ndarray
    atom_ends: np.ndarray
    bond_ends: np.ndarray

    @staticmethod
    def of(graphs: Iterable[MoleculeGraph]) -> Molecules:
        graphs = list(graphs)
        return Molecules(
            np.concatenate([g.atoms for g in graphs] or [np.zeros(0, np.int16)]),
            np.concatenate([g.bonds for g in graphs] or [np.zeros((0, 3), np.int16)]),
            np.cumsum([0, *(len(g.atoms) for g in graphs)]),
            np.cumsum([0, *(len(g.bonds) for g in graphs)]),
        )

    def __len__(self) -> int:
        return len(self.atom_ends) - 1

    @overload
    def __getitem__(self, k: int) -> MoleculeGraph: ...
    @overload
    def __getitem__(self, k: slice) -> list[MoleculeGraph]: ...
    def __getitem__(self, k: int | slice) -> MoleculeGraph | list[MoleculeGraph]:
        if isinstance(k, slice):
            return [self[i] for i in range(*k.indices(len(self)))]
        k = range(len(self))[k]
        return MoleculeGraph(
            self.atoms[self.atom_ends[k] : self.atom_ends[k + 1]], self.bonds[self.bond_ends[k] : self.bond_ends[k + 1]]
        )

    @property
    def counts(self) -> np.ndarray:
        """Atoms per molecule."""
        return np.diff(self.atom_ends)

    def take(self, chosen: np.ndarray) -> Molecules:
        """The molecules with these indices, in this order."""
        atom_rows, atom_ends = flat_rows(self.atom_ends, chosen)
        bond_rows, bond_ends = flat_rows(self.bond_ends, chosen)
        return Molecules(self.atoms[atom_rows], self.bonds[bond_rows], atom_ends, bond_ends)

    def tensors(
        self, spec: MoleculeSpec, chosen: np.ndarray | Sequence[int] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """X (B, N, F), A (B, N, N) and node mask (B, N), float32, padded to `spec.max_nodes`."""
        import torch

        part = self if chosen is None else self.take(np.asarray(chosen, np.int64))
        if (most := int(part.counts.max(initial=0))) > spec.max_nodes:
            raise InputError(f"a molecule has {most} atoms, but max_nodes is {spec.max_nodes}; raise max_nodes")
        batch, nodes = len(part), spec.max_nodes
        owner = np.repeat(np.arange(batch), part.counts)
        place = np.arange(len(part.atoms)) - part.atom_ends[owner]
        x = np.zeros((batch, nodes, len(spec.atoms)), np.float32)
        x[owner, place, part.atoms] = 1
        mask = np.zeros((batch, nodes), np.float32)
        mask[owner, place] = 1
        owner = np.repeat(np.arange(batch), np.diff(part.bond_ends))
        i, j, order = part.bonds.T
        a = np.zeros((batch, nodes, nodes), np.float32)
        a[owner, i, j] = a[owner, j, i] = order / spec.scale
        return torch.from_numpy(x), torch.from_numpy(a), torch.from_numpy(mask)


def flat_rows(ends: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Flat rows that belong to the chosen items, and the items' new ends."""
    lengths = np.diff(ends)[chosen]
    new_ends = np.concatenate([[0], np.cumsum(lengths)])
    return np.repeat(ends[chosen] - new_ends[:-1], lengths) + np.arange(new_ends[-1]), new_ends


def encode(smiles: Iterable[str], spec: MoleculeSpec) -> list[MoleculeGraph]:
    """Kekulized graphs of SMILES strings; a bad one raises with its number, counted from 1."""
    one = encoder(spec)
    graphs = []
    for number, text in enumerate(smiles, start=1):
        with located(f"molecule {number}"):
            graphs.append(one(text))
    return graphs


def encoder(spec: MoleculeSpec) -> Callable[[str], MoleculeGraph]:
    """The function that turns one SMILES string into its kekulized graph."""
    from rdkit import Chem, rdBase

    index = {Chem.Atom(symbol).GetAtomicNum(): c for c, symbol in enumerate(spec.atoms)}

    def one(text: str) -> MoleculeGraph:
        with rdBase.BlockLogs():
            mol = Chem.MolFromSmiles(text)
        if mol is None or not mol.GetNumAtoms():
            raise InputError(f"RDKit cannot read the SMILES {text[:60]!r}; remove or mend it")
        if mol.GetNumAtoms() > spec.max_nodes:
            raise InputError(
                f"{text[:60]!r} has {mol.GetNumAtoms()} heavy atoms, more than the {spec.max_nodes} allowed; remove it"
            )
        Chem.Kekulize(mol, clearAromaticFlags=True)
        try:
            atoms = [index[atom.GetAtomicNum()] for atom in mol.GetAtoms()]
        except KeyError:
            strange = sorted({a.GetSymbol() for a in mol.GetAtoms()} - set(spec.atoms))
            raise InputError(
                f"{text[:60]!r} holds {', '.join(strange)}; remove it, the elements are {', '.join(spec.atoms)}"
            ) from None
        orders = np.triu(Chem.GetAdjacencyMatrix(mol, useBO=True))
        i, j = np.nonzero(orders)
        return MoleculeGraph(np.array(atoms, np.int16), np.stack([i, j, orders[i, j]], 1).astype(np.int16))

    return one
