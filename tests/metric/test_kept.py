"""A second evaluation of a run is free, and never stale; compiled helpers give the numbers of the plain ones."""

from __future__ import annotations

import numpy as np
import pytest

from isostep.base.files import read_json, sha256
from isostep.metric import evaluate as module
from isostep.metric import fcd, molecules
from isostep.metric.evaluate import evaluate
from isostep.metric.molecules import MoleculeSet, highest_tanimoto
from isostep.model.analytic import analytic_model
from isostep.run.engine import save_result
from isostep.sampling.run import sample
from isostep.study.reference import analytic_reference
from tests.conftest import FIXTURES


@pytest.fixture
def run(tmp_path):
    save_result(sample(analytic_model(), 12, schedule="uniform", steps=5), tmp_path / "run")
    return tmp_path / "run"


def _forbidden(*_):
    raise AssertionError("computed again")


METRICS = ("degree", "orbit")


def test_a_second_evaluation_of_a_run_computes_nothing(run, monkeypatch):
    reference = analytic_reference()
    first = evaluate(run, reference, metrics=METRICS, resamples=20)
    assert len(read_json(run / "measured" / "values.json")) == 2
    monkeypatch.setattr(module, "evaluate_metric", _forbidden)
    assert evaluate(run, reference, metrics=METRICS, resamples=20) == first
    assert evaluate(run / "graphs.jsonl", reference, metrics=METRICS, resamples=20).values == first.values
    for other in ({"seed": 1}, {"resamples": 21}, {"kernel": "emd"}):
        with pytest.raises(AssertionError, match="computed again"):
            evaluate(run, reference, metrics=METRICS, **{"resamples": 20, **other})


def test_values_by_another_rule_are_others(run):
    found = [evaluate(run, analytic_reference(), metrics=["valid"], rule=rule).values for rule in ("planar", "sbm")]
    assert [values["valid"].value for values in found] == [1.0, 0.0]


def test_other_graphs_other_code_and_damaged_values_are_measured_anew(run, monkeypatch):
    reference = analytic_reference()
    first = evaluate(run, reference, metrics=METRICS, resamples=0)
    (run / "measured" / "values.json").write_text("[1")
    assert evaluate(run, reference, metrics=METRICS, resamples=0) == first
    monkeypatch.setattr(module, "evaluate_metric", _forbidden)
    monkeypatch.setattr("isostep.metric.kept.code_digest", lambda: "another program")
    with pytest.raises(AssertionError, match="computed again"):
        evaluate(run, reference, metrics=METRICS, resamples=0)
    monkeypatch.undo()
    lines = (run / "graphs.jsonl").read_text().splitlines(keepends=True)
    before = sha256(run / "graphs.jsonl")
    (run / "graphs.jsonl").write_text("".join(lines[:-1]))
    record = (run / "run.json").read_text()
    (run / "run.json").write_text(record.replace(before, sha256(run / "graphs.jsonl")))
    assert evaluate(run, reference, metrics=METRICS, resamples=0).n == 11


def test_activations_of_a_run_are_kept(tmp_path, monkeypatch):
    texts = (FIXTURES / "metrics" / "mols_gen.smi").read_text().split()[:6]
    whole = MoleculeSet(texts, home=tmp_path)
    first = whole.remember("chemnet", lambda: fcd.activations(whole.distinct))
    again = MoleculeSet(texts, home=tmp_path).remember("chemnet", _forbidden)
    assert np.array_equal(first, again)
    with pytest.raises(AssertionError):
        MoleculeSet(texts[:5], home=tmp_path).remember("chemnet", _forbidden)


def test_compiled_helpers_give_the_numbers_of_the_plain_ones(monkeypatch):
    pytest.importorskip("numba")
    texts = (FIXTURES / "metrics" / "mols_gen.smi").read_text().split()[:20]
    bits = np.random.default_rng(0).integers(0, 256, (40, 128), np.uint8) & 17
    bits[3] = 0
    found = fcd.activations(texts), highest_tanimoto(bits[:15], bits[10:])
    monkeypatch.setattr(molecules, "compiled", lambda: None)
    monkeypatch.setattr(fcd, "compiled", lambda: None)
    plain = fcd.activations(texts), highest_tanimoto(bits[:15], bits[10:])
    np.testing.assert_allclose(found[0], plain[0], atol=1e-5)
    assert np.array_equal(found[1], plain[1])
    assert found[1][12] == 1
