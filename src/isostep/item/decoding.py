"""From a model's denoised tensors to items.

Graphs: an edge where A >= .5; loops and isolated nodes go, an empty graph is one node.

Molecules: bond order = number of cuts in {.5, 1.5, 2.5} that s A_ij reaches; atom i is the first element c with
X_ic > .5, and no atom if there is none. Bonds are added one by one; an N, O or S atom that RDKit refuses with a valence
one above 3, 2, 2 gets charge +1 (RDKit allows S up to 6, so in practice this concerns N and O). A molecule that passes
RDKit's property check now is *valid without correction*. Correction: while an atom exceeds its valence, its highest
bond loses one order. Of several fragments the one with the longest SMILES is kept.
"""

# RDKit's stubs leave types open and know no None.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnnecessaryComparison=false
from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from isostep.base.errors import InputError
from isostep.item.base import Decoder
from isostep.item.conformer import DECIMALS, Conformer
from isostep.item.encoding import MoleculeSpec
from isostep.item.film import CUTS, Sketch
from isostep.item.graph import Graph
from isostep.item.molecule import Molecule

if TYPE_CHECKING:
    import torch
    from rdkit.Chem import RWMol

    from isostep.state import GraphState

FAINT, MOST_FAINT = 0.1, 600  # what a sketch shows of edges that are not decided: from this chance, so many
# Valence above which one more is answered with a charge of +1.
CHARGEABLE = {"N": 3, "O": 2, "S": 2}


@dataclass(frozen=True)
class GraphDecoder:
    @property
    def levels(self) -> dict[str, float]:
        """What is decided: components whose entries, times this number, end on whole ones."""
        return {"A": 1.0}

    @property
    def item(self) -> type[Graph]:
        return Graph

    def __call__(self, mean: GraphState) -> list[Graph]:
        return decode_graphs(mean["A"], mean.mask)

    def sketch(self, state: GraphState, k: int) -> Sketch:
        nodes = int(state.mask[k].sum())
        edges, weights = _edges(state["A"][k, :nodes, :nodes], CUTS[:1], 1.0)
        return Sketch(n=nodes, edges=edges, weights=weights)


@dataclass(frozen=True)
class MoleculeDecoder:
    spec: MoleculeSpec

    @property
    def levels(self) -> dict[str, float]:
        return {"X": 1.0, "A": self.spec.scale}

    @property
    def item(self) -> type[Molecule]:
        return Molecule

    def __call__(self, mean: GraphState) -> list[Molecule]:
        return decode(mean["X"], mean["A"], mean.mask, self.spec)

    def sketch(self, state: GraphState, k: int) -> Sketch:
        nodes = int(state.mask[k].sum())
        edges, weights = _edges(state["A"][k, :nodes, :nodes], CUTS, self.spec.scale)
        x = np.nan_to_num(state["X"][k, :nodes].double().cpu().numpy())
        atoms = tuple(self.spec.atoms[kind] for kind in x.argmax(-1).tolist())
        return Sketch(n=nodes, edges=edges, atoms=atoms, weights=weights, chances=tuple(x.max(-1).clip(0, 1).tolist()))


@dataclass(frozen=True)
class ConformerDecoder(MoleculeDecoder):
    """Molecules with the positions P of their atoms."""

    @property
    def item(self) -> type[Conformer]:
        return Conformer

    def __call__(self, mean: GraphState) -> list[Conformer]:  # type: ignore[override]
        kinds, reals, charges, orders = arrays = _arrays(mean["X"], mean["A"], mean.mask, self.spec)
        points = np.round(mean["P"].detach().cpu().double().numpy(), DECIMALS)
        out: list[Conformer] = []
        for k, molecule in enumerate(_molecules(arrays, self.spec)):
            kept = np.flatnonzero(reals[k])
            order = np.triu(orders[k][np.ix_(kept, kept)])
            bonds = tuple((int(i), int(j), int(order[i, j])) for i, j in np.argwhere(order))
            atoms = tuple(self.spec.atoms[kind] for kind in kinds[k][kept])
            places = tuple((float(x), float(y), float(z)) for x, y, z in points[k][kept])
            own = (atoms, tuple(charges[k][kept].tolist()), bonds, places)
            out.append(Conformer(molecule.smiles, molecule.valid, *own))
        return out


