"""Molecules with positions: from tensors, as lines, in the formats of other programs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rdkit import Chem

from isostep.base.errors import InputError
from isostep.family.grum3d import COMPONENTS
from isostep.item import Conformer
from isostep.item.decoding import ConformerDecoder
from isostep.state import GraphState
from tests.conformers import SMILES, SPEC, conformer, conformers


def state_of(items: list[Conformer]) -> GraphState:
    mask = torch.arange(SPEC.max_nodes) < torch.tensor([len(item.atoms) for item in items])[:, None]
    state = GraphState.zeros(mask, COMPONENTS, {"X": len(SPEC.atoms), "P": 3})
    for k, item in enumerate(items):
        for i, symbol in enumerate(item.atoms):
            state["X"][k, i, SPEC.atoms.index(symbol)] = 1.0
        for i, j, order in item.bonds:
            state["A"][k, i, j] = state["A"][k, j, i] = order / SPEC.scale
        state["P"][k, : len(item.atoms)] = torch.tensor(item.positions)
    return state


def test_tensors_decode_to_the_molecules_they_encode():
    made = conformers()
    assert ConformerDecoder(SPEC)(state_of(made)) == made


def test_a_wrong_valence_is_invalid_and_keeps_its_atoms():
    whole = conformer("CC(=O)N")
    odd = replace(whole, bonds=tuple((i, j, 3) for i, j, _ in whole.bonds))
    (found,) = ConformerDecoder(SPEC)(state_of([odd]))
    assert not found.valid
    assert found.bonds == odd.bonds
    assert found.positions == odd.positions
    mol = found.to_rdkit()
    assert mol is not None
    assert Chem.MolToSmiles(mol) == found.smiles


@pytest.mark.parametrize("smiles", SMILES)
def test_rdkit_gets_the_generated_positions(smiles):
    item = conformer(smiles)
    mol = item.to_rdkit()
    assert mol is not None
    assert Chem.MolToSmiles(mol) == item.smiles
    assert np.allclose(mol.GetConformer().GetPositions(), item.positions, atol=1e-6)
    again = Chem.MolFromMolBlock(item.to_sdf(3))
    assert Chem.MolToSmiles(again) == item.smiles
    assert np.allclose(again.GetConformer().GetPositions(), item.positions, atol=1e-3)
    count, title, *rows = item.to_xyz(3).splitlines()
    assert (int(count), title) == (len(rows), f"3 {item.smiles}")
    assert np.allclose([[float(x) for x in row.split()[1:]] for row in rows], item.positions, atol=1e-4)


def test_the_largest_piece_is_kept_with_its_positions():
    two = replace(conformer("CCO"), bonds=((0, 1, 1),))
    mol = two.to_rdkit()
    assert mol is not None
    assert mol.GetNumAtoms() == 2
    assert np.allclose(mol.GetConformer().GetPositions(), two.positions[:2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"atoms": ["C"]}, "1 atoms"),
        ({"bonds": [[0, 7, 1]]}, "leads outside"),
        ({"bonds": [[0, 1, 4]]}, "order from 1 to 3"),
        ({"positions": [[0, 0]]}, "positions"),
        ({"valid": "perhaps"}, "valid"),
    ],
)
def test_a_bad_line_is_refused_in_one_line(change, message):
    line = json.dumps({**conformer("CCO").fields(), **change})
    with pytest.raises(InputError, match=message) as caught:
        Conformer.from_line(line)
    assert "\n" not in str(caught.value)


def test_near_atoms_clash_unless_they_are_bonded():
    item = conformer("CCO")
    assert not item.clashes()
    assert item.near_pairs() == {(0, 1), (1, 2)}
    folded = replace(
        item, positions=(item.positions[0], item.positions[1], (item.positions[0][0] + 0.5, *item.positions[0][1:]))
    )
    assert folded.clashes() == {(0, 2)}
    assert (0, 2) in folded.near_pairs()
