"""A generated molecule with the position of every atom. Its line is JSON."""

# RDKit's stubs leave types open and know no None.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnnecessaryComparison=false
from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from isostep.base.errors import InputError
from isostep.base.schema import Frozen
from isostep.item.molecule import Molecule

if TYPE_CHECKING:
    from rdkit.Chem import Mol

DECIMALS = 4  # of a position, in ångström
APART, NEAR = 1.1, 1.2  # in sums of covalent radii: closer atoms clash unless bonded; farther ones are not bonded


class _Line(Frozen):
    smiles: str
    valid: bool
    atoms: tuple[str, ...] = Field(max_length=10_000)
    charges: tuple[int, ...]
    bonds: tuple[tuple[int, int, int], ...]
    positions: tuple[tuple[float, float, float], ...]


_LINE = TypeAdapter(_Line)


@dataclass(frozen=True)
class Conformer(Molecule):
    """The molecule as generated, before correction: elements, charges, bonds i < j with their order, and positions in
    ångström. `smiles` and `valid` are those of the molecule after correction."""

    kind = "conformer"
    file = "conformers.jsonl"
    space = "Positions as generated"

    atoms: tuple[str, ...] = ()
    charges: tuple[int, ...] = ()
    bonds: tuple[tuple[int, int, int], ...] = ()
    positions: tuple[tuple[float, float, float], ...] = ()

    def __post_init__(self) -> None:
        n = len(self.atoms)
        if (len(self.charges), len(self.positions)) != (n, n):
            raise InputError(f"{n} atoms, {len(self.charges)} charges and {len(self.positions)} positions")
        if any(not (0 <= i < j < n and 1 <= order <= 3) for i, j, order in self.bonds):
            raise InputError(f"a bond leads outside of the {n} atoms, or has no order from 1 to 3")

    def to_line(self, index: int) -> str:
        return json.dumps(self.fields(), separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str, index: int | None = None) -> Conformer:
        try:
            found = _LINE.validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "line"
            raise InputError(f"{place}: {first['msg']}, got {line.strip()[:60]!r}") from None
        return cls(found.smiles, found.valid, found.atoms, found.charges, found.bonds, found.positions)

    def fields(self) -> dict[str, Any]:
        return {
            "smiles": self.smiles,
            "valid": self.valid,
            "atoms": list(self.atoms),
            "charges": list(self.charges),
            "bonds": [list(bond) for bond in self.bonds],
            "positions": [list(point) for point in self.positions],
        }

    @staticmethod
    def columns(arrow: Any) -> list[tuple[str, Any]]:
        whole = arrow.int64()
        return [
            ("smiles", arrow.string()),
            ("valid", arrow.bool_()),
            ("atoms", arrow.list_(arrow.string())),
            ("charges", arrow.list_(whole)),
            ("bonds", arrow.list_(arrow.list_(whole))),
            ("positions", arrow.list_(arrow.list_(arrow.float64()))),
        ]

    def row(self) -> dict[str, Any]:
        return {"smiles": self.smiles, "valid": self.valid, "atoms": len(self.atoms)}

    @cached_property
    def _relative(self) -> np.ndarray:
        """(n, n) distances over the sums of covalent radii."""
        return relative_distances(self.atoms, np.array(self.positions).reshape(-1, 3))

    def near_pairs(self) -> set[tuple[int, int]]:
        """Pairs i < j that are as close as bonded atoms."""
        return {(int(i), int(j)) for i, j in np.argwhere(np.triu(self._relative < NEAR, 1))}

    def clashes(self) -> set[tuple[int, int]]:
        """Pairs i < j without a bond that are too close."""
        close = {(int(i), int(j)) for i, j in np.argwhere(np.triu(self._relative < APART, 1))}
        return close - {(i, j) for i, j, _ in self.bonds}

    @cached_property
    def _corrected(self) -> Mol | None:
        """The largest piece after correction, with its conformer."""
        from rdkit import Chem, rdBase

        from isostep.item.decoding import correct

        mol = Chem.RWMol()
        for symbol, charge in zip(self.atoms, self.charges, strict=True):
            atom = Chem.Atom(symbol)
            atom.SetFormalCharge(charge)
            mol.AddAtom(atom)
        for i, j, order in self.bonds:
            mol.AddBond(i, j, Chem.BondType.values[order])
        shape = Chem.Conformer(len(self.atoms))
        for k, point in enumerate(self.positions):
            shape.SetAtomPosition(k, point)
        mol.AddConformer(shape, assignId=True)
        with rdBase.BlockLogs():
            correct(mol)
            pieces = Chem.GetMolFrags(mol, asMols=True, sanitizeFrags=False)
            if not pieces:
                return None
            _, piece = max(((len(Chem.MolToSmiles(one)), one) for one in pieces), key=itemgetter(0))
            return piece if Chem.SanitizeMol(piece, catchErrors=True) == Chem.SanitizeFlags.SANITIZE_NONE else None

    def to_rdkit(self) -> Mol | None:
        """With its conformer; None where correction left nothing."""
        from rdkit import Chem

        return None if self._corrected is None else Chem.Mol(self._corrected)

    def to_xyz(self, index: int) -> str:
        """An XYZ record of the atoms as generated."""
        spots = zip(self.atoms, self.positions, strict=True)
        rows = (f"{atom} {x:.{DECIMALS}f} {y:.{DECIMALS}f} {z:.{DECIMALS}f}" for atom, (x, y, z) in spots)
        return "\n".join((str(len(self.atoms)), f"{index} {self.smiles}", *rows)) + "\n"

    texts: ClassVar = {
        "smi": lambda molecule, index: Molecule.to_line(molecule, index) + "\n",
        "sdf": Molecule.to_sdf,
        "xyz": to_xyz,
    }

    def in_space(self) -> dict[str, Any] | None:
        """The generated positions."""
        if len(self.atoms) < 2:
            return None
        return {
            "smiles": self.smiles,
            "atoms": list(self.atoms),
            "xyz": [[round(value, 2) for value in point] for point in self.positions],
            "bonds": [list(bond) for bond in self.bonds],
        }


@cache
def covalent_radius(symbol: str) -> float:
    from rdkit.Chem import GetPeriodicTable

    return GetPeriodicTable().GetRcovalent(symbol)


def relative_distances(atoms: Sequence[str], points: np.ndarray) -> np.ndarray:
    """(n, n) distances over the sums of covalent radii."""
    radii = np.array([covalent_radius(symbol) for symbol in atoms])
    return np.linalg.norm(points[:, None] - points[None], axis=-1) / (radii[:, None] + radii[None])
