"""Small molecules with positions, made by RDKit: no data of any benchmark."""

from __future__ import annotations

from functools import cache

import numpy as np
from rdkit import Chem
from rdkit.Chem import AllChem

from isostep.item import Conformer
from isostep.item.encoding import MoleculeSpec

SPEC = MoleculeSpec(("C", "N", "O", "F"), max_nodes=9)
SMILES = (
    "CCO",
    "CC(=O)N",
    "C1CC1O",
    "CC#N",
    "OC1CCC1",
    "CCOC",
    "NC=O",
    "C1COC1",
    "CC(C)F",
    "C=CC=O",
    "CCCC",
    "C1CCNC1",
)


@cache
def conformer(smiles: str, seed: int = 0) -> Conformer:
    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    AllChem.EmbedMolecule(mol, randomSeed=seed)  # type: ignore[attr-defined]
    AllChem.MMFFOptimizeMolecule(mol)  # type: ignore[attr-defined]
    heavy = Chem.RemoveHs(mol)
    Chem.Kekulize(heavy, clearAromaticFlags=True)
    spots = heavy.GetConformer().GetPositions()
    bonds = sorted(
        (*sorted((b.GetBeginAtomIdx(), b.GetEndAtomIdx())), int(b.GetBondTypeAsDouble())) for b in heavy.GetBonds()
    )
    return Conformer(
        Chem.MolToSmiles(Chem.MolFromSmiles(smiles)),
        True,
        tuple(atom.GetSymbol() for atom in heavy.GetAtoms()),
        tuple(atom.GetFormalCharge() for atom in heavy.GetAtoms()),
        tuple((i, j, order) for i, j, order in bonds),
        tuple((x, y, z) for x, y, z in np.round(spots - spots.mean(0), 4).tolist()),
    )


def conformers(seeds: int = 1) -> list[Conformer]:
    return [conformer(smiles, seed) for seed in range(seeds) for smiles in SMILES]
