"""FCD: the peers' number, ChemNet's activations, and what a Frechet distance must obey."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from isostep.base.errors import InputError
from isostep.metric.base import evaluate_metric
from isostep.metric.fcd import WIDTH, FrechetDistance, activations
from isostep.metric.molecules import MoleculeSet
from isostep.metric.reference import MoleculeReference
from tests.conftest import FIXTURES

METRICS = FIXTURES / "metrics"


def smiles(name: str) -> list[str]:
    return (METRICS / f"mols_{name}.smi").read_text().split()


@pytest.fixture(scope="module")
def generated() -> MoleculeSet:
    return MoleculeSet.of(smiles("gen"))


@pytest.fixture(scope="module")
def reference() -> dict[str, np.ndarray]:
    return FrechetDistance().fit(MoleculeSet.of(smiles("test")))


@pytest.fixture(scope="module")
def measure(generated, reference):
    return FrechetDistance().compare(generated, reference)


def test_peers_number_on_the_fixture(measure, generated):
    expected = json.loads((METRICS / "molecules_expected.json").read_text())["FCD/Test"]
    assert measure(np.full(len(generated), 1 / len(generated))) == pytest.approx(expected, abs=1e-5)


def test_activations_equal_the_peers(generated):
    peer = pytest.importorskip("fcd_torch.utils")
    path = next(Path(peer.__file__).parent.glob("ChemNet_*.pt"))
    model = peer.load_imported_model(torch.load(path, weights_only=True)).eval()
    # Empty tail, unknown symbols, two-letter elements, several fragments, longer than the network's input.
    texts = [*generated[:12], "C", "[Na+].[Cl-]", "BrC/C=C/[SiH3]", "C%10CCC%10", "C" * 347, "C" * 400 + "Cl"]
    inputs = np.stack([peer.get_one_hot(text, 350) for text in texts]) / 35
    with torch.no_grad():
        expected = model(torch.tensor(inputs).float().transpose(1, 2)).numpy()
    np.testing.assert_allclose(activations(texts), expected, atol=2e-5)


def test_activations_do_not_depend_on_the_batch(generated, monkeypatch):
    texts = generated[:9]
    whole = activations(texts)
    monkeypatch.setattr("isostep.metric.fcd._BATCH", 4)
    np.testing.assert_allclose(activations(texts), whole, atol=1e-5)
    np.testing.assert_allclose(activations(texts[::-1])[::-1], whole, atol=1e-5)


def test_a_set_has_distance_zero_from_itself(generated):
    metric, part = FrechetDistance(), MoleculeSet(generated[:40])
    assert metric.compare(part, metric.fit(part))(np.full(40, 1 / 40)) == pytest.approx(0, abs=1e-4)


def test_weights_mean_repetition(measure, generated, reference):
    """Weight 2/n equals two copies, except that the unbiased covariance knows how many draws there were."""
    half = MoleculeSet(generated[:60])
    on_half = np.repeat([1 / 60, 0], [60, 240])
    assert measure(on_half) == pytest.approx(FrechetDistance().compare(half, reference)(np.full(60, 1 / 60)), abs=1e-6)


def test_agrees_with_the_square_root_of_the_product(measure, generated, reference):
    x = activations(generated.smiles).astype(float)
    c = np.zeros((WIDTH, WIDTH))
    c[np.triu_indices(WIDTH)] = reference["covariance"]
    c = c + np.triu(c, 1).T
    s = np.cov(x.T)
    expected = np.square(x.mean(0) - reference["mean"]).sum() + np.trace(s + c) - 2 * np.trace(sqrtm(s @ c).real)
    uniform = np.full(len(generated), 1 / len(generated))
    assert measure(uniform) == pytest.approx(expected, abs=1e-4)


def test_spelling_does_not_matter_because_smiles_are_made_canonical(reference):
    metric = FrechetDistance()
    spelled, canonical = ["OCC", "N(C)CC", "C(C)(C)C"], ["CCO", "CCNC", "CC(C)C"]
    a, b = (metric.prepare(texts, ["CCC", "CCN", "CO"])(np.full(3, 1 / 3)) for texts in (spelled, canonical))
    assert a == b


def test_two_molecules_have_an_interval_though_a_resample_may_hold_one(reference):
    value = evaluate_metric(FrechetDistance(), ["C", "CC"], MoleculeReference({"fcd": reference}), resamples=20)
    assert value.low is not None
    assert value.high is not None
    assert 0 < value.low <= value.value <= value.high


def test_one_molecule_has_no_covariance(reference):
    with pytest.raises(InputError, match="at least 2 molecules for a covariance, got 1"):
        FrechetDistance().compare(MoleculeSet(["C"]), reference)
    with pytest.raises(InputError, match="at least 2"):
        FrechetDistance().fit(MoleculeSet(["C"]))


def test_a_resample_is_the_distance_of_the_drawn_molecules(measure, generated, reference):
    """Fewer molecules than activations: the product of the other order has the same eigenvalues."""
    drawn = np.random.default_rng(0).integers(len(generated), size=len(generated))
    x, c = activations([generated[i] for i in drawn]).astype(float), np.zeros((WIDTH, WIDTH))
    c[np.triu_indices(WIDTH)] = reference["covariance"]
    c = c + np.triu(c, 1).T
    weights = np.bincount(drawn, minlength=len(generated)) / len(generated)
    s = np.cov(x.T, bias=True) / (1 - weights @ weights)
    root = np.sqrt(np.linalg.eigvals(s @ c).real.clip(0)).sum()  # older SciPy has no square root of a singular matrix
    expected = np.square(x.mean(0) - reference["mean"]).sum() + np.trace(s + c) - 2 * root
    assert measure(weights) == pytest.approx(expected, abs=1e-4)
