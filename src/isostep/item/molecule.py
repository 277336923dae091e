"""Molecules and graphs as tensors, and back.

Encoding (kekulized, hydrogens, charges and stereo marks left out), with s = `spec.scale`:
X_ic = [atom i is element c],  A_ij = (bond order of i and j) / s.

Decoding: bond order = number of cuts in {.5, 1.5, 2.5} that s A_ij reaches; atom i is the first element c with
X_ic > .5, and no atom if there is none. Bonds are added one by one; an N, O or S atom that RDKit refuses with a valence
one above 3, 2, 2 gets charge +1 (RDKit allows S up to 6, so in practice this concerns N and O). A molecule that passes
RDKit's property check now is *valid without correction*. Correction: while an atom exceeds its valence, its highest
bond loses one order. Of several fragments the one with the longest SMILES is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, repeat
from multiprocessing import get_context
from typing import TYPE_CHECKING, overload

import numpy as np

from isostep.base.errors import InputError
from isostep.item.graph import Graph, located

if TYPE_CHECKING:
    import torch
    from rdkit.Chem import Mol, RWMol

CUTS = (0.5, 1.5, 2.5)
# Valence above which one more is answered with a charge of +1.
CHARGEABLE = {"N": 3, "O": 2, "S": 2}


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
        atom_rows, atom_ends = _rows(self.atom_ends, chosen)
        bond_rows, bond_ends = _rows(self.bond_ends, chosen)
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


def _rows(ends: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Flat rows that belong to the chosen items, and the items' new ends."""
    lengths = np.diff(ends)[chosen]
    new_ends = np.concatenate([[0], np.cumsum(lengths)])
    return np.repeat(ends[chosen] - new_ends[:-1], lengths) + np.arange(new_ends[-1]), new_ends


@dataclass(frozen=True, eq=False)
class Decoded:
    """One decoded molecule: canonical SMILES after correction ("" if nothing is left), and its RDKit form.

    `valid`: there is an atom, and RDKit's property check passed before any correction.
    """

    smiles: str
    valid: bool
    mol: Mol | None = None


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


def decode(
    x: torch.Tensor, a: torch.Tensor, mask: torch.Tensor | None, spec: MoleculeSpec, workers: int = 1
) -> list[Decoded]:
    """Molecules of X (B, N, F), A (B, N, N) and mask (B, N); the lower triangle of A counts.

    With several `workers` RDKit works in so many processes, which take a second or two to start.
    """
    batch, nodes, kinds = x.shape
    if kinds != len(spec.atoms) or a.shape != (batch, nodes, nodes) or (mask is not None and mask.shape != x.shape[:2]):
        raise InputError(
            f"X must be (B, N, {len(spec.atoms)}), A (B, N, N) and mask (B, N); got X {tuple(x.shape)}, "
            f"A {tuple(a.shape)}, mask {None if mask is None else tuple(mask.shape)}"
        )
    present = (x.detach() > 0.5).cpu().numpy()
    real = np.any(present, -1)
    if mask is not None:
        real = real & mask.detach().cpu().bool().numpy()
    kind = present.argmax(-1)
    orders = _bond_orders(a.detach().cpu().double().numpy() * spec.scale, real)
    arrays = (kind, real, _charges(kind, orders, spec), orders)
    if workers == 1 or batch < 2:
        return _molecules(arrays, spec)
    shares = zip(*(np.array_split(array, 4 * workers) for array in arrays), strict=True)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(chain.from_iterable(pool.map(_molecules, shares, repeat(spec))))


def _molecules(arrays: tuple[np.ndarray, ...], spec: MoleculeSpec) -> list[Decoded]:
    from rdkit import rdBase

    kind, real, charges, orders = arrays
    with rdBase.BlockLogs():
        return [_molecule(kind[b], real[b], charges[b], orders[b], spec) for b in range(len(kind))]


