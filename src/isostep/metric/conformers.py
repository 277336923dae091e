"""Metrics of geometry: molecules with positions, as they were generated.

bond_length, bond_angle: Wasserstein-1 distance of the values of each type to those of the reference, averaged over the
types by their share in the reference. A bond's type is its elements and order (C2O), an angle's the two bonds that meet
in its atom (C1C2O: the angle C-C=O).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from isostep.base.errors import InputError
from isostep.item.conformer import Conformer
from isostep.metric.base import Measure
from isostep.metric.molecules import Arrays, FittedMetric

QUANTILES = (np.arange(100) + 0.5) / 100
LEAST_SHARE = 0.002  # rarer types say little
Values = tuple[list[str], list[float], list[int]]  # types, values, number of the molecule


class ConformerMetric(FittedMetric):
    """Of molecules with positions."""

    equals = "ours"
    bounds = (0.0, np.inf)
    needs = "positions, such as qm9-3d"


class TypedDistance(ConformerMetric):
    """Distance of the laws of a number that every part of a type has."""

    better = "lower"
    parts: ClassVar[Callable[[Conformer], list[tuple[str, float]]]]

    def fit(self, reference: Sequence[Conformer]) -> dict[str, np.ndarray]:
        types, values, _ = self._values(reference)
        kinds, place, counts = np.unique(types, return_inverse=True, return_counts=True)
        kept = np.flatnonzero(counts >= LEAST_SHARE * len(types))
        if not len(kept):
            raise InputError(f"{self.name}: the reference has no bonds; give molecules of several atoms")
        laws = [np.quantile(np.array(values)[place == k], QUANTILES) for k in kept]
        return {"types": kinds[kept], "share": counts[kept] / len(types), "laws": np.array(laws, np.float32)}

    def compare(self, generated: Sequence[Conformer], reference: Arrays) -> Measure:
        from scipy.stats import wasserstein_distance  # here, because it takes half a second to import

        types, values, owner = (np.array(column) for column in self._values(generated))
        found = []
        for kind, share, law in zip(*(reference[key] for key in ("types", "share", "laws")), strict=True):
            rows = np.flatnonzero(types == kind)
            found.append((float(share), law.astype(float), values[rows], owner[rows]))

        def measure(weights: np.ndarray) -> float:
            total, seen = 0.0, 0.0
            for share, law, mine, whose in found:
                if len(whose) and (heavy := weights[whose]).sum() > 0:
                    total += share * wasserstein_distance(mine, law, heavy)
                    seen += share
            return total / seen if seen else np.inf

        return measure

    def _values(self, conformers: Sequence[Conformer]) -> Values:
        rows = [(*part, k) for k, one in enumerate(conformers) for part in type(self).parts(one)]
        return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def bond_lengths(molecule: Conformer) -> list[tuple[str, float]]:
    points = np.array(molecule.positions).reshape(-1, 3)
    out = []
    for i, j, order in molecule.bonds:
        first, last = sorted((molecule.atoms[i], molecule.atoms[j]))
        out.append((f"{first}{order}{last}", float(np.linalg.norm(points[i] - points[j]))))
    return out


def bond_angles(molecule: Conformer) -> list[tuple[str, float]]:
    """Degrees."""
    points = np.array(molecule.positions).reshape(-1, 3)
    arms: dict[int, list[tuple[str, int, int]]] = {}
    for i, j, order in molecule.bonds:
        arms.setdefault(i, []).append((molecule.atoms[j], order, j))
        arms.setdefault(j, []).append((molecule.atoms[i], order, i))
    out = []
    for centre, ends in arms.items():
        ends = sorted(ends)
        for k, (first, order, i) in enumerate(ends):
            for last, second, j in ends[k + 1 :]:
                u, v = points[i] - points[centre], points[j] - points[centre]
                cosine = u @ v / max(float(np.linalg.norm(u) * np.linalg.norm(v)), 1e-12)
                kind = f"{first}{order}{molecule.atoms[centre]}{second}{last}"
                out.append((kind, float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))))
    return out


class BondLength(TypedDistance):
    name = "bond_length"
    definition = "Wasserstein distance of bond lengths by elements and order, mean over types, in angstrom"
    parts = staticmethod(bond_lengths)


class BondAngle(TypedDistance):
    name = "bond_angle"
    definition = "Wasserstein distance of angles by the two bonds that meet, mean over types, in degrees"
    parts = staticmethod(bond_angles)


class Share(ConformerMetric):
    """Of the molecules that have a property."""

    better = "higher"
    bounds = (0.0, 1.0)
    holds: ClassVar[Callable[[Conformer], bool]]

    def compare(self, generated: Sequence[Conformer], reference: Arrays) -> Measure:
        flags = np.array([type(self).holds(one) for one in generated], float)
        return lambda weights: round(float(weights @ flags), 12)


class NoClash(Share):
    name = "no_clash"
    definition = "share of molecules without atoms closer than 1.1 times the sum of their covalent radii, unless bonded"
    holds = staticmethod(lambda molecule: not molecule.clashes())


class BondsAgree(Share):
    name = "bonds_agree"
    definition = (
        "share of molecules whose pairs closer than 1.2 times the sum of their covalent radii are the generated bonds"
    )
    holds = staticmethod(lambda molecule: molecule.near_pairs() == {bond[:2] for bond in molecule.bonds})


class Relaxation(NamedTuple):
    """MMFF energies in kcal/mol per heavy atom, hydrogens added; root mean square shift of the heavy atoms."""

    before: float
    after: float
    rmsd: float


@functools.lru_cache(maxsize=20_000)
def relax(molecule: Conformer) -> Relaxation | None:
    """None for what MMFF does not know, and for molecules that were not valid as generated."""
    from rdkit import Chem, rdBase
    from rdkit.Chem import AllChem, rdMolAlign

    mol = molecule.to_rdkit() if molecule.valid else None
    if mol is None or mol.GetNumAtoms() < 2:
        return None
    with rdBase.BlockLogs():
        whole = Chem.AddHs(mol, addCoords=True)
        known = AllChem.MMFFGetMoleculeProperties(whole)  # type: ignore[attr-defined]
        field = None if known is None else AllChem.MMFFGetMoleculeForceField(whole, known)  # type: ignore[attr-defined]
        if field is None:
            return None
        before = field.CalcEnergy()
        field.Minimize(maxIts=500)
        heavy = [(k, k) for k in range(mol.GetNumAtoms())]
        rmsd = rdMolAlign.AlignMol(whole, mol, atomMap=heavy)
    return Relaxation(before / mol.GetNumAtoms(), field.CalcEnergy() / mol.GetNumAtoms(), rmsd)


class Relaxed(ConformerMetric):
    """The median over the molecules that MMFF can relax."""

    better = "lower"
    of: ClassVar[Callable[[Relaxation], float]]

    def compare(self, generated: Sequence[Conformer], reference: Arrays) -> Measure:
        found = [(k, done) for k, one in enumerate(generated) if (done := relax(one)) is not None]
        rows = np.array([k for k, _ in found], int)
        values = np.array([type(self).of(done) for _, done in found])
        order = values.argsort()
        rows, values = rows[order], values[order]

        def measure(weights: np.ndarray) -> float:
            reached = weights[rows].cumsum()
            return float(values[np.searchsorted(reached, reached[-1] / 2)]) if len(rows) and reached[-1] > 0 else np.inf

        energies = {key: float(np.median([getattr(d, key) for _, d in found])) for key in ("before", "after") if found}
        measure.details = {"relaxed": len(found), **energies}  # type: ignore[attr-defined]
        return measure


class Strain(Relaxed):
    name = "strain"
    definition = (
        "median MMFF energy per heavy atom that relaxation sets free, kcal/mol; valid molecules, hydrogens added"
    )
    of = staticmethod(lambda done: done.before - done.after)


class RelaxRmsd(Relaxed):
    name = "relax_rmsd"
    definition = "median root mean square shift of the heavy atoms in MMFF relaxation, in angstrom; valid molecules"
    of = staticmethod(lambda done: done.rmsd)


CONFORMER_METRICS: tuple[ConformerMetric, ...] = (
    BondLength(),
    BondAngle(),
    NoClash(),
    BondsAgree(),
    Strain(),
    RelaxRmsd(),
)
