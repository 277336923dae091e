"""Encoding and decoding: round trips, the laws of validity and correction, and the rules at the cuts."""

from __future__ import annotations

import csv
import gzip
import itertools

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from rdkit import Chem

from isostep.base.errors import InputError
from isostep.dataset.catalogue import QM9, ZINC250K
from isostep.item import Molecule
from isostep.item.decoding import decode, decode_graphs
from isostep.item.encoding import Molecules, MoleculeSpec, encode
from tests.conftest import FIXTURES

ALL = ZINC250K
# Most bonds an atom can have and be valid: RDKit's largest valence, one more for N and O (with charge).
LIMIT = {"C": 4, "N": 4, "O": 3, "F": 1, "P": 5, "S": 6, "Cl": 1, "Br": 1, "I": 5}


def build(atoms: str | list[str], bonds: list[tuple[int, int, int]], spec: MoleculeSpec = ALL) -> Molecule:
    """Decode a molecule given by element symbols and (i, j, order)."""
    atoms = list(atoms)
    x = torch.zeros(1, len(atoms), len(spec.atoms))
    for i, symbol in enumerate(atoms):
        x[0, i, spec.atoms.index(symbol)] = 1
    a = torch.zeros(1, len(atoms), len(atoms))
    for i, j, order in bonds:
        a[0, i, j] = a[0, j, i] = order / spec.scale
    return decode(x, a, torch.ones(1, len(atoms)), spec)[0]


def plain(smiles: str) -> str:
    """Canonical SMILES without stereo marks."""
    mol = Chem.MolFromSmiles(smiles)
    return Chem.MolToSmiles(Chem.MolFromSmiles(Chem.MolToSmiles(mol, isomericSmiles=False)))


def neutral(smiles: str) -> bool:
    return not any(a.GetFormalCharge() or a.GetNumRadicalElectrons() for a in Chem.MolFromSmiles(smiles).GetAtoms())


def round_trip(smiles: list[str], spec: MoleculeSpec) -> list[Molecule]:
    return decode(*Molecules.of(encode(smiles, spec)).tensors(spec), spec)


MOLECULES = [
    "C",
    "CCO",
    "c1ccccc1",
    "C#N",
    "CC(=O)NC",
    "c1ccc2[nH]ccc2c1",
    "CS(=O)(=O)c1ccsc1",
    "CP(=O)(O)OC",
    "FC(Cl)(Br)I",
]


@pytest.mark.parametrize("smiles", MOLECULES)
def test_a_neutral_molecule_survives_the_round_trip(smiles):
    (decoded,) = round_trip([smiles], ALL)
    assert decoded.valid
    assert decoded.smiles == plain(smiles)
    assert Chem.MolToSmiles(decoded.to_rdkit()) == decoded.smiles


def test_molecules_of_qm9_survive_the_round_trip():
    check_round_trip((FIXTURES / "metrics" / "mols_test.smi").read_text().split(), QM9)


def test_molecules_of_zinc250k_survive_the_round_trip(shared):
    with gzip.open(shared / "data" / "zinc250k.csv.gz", "rt") as file:
        check_round_trip([row["smiles"] for row in itertools.islice(csv.DictReader(file), 0, None, 601)], ZINC250K)


def check_round_trip(smiles: list[str], spec: MoleculeSpec) -> None:
    decoded = round_trip(smiles, spec)
    assert len(smiles) > 200
    assert all(d.valid for d in decoded)
    checked = [(d.smiles, plain(s)) for s, d in zip(smiles, decoded, strict=True) if neutral(s)]
    assert len(checked) > len(smiles) / 2
    assert [got for got, _ in checked] == [expected for _, expected in checked]


def test_encoding_is_kekulized_with_sorted_bonds():
    (benzene,) = encode(["c1ccccc1"], QM9)
    assert benzene.atoms.tolist() == [0] * 6
    assert sorted(benzene.bonds[:, 2].tolist()) == [1, 1, 1, 2, 2, 2]
    assert (benzene.bonds[:, 0] < benzene.bonds[:, 1]).all()


@pytest.mark.parametrize(
    ("smiles", "reason"),
    [
        ("C(", "cannot read"),
        ("", "cannot read"),
        ("CB", "holds B"),
        ("C" * 10, "10 heavy atoms"),
        ("[H][H]", "holds H"),
    ],
)
def test_molecules_that_do_not_fit_are_named(smiles, reason):
    with pytest.raises(InputError, match=f"molecule 2: .*{reason}"):
        encode(["CC", smiles], QM9)


def test_nitrogen_and_oxygen_one_above_their_valence_are_charged():
    ammonium = build("NCCCC", [(0, k, 1) for k in range(1, 5)])
    assert (ammonium.smiles, ammonium.valid) == (Chem.CanonSmiles("C[N+](C)(C)C"), True)
    oxonium = build("OCCC", [(0, k, 1) for k in range(1, 4)])
    assert (oxonium.smiles, oxonium.valid) == (Chem.CanonSmiles("C[O+](C)C"), True)


