"""Counting metrics of molecules: the peers' numbers, weights, and the edges of each definition."""

from __future__ import annotations

import json

import numpy as np
import pytest
from rdkit import Chem, DataStructs

from isostep.base.errors import InputError
from isostep.metric.base import evaluate_metric
from isostep.metric.molecules import (
    FragmentSimilarity,
    MoleculeSet,
    NearestNeighbour,
    Novelty,
    ScaffoldSimilarity,
    Uniqueness,
    Validity,
    fingerprint,
    flat,
    hashes_of,
    highest_tanimoto,
    scaffolds,
)
from tests.conftest import FIXTURES

METRICS = FIXTURES / "metrics"
EXPECTED = json.loads((METRICS / "molecules_expected.json").read_text())


def smiles(name: str) -> list[str]:
    return (METRICS / f"mols_{name}.smi").read_text().split()


def value(metric, generated, reference) -> float:
    return evaluate_metric(metric, generated, reference, resamples=0).value


@pytest.mark.parametrize(
    ("metric", "key"),
    [(ScaffoldSimilarity(), "Scaf/Test"), (FragmentSimilarity(), "Frag/Test"), (NearestNeighbour(), "SNN/Test")],
)
def test_peers_numbers_on_the_fixture(metric, key):
    assert value(metric, smiles("gen"), smiles("test")) == pytest.approx(EXPECTED[key], abs=1e-6)


def test_peers_uniqueness_and_novelty_on_the_fixture():
    assert value(Uniqueness(), smiles("gen"), []) == EXPECTED["unique@300"]
    assert value(Novelty(), smiles("gen"), smiles("train")) == EXPECTED["Novelty"]


def test_uniqueness_counts_distinct_molecules_however_they_are_written():
    assert value(Uniqueness(), ["CCO", "OCC", "C(O)C", "CCN"], []) == pytest.approx(2 / 4)


def test_novelty_is_a_share_of_distinct_molecules():
    assert value(Novelty(), ["CCO", "OCC", "CCN", "CCC"], ["OCC"]) == pytest.approx(2 / 3)
    assert value(Novelty(), ["CCO"], ["OCC"]) == 0


def test_novelty_ignores_stereo_marks():
    assert value(Novelty(), ["CC(O)N", "FC=CCl"], ["C[C@H](O)N", "F/C=C/Cl"]) == 0
    assert flat("C[C@H](O)N") == Chem.CanonSmiles("CC(O)N")


def test_all_or_none_read_exactly_one_or_zero():
    for n in (3, 7, 11, 49, 300):
        assert value(Validity(corrected=True), [True] * n, None) == 1
        assert value(Validity(corrected=True), [False] * n, None) == 0


def test_validity_names_what_it_measured():
    run, plain = Validity(corrected=True), Validity(corrected=False)
    assert "without correction" in run.definition
    assert "RDKit accepts" in plain.definition
    assert value(plain, [True, True, False, True], None) == 0.75


def test_a_set_equals_itself():
    same = smiles("gen")[:50]
    for metric in (ScaffoldSimilarity(), FragmentSimilarity(), NearestNeighbour()):
        assert value(metric, same, same) == pytest.approx(1)


def test_scaffolds_need_two_rings_and_none_means_zero():
    assert scaffolds(Chem.MolFromSmiles("CCC1CCCCC1")) == []
    assert scaffolds(Chem.MolFromSmiles("CC1CC2CCC1C2")) == ["C1CC2CCC1C2"]
    assert value(ScaffoldSimilarity(), ["CCO", "C1CC1"], ["CC1CC2CCC1C2"]) == 0
    assert value(ScaffoldSimilarity(), ["CC1CC2CCC1C2"], ["CCO"]) == 0


def test_disjoint_fragments_have_similarity_zero():
    assert value(FragmentSimilarity(), ["C"], ["O"]) == 0


def test_counts_follow_repetition():
    metric = FragmentSimilarity()
    once = value(metric, ["C", "O"], ["C", "O"])
    twice = value(metric, ["C", "C", "O"], ["C", "O"])
    assert once == pytest.approx(1)
    assert twice == pytest.approx(3 / np.sqrt(10))
    assert value(metric, ["C", "C", "O"], ["C", "C", "O"]) == pytest.approx(1)


def test_nearest_similarity_equals_rdkit_in_any_block_size():
    molecules = [Chem.MolFromSmiles(text) for text in smiles("gen")[:30]]
    packed = [fingerprint(molecule) for molecule in molecules]
    vectors = [DataStructs.CreateFromBinaryText(code) for code in packed]
    expected = [max(DataStructs.BulkTanimotoSimilarity(vector, vectors[20:])) for vector in vectors[:20]]
    table = np.stack([np.frombuffer(code, np.uint8) for code in packed])
    for block in (1, 7, 2048):
        np.testing.assert_allclose(highest_tanimoto(table[:20], table[20:], block), expected, atol=1e-6)


@pytest.mark.parametrize("metric", [Uniqueness(), ScaffoldSimilarity(), FragmentSimilarity(), NearestNeighbour()])
def test_weights_and_order_do_what_they_say(metric):
    generated, reference = smiles("gen")[:40], MoleculeSet.of(smiles("test")[:60])
    arrays = metric.fit(reference)
    backwards = metric.compare(MoleculeSet.of(generated[::-1]), arrays)
    measure = metric.compare(MoleculeSet.of(generated), arrays)
    weights = np.random.default_rng(0).dirichlet(np.ones(40))
    assert measure(weights) == pytest.approx(backwards(weights[::-1]), abs=1e-12)
    only_first = metric.compare(MoleculeSet.of(generated[:10]), arrays)
    assert measure(np.repeat([0.1, 0], [10, 30])) == pytest.approx(only_first(np.full(10, 0.1)), abs=1e-12)


def test_worker_processes_change_nothing(monkeypatch):
    monkeypatch.setattr("isostep.metric.molecules._CHUNK", 20)
    texts = MoleculeSet.of(smiles("gen")[:50]).smiles
    assert MoleculeSet(texts, workers=2).map(fingerprint) == MoleculeSet(texts).map(fingerprint)


def test_hashes_are_fixed():
    # Stored references hold them: another hash would make every molecule novel.
    assert hashes_of(["C", "CCO"]).tolist() == [0xF72385315C, 0x52D90FF9CA]


def test_a_molecule_that_rdkit_rejects_is_named():
    with pytest.raises(InputError, match=r"molecule 2: RDKit cannot read the SMILES 'C\(C'"):
        MoleculeSet.of(["C", "C(C"])