def _bond_orders(scaled: np.ndarray, real: np.ndarray) -> np.ndarray:
    lower = np.tril(sum((scaled >= cut).astype(np.int8) for cut in CUTS), -1)
    return (lower + lower.swapaxes(1, 2)) * (real[:, :, None] & real[:, None, :])


def _charges(kind: np.ndarray, orders: np.ndarray, spec: MoleculeSpec) -> np.ndarray:
    """+1 where the valence, grown bond by bond, passes through exactly the chargeable excess.

    Bonds enter row by row of the lower triangle; for one atom that is the order of its neighbours' numbers,
    so a running sum along the row gives every valence the atom has had.
    """
    grown = np.cumsum(orders, -1, dtype=np.int16)
    return (grown == _charge_at(spec.atoms)[kind][:, :, None]).any(-1).astype(np.int8)


@cache
def _charge_at(atoms: tuple[str, ...]) -> np.ndarray:
    """Per element the valence that brings a charge; -1 (never reached) where RDKit allows that valence anyway."""
    from rdkit.Chem import GetPeriodicTable

    largest = {symbol: max(GetPeriodicTable().GetValenceList(symbol)) for symbol in atoms}
    excess = {symbol: CHARGEABLE.get(symbol, -2) + 1 for symbol in atoms}
    return np.array([excess[symbol] if excess[symbol] > largest[symbol] else -1 for symbol in atoms])


def _molecule(
    kind: np.ndarray, real: np.ndarray, charges: np.ndarray, orders: np.ndarray, spec: MoleculeSpec
) -> Decoded:
    from rdkit import Chem

    if not real.any():
        return Decoded("", False)
    mol = Chem.RWMol()
    place = {}
    for node in np.flatnonzero(real).tolist():
        atom = Chem.Atom(spec.atoms[kind[node]])
        atom.SetFormalCharge(int(charges[node]))
        place[node] = mol.AddAtom(atom)
    types = (Chem.BondType.ZERO, Chem.BondType.SINGLE, Chem.BondType.DOUBLE, Chem.BondType.TRIPLE)
    for i, j in np.argwhere(np.tril(orders)).tolist():
        mol.AddBond(place[i], place[j], types[orders[i, j]])
    valid = correct(mol)
    largest = max(Chem.MolToSmiles(mol).split("."), key=len)
    whole = Chem.MolFromSmiles(largest)
    return Decoded("" if whole is None else Chem.MolToSmiles(whole), valid, whole)


def correct(mol: RWMol) -> bool:
    """Lower bonds in place until RDKit's property check passes; True if nothing had to be lowered."""
    from rdkit import Chem

    lower = {Chem.BondType.TRIPLE: Chem.BondType.DOUBLE, Chem.BondType.DOUBLE: Chem.BondType.SINGLE}
    untouched = True
    while problems := Chem.DetectChemistryProblems(mol, Chem.SanitizeFlags.SANITIZE_PROPERTIES):
        untouched = False
        atom = mol.GetAtomWithIdx(problems[0].GetAtomIdx())
        bond = max(atom.GetBonds(), key=lambda b: b.GetBondTypeAsDouble())
        if bond.GetBondType() in lower:
            bond.SetBondType(lower[bond.GetBondType()])
        else:
            mol.RemoveBond(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
    mol.UpdatePropertyCache(strict=False)
    return untouched


def decode_graphs(a: torch.Tensor, mask: torch.Tensor | None = None) -> list[Graph]:
    """Generic graphs of A (B, N, N): edge where A >= .5; loops and isolated nodes go, an empty graph is one node."""
    edge = np.triu((a.detach().cpu() >= 0.5).numpy(), 1)
    if mask is not None:
        real = mask.detach().cpu().bool().numpy()
        edge = edge & real[:, :, None] & real[:, None, :]
    linked = np.any(edge, 1) | np.any(edge, 2)
    return [
        Graph.from_adjacency(one[keep][:, keep]) if keep.any() else Graph.of(1, [])
        for one, keep in zip(edge, linked, strict=True)
    ]