def test_two_charged_neighbours_are_both_recognised():
    both = build("NNCCCC", [(0, 1, 2), (0, 2, 1), (0, 3, 1), (1, 4, 1), (1, 5, 1)])
    assert both.valid
    assert both.smiles == Chem.CanonSmiles("C[N+](C)=[N+](C)C")


def test_sulphur_keeps_the_valences_that_rdkit_allows_without_charge():
    assert build("SOOCC", [(0, 1, 2), (0, 2, 2), (0, 3, 1), (0, 4, 1)]).smiles == Chem.CanonSmiles("CS(C)(=O)=O")
    assert build("SCCC", [(0, 1, 1), (0, 2, 1), (0, 3, 1)]).valid
    seven = build("SOOOC", [(0, 1, 2), (0, 2, 2), (0, 3, 2), (0, 4, 1)])
    assert not seven.valid
    assert "+" not in seven.smiles


def test_nitrogen_two_above_its_valence_keeps_the_charge_it_got_on_the_way():
    stepwise = build("NCCC", [(0, 1, 2), (0, 2, 2), (0, 3, 1)])  # 2, 4 (charged), 5
    assert not stepwise.valid
    assert "[N+]" in stepwise.smiles
    at_once = build("NCCC", [(0, 1, 2), (0, 2, 1), (0, 3, 2)])  # 2, 3, 5: never exactly 4
    assert not at_once.valid
    assert "+" not in at_once.smiles


def test_correction_lowers_the_highest_bond_first():
    five = build("CCCC", [(0, 1, 1), (0, 2, 3), (0, 3, 1)])
    assert (five.smiles, five.valid) == (Chem.CanonSmiles("C=C(C)C"), False)
    fluorines = build("FCC", [(0, 1, 1), (0, 2, 1)])
    assert not fluorines.valid
    assert sorted(fluorines.smiles) == sorted("CF")


def test_the_fragment_with_the_longest_smiles_is_kept():
    assert build("CCCNO", [(0, 1, 1), (1, 2, 1), (3, 4, 1)]).smiles == "CCC"


def test_nothing_decodes_to_an_empty_invalid_molecule():
    x, a = torch.full((1, 3, 4), 0.5), torch.ones(1, 3, 3)
    (nothing,) = decode(x, a, None, QM9)
    assert (nothing.smiles, nothing.valid, nothing.to_rdkit()) == ("", False, None)
    assert decode(x[:0], a[:0], None, QM9) == []


def test_cuts_are_closed_below_and_atoms_need_more_than_a_half():
    spec = MoleculeSpec(("C",), max_nodes=2, scale=1.0)
    x = torch.full((7, 2, 1), 0.51)
    a = torch.zeros(7, 2, 2)
    a[:, 1, 0] = a[:, 0, 1] = torch.tensor([0.49, 0.5, 1.49, 1.5, 2.49, 2.5, 9.0])
    assert [d.smiles for d in decode(x, a, None, spec)] == ["C", "CC", "CC", "C=C", "C=C", "C#C", "C#C"]
    assert all(d.smiles == "" for d in decode(x * 0 + 0.5, a, None, spec))


def test_the_first_of_two_elements_wins_and_padding_is_no_atom():
    x = torch.tensor([[[0.0, 0.9, 2.0, 0.0], [1.0, 0, 0, 0]]])
    a = torch.full((1, 2, 2), 1 / 3)
    assert decode(x, a, torch.tensor([[1, 0]]), QM9)[0].smiles == "N"
    assert decode(x, a, None, QM9)[0].smiles == "CN"


def test_values_that_are_not_numbers_are_no_bond_and_no_atom():
    x = torch.tensor([[[1.0, 0, 0, 0], [float("nan")] * 4]])
    assert decode(x, torch.full((1, 2, 2), float("nan")), None, QM9)[0].smiles == "C"


def test_wrong_shapes_are_refused():
    with pytest.raises(InputError, match=r"X \(1, 2, 3\)"):
        decode(torch.zeros(1, 2, 3), torch.zeros(1, 2, 2), None, QM9)
    with pytest.raises(InputError, match=r"mask \(1, 3\)"):
        decode(torch.zeros(1, 2, 4), torch.zeros(1, 2, 2), torch.ones(1, 3), QM9)


@st.composite
def raw_molecules(draw):
    n = draw(st.integers(1, 7))
    kinds = draw(arrays.arrays(np.int64, n, elements=st.integers(0, len(ALL.atoms) - 1)))
    orders = np.tril(draw(arrays.arrays(np.int64, (n, n), elements=st.sampled_from([0, 0, 0, 1, 1, 2, 3]))), -1)
    return kinds, orders + orders.T