def _edges(
    a: torch.Tensor, cuts: tuple[float, ...], scale: float
) -> tuple[tuple[tuple[int, int, int], ...], tuple[float, ...]]:
    """Pairs with their order, and how much of an edge each is; the strongest, where there are very many."""
    value = np.triu(a.double().cpu().numpy() * scale, 1)
    pairs = np.argwhere(value >= FAINT)
    strength = value[tuple(pairs.T)]
    order = (strength[:, None] >= np.array(cuts)).sum(-1)
    kept = order > 0
    kept[np.argsort(-strength, kind="stable")[:MOST_FAINT]] = True
    edges = tuple((int(i), int(j), int(o)) for (i, j), o in zip(pairs[kept], order[kept], strict=True))
    return edges, tuple(float(v) for v in strength[kept].clip(0, len(cuts)))


def decoder_for(atoms: tuple[str, ...] | None, max_nodes: int, scale: float) -> Decoder:
    """What a card says of its items: molecules of these atoms, or graphs where it names none."""
    if atoms is None:
        return GraphDecoder()
    return MoleculeDecoder(MoleculeSpec(atoms, max_nodes=max_nodes, scale=scale))


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


def decode(x: torch.Tensor, a: torch.Tensor, mask: torch.Tensor | None, spec: MoleculeSpec) -> list[Molecule]:
    """Molecules of X (B, N, F), A (B, N, N) and mask (B, N); the lower triangle of A counts."""
    batch, nodes, kinds = x.shape
    if kinds != len(spec.atoms) or a.shape != (batch, nodes, nodes) or (mask is not None and mask.shape != x.shape[:2]):
        raise InputError(
            f"X must be (B, N, {len(spec.atoms)}), A (B, N, N) and mask (B, N); got X {tuple(x.shape)}, "
            f"A {tuple(a.shape)}, mask {None if mask is None else tuple(mask.shape)}"
        )
    return _molecules(_arrays(x, a, mask, spec), spec)


def _arrays(
    x: torch.Tensor, a: torch.Tensor, mask: torch.Tensor | None, spec: MoleculeSpec
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Element and presence of every node (B, N), its charge, and bond orders (B, N, N)."""
    present = (x.detach() > 0.5).cpu().numpy()
    real = np.any(present, -1)
    if mask is not None:
        real = real & mask.detach().cpu().bool().numpy()
    kind = present.argmax(-1)
    orders = _bond_orders(a.detach().cpu().double().numpy() * spec.scale, real)
    return kind, real, _charges(kind, orders, spec), orders


def _molecules(arrays: tuple[np.ndarray, ...], spec: MoleculeSpec) -> list[Molecule]:
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
) -> Molecule:
    from rdkit import Chem

    if not real.any():
        return Molecule("", False)
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
    return Molecule("" if whole is None else Chem.MolToSmiles(whole), valid)


def correct(mol: RWMol) -> bool:
    """Lower bonds in place until RDKit's property check passes; True if nothing had to be lowered."""
    from rdkit import Chem

    lower = {Chem.BondType.TRIPLE: Chem.BondType.DOUBLE, Chem.BondType.DOUBLE: Chem.BondType.SINGLE}
    untouched = True
    while problems := Chem.DetectChemistryProblems(mol, Chem.SanitizeFlags.SANITIZE_PROPERTIES):
        untouched = False
        atom = mol.GetAtomWithIdx(problems[0].GetAtomIdx())
        bond: Any = max(atom.GetBonds(), key=Chem.Bond.GetBondTypeAsDouble)
        if bond.GetBondType() in lower:
            bond.SetBondType(lower[bond.GetBondType()])
        else:
            mol.RemoveBond(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
    mol.UpdatePropertyCache(strict=False)
    return untouched
