"""Metrics of geometry: perfect on the reference itself, worse with every bit of noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from isostep.base.errors import InputError
from isostep.metric.base import evaluate_metric
from isostep.metric.conformers import CONFORMER_METRICS, BondAngle, BondLength, bond_angles, bond_lengths, relax
from isostep.metric.evaluate import evaluate
from isostep.metric.suite import load_reference
from tests.conformers import conformer, conformers

METRICS = {metric.name: metric for metric in CONFORMER_METRICS}


def shaken(std: float):
    rng = np.random.default_rng(0)
    out = []
    for item in conformers(3):
        points = np.array(item.positions) + std * rng.standard_normal((len(item.atoms), 3))
        out.append(replace(item, positions=tuple((x, y, z) for x, y, z in points.tolist())))
    return out


@pytest.mark.parametrize("name", METRICS)
def test_noise_makes_every_metric_worse(name):
    metric, reference = METRICS[name], conformers(3)
    values = [evaluate_metric(metric, shaken(std), reference, 0).value for std in (0.0, 0.1, 0.3, 0.8)]
    assert values == sorted(values, reverse=metric.better == "higher")
    assert values[0] != values[-1]


def test_real_geometries_are_near_perfect():
    reference = conformers(3)
    values = {name: evaluate_metric(metric, reference, reference, 0).value for name, metric in METRICS.items()}
    # Laws are kept as quantiles: a set differs a little from its own.
    assert values["bond_length"] < 0.005
    assert values["bond_angle"] < 0.5
    assert values["no_clash"] == values["bonds_agree"] == 1
    assert values["relax_rmsd"] < 0.05


def test_lengths_and_angles_by_hand():
    item = replace(
        conformer("CCO"), positions=((0.0, 0.0, 0.0), (1.5, 0.0, 0.0), (1.5, 1.4, 0.0)), bonds=((0, 1, 1), (1, 2, 1))
    )
    assert bond_lengths(item) == [("C1C", 1.5), ("C1O", pytest.approx(1.4))]
    assert bond_angles(item) == [("C1C1O", pytest.approx(90))]


def test_the_distance_is_the_mean_over_types_by_their_share():
    """Against scipy on the two types of one molecule; weights act on molecules."""
    base = conformer("CCO")
    stretched = replace(base, positions=tuple((2 * x, 2 * y, 2 * z) for x, y, z in base.positions))
    reference = [base] * 50
    measure = BondLength().prepare([base, stretched], reference)
    lengths = dict(bond_lengths(base))
    for weight in (0.0, 0.25, 1.0):
        wanted = np.mean([wasserstein_distance([v, 2 * v], [v], [1 - weight, weight]) for v in lengths.values()])
        assert measure(np.array([1 - weight, weight])) == pytest.approx(wanted, abs=1e-6)


def test_rare_and_missing_types_do_not_break_it():
    assert np.isfinite(evaluate_metric(BondAngle(), [conformer("CCO")], conformers(1), 0).value)
    with pytest.raises(InputError):
        evaluate_metric(BondLength(), [conformer("NC=O")], [conformer("CCO")] * 3, 0)


def test_relaxation_frees_energy_and_skips_what_is_not_valid():
    item = conformer("OC1CCC1")
    calm, tense = (
        relax(item),
        relax(replace(item, positions=tuple((1.2 * x, 1.2 * y, z) for x, y, z in item.positions))),
    )
    assert calm is not None
    assert tense is not None
    assert tense.before - tense.after > calm.before - calm.after >= -1e-6
    assert tense.rmsd > calm.rmsd
    assert relax(replace(item, valid=False)) is None


def test_the_package_has_a_reference_that_adds_to_qm9():
    reference = load_reference("qm9-3d")
    assert set(METRICS) <= set(reference.statistics)
    assert reference.statistics["fcd"].keys() == load_reference("qm9").statistics["fcd"].keys()
    report = evaluate(conformers(12), "qm9-3d", metrics=["valid", "bond_length", "no_clash", "unique"], resamples=20)
    assert report.values["valid"].value == 1
    assert report.values["no_clash"].floor is not None
    value = report.values["bond_length"]
    assert value.low is not None
    assert value.low <= value.value <= value.high


def test_a_reference_without_positions_names_the_one_with_them():
    with pytest.raises(InputError, match="qm9-3d"):
        evaluate(conformers(1), "qm9", metrics=["bond_length"], resamples=0)
