"""QM9 with positions: what the package qm9pack carries of every molecule, hydrogens left out.

Heavy atoms stand in one order in the SMILES and among the coordinates. That is checked molecule by molecule: equal
elements; bonds as long as the covalent radii say; no other pair closer than a bond could be. Molecules that fail are
counted and left out.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isostep.base.errors import InputError
from isostep.base.progress import progress
from isostep.dataset.data import SPLITS, Dataset, molecule_arrays
from isostep.dataset.package import Package
from isostep.item.conformer import APART, DECIMALS, Conformer, relative_distances
from isostep.item.encoding import MoleculeGraph, Molecules, MoleculeSpec, encoder

BOND = (0.7, 1.25)  # length of a bond, in sums of covalent radii
LEFT_OUT = "left_out"


class Row(NamedTuple):
    """A molecule as the package has it; `number` is that of the published order."""

    number: int
    smiles: str
    elements: list[str]
    positions: np.ndarray


def read_conformers(
    package: Package, place: Path, folders: Iterable[Path], spec: MoleculeSpec
) -> dict[str, np.ndarray]:
    """Arrays of molecules with `positions` (atoms, 3), centred, in ångström; `left_out` counts what did not fit."""
    folders = list(folders)
    test, encode = _test_rows(package, folders), encoder(spec)
    smiles, graphs, positions, split, left_out = [], [], [], [], 0
    with progress("reading conformers", package.held, "molecules") as advance:
        for row in _rows(package, place):
            advance()
            graph, points = encode(row.smiles), row.positions[[element != "H" for element in row.elements]]
            if not _fits(graph, row, points, spec):
                left_out += 1
                continue
            smiles.append(row.smiles)
            graphs.append(graph)
            positions.append(points - points.mean(0))
            split.append(SPLITS.index("test" if row.number in test else "train"))
    if not graphs:
        raise InputError(f"package {package.name} holds no usable conformer; install version 1.0.3")
    arrays = molecule_arrays(smiles, Molecules.of(graphs), np.array(split))
    return {**arrays, "positions": np.concatenate(positions).astype(np.float32), LEFT_OUT: np.array(left_out)}


def conformers(dataset: Dataset, which: str, most: int | None = None) -> list[Conformer]:
    """Molecules of a split with their positions, in a fixed random order; the first `most` of them."""
    from rdkit import Chem

    molecules, points, smiles = dataset.encoded(which), dataset.positions(which), dataset.split(which)
    order = np.random.default_rng(0).permutation(len(molecules))[:most]
    spec, out = dataset.spec, []
    assert spec is not None
    for k in order.tolist():
        graph, mol = molecules[k], Chem.MolFromSmiles(smiles[k])
        spots = points[molecules.atom_ends[k] : molecules.atom_ends[k + 1]].round(DECIMALS)
        out.append(
            Conformer(
                Chem.MolToSmiles(mol),
                True,
                tuple(spec.atoms[c] for c in graph.atoms),
                tuple(atom.GetFormalCharge() for atom in mol.GetAtoms()),
                tuple((i, j, order) for i, j, order in graph.bonds.tolist()),
                tuple((x, y, z) for x, y, z in spots.tolist()),
            )
        )
    return out


def _fits(graph: MoleculeGraph, row: Row, points: np.ndarray, spec: MoleculeSpec) -> bool:
    atoms = [spec.atoms[k] for k in graph.atoms]
    if atoms != [element for element in row.elements if element != "H"]:
        return False
    relative = relative_distances(atoms, points)
    i, j, _ = graph.bonds.T
    bonded = np.eye(len(points), dtype=bool)
    bonded[i, j] = bonded[j, i] = True
    lengths = relative[i, j]
    return bool(((lengths > BOND[0]) & (lengths < BOND[1])).all() and (relative[~bonded] > APART).all())


def _rows(package: Package, place: Path) -> Iterator[Row]:
    for part in package.files:
        with open(place / part, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if not {"Index", "SMILES", "Elements", "XYZ_Ang"} <= set(reader.fieldnames or ()):
                raise InputError(f"{file.name}, line 1: expected columns Index, SMILES, Elements, XYZ_Ang")
            for row in reader:
                elements = row["Elements"].strip("[]").replace("'", "").split(",")
                # Numbers such as `1.` are not JSON.
                points = json.loads(row["XYZ_Ang"].replace(".,", ".0,").replace(".]", ".0]"))
                yield Row(int(row["Index"]) - 1, row["SMILES"], elements, np.array(points))


def _test_rows(package: Package, folders: list[Path]) -> set[int]:
    """From a file of the whole set with its split, else the published list."""
    for folder in folders:
        for path in (folder / "qm9.csv.gz", folder / "qm9.csv"):
            if path.is_file():
                with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as file:
                    return {k for k, row in enumerate(csv.DictReader(file)) if row["test"] == "1"}
    return package.test_rows(folders)