def tensors(kinds: np.ndarray, orders: np.ndarray):
    x = torch.nn.functional.one_hot(torch.from_numpy(kinds), len(ALL.atoms))[None].float()
    return x, torch.from_numpy(orders)[None] / ALL.scale


@given(raw_molecules())
@settings(max_examples=200, deadline=None)
def test_valid_means_that_no_atom_exceeds_its_limit(raw):
    kinds, orders = raw
    (decoded,) = decode(*tensors(kinds, orders), None, ALL)
    within = all(v <= LIMIT[ALL.atoms[k]] for k, v in zip(kinds, orders.sum(1), strict=True))
    assert decoded.valid == within


@given(raw_molecules())
@settings(max_examples=100, deadline=None)
@example((np.array([0, 8, 2]), np.array([[0, 0, 3], [0, 0, 3], [3, 3, 0]])))
def test_correction_ends_in_a_molecule_rdkit_accepts_or_in_nothing(raw):
    """Nothing: RDKit writes a few charged molecules with iodine in a form that it cannot read (C[O+]=[IH])."""
    (decoded,) = decode(*tensors(*raw), None, ALL)
    if not decoded.smiles:
        assert not decoded.valid
        assert "I" in {ALL.atoms[kind] for kind in raw[0]}
        return
    assert Chem.MolFromSmiles(decoded.smiles) is not None
    assert "." not in decoded.smiles
    assert Chem.CanonSmiles(decoded.smiles) == decoded.smiles


@given(raw_molecules(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_validity_does_not_depend_on_the_numbering(raw, random):
    kinds, orders = raw
    order = list(range(len(kinds)))
    random.shuffle(order)
    (one,) = decode(*tensors(kinds, orders), None, ALL)
    (other,) = decode(*tensors(kinds[order], orders[order][:, order]), None, ALL)
    assert one.valid == other.valid
    if one.valid and np.linalg.matrix_power(orders + np.eye(len(order), dtype=int), 8).all():
        assert one.smiles == other.smiles  # one fragment: the same molecule


def test_flat_molecules_behave_as_the_list_they_came_from():
    graphs = encode(MOLECULES, ALL)
    flat = Molecules.of(graphs)
    assert len(flat) == len(graphs)
    for k in (0, 3, -1):
        assert np.array_equal(flat[k].atoms, graphs[k].atoms)
        assert np.array_equal(flat[k].bonds, graphs[k].bonds)
    assert flat.counts.tolist() == [len(g.atoms) for g in graphs]
    chosen = np.array([5, 0, 5, 2])
    for got, k in zip(flat.take(chosen), chosen, strict=True):
        assert np.array_equal(got.bonds, graphs[k].bonds)
    with pytest.raises(IndexError):
        flat[len(graphs)]
    assert [t.shape[0] for t in Molecules.of([]).tensors(ALL)] == [0, 0, 0]


def test_tensors_are_padded_symmetric_and_scaled():
    spec = MoleculeSpec(("C", "N", "O", "F"), max_nodes=9, scale=1.0)
    x, a, mask = Molecules.of(encode(["C#N", "C"], spec)).tensors(spec)
    assert x.shape == (2, 9, 4)
    assert mask.sum(1).tolist() == [2, 1]
    assert torch.equal(x.sum(-1), mask)
    assert torch.equal(a, a.mT)
    assert a[0, 0, 1] == 3
    assert a.sum() == 6
    with pytest.raises(InputError, match="max_nodes"):
        Molecules.of(encode(["CCC"], QM9)).tensors(MoleculeSpec(QM9.atoms, max_nodes=2))


@pytest.mark.parametrize(
    "make",
    [
        lambda: MoleculeSpec((), max_nodes=3),
        lambda: MoleculeSpec(("C", "C"), max_nodes=3),
        lambda: MoleculeSpec(("C",), max_nodes=0),
        lambda: MoleculeSpec(("C",), max_nodes=3, scale=0.0),
    ],
)
def test_a_specification_without_meaning_is_refused(make):
    with pytest.raises(InputError):
        make()


def test_graphs_keep_linked_nodes_only():
    a = torch.zeros(3, 4, 4)
    a[0, 0, 2] = a[0, 2, 0] = 0.5
    a[0, 1, 3] = a[0, 3, 1] = 0.4999
    a[0, 1, 1] = 1
    a[1] = 0.1
    a[2] = 1
    first, empty, masked = decode_graphs(a, torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]]))
    assert (first.n, first.edges.tolist()) == (2, [[0, 1]])
    assert (empty.n, len(empty.edges)) == (1, 0)
    assert (masked.n, len(masked.edges)) == (3, 3)
