"""Atoms, bonds and positions through the whole pipeline: trained, stored, sampled, written, measured, exported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from rdkit import Chem
from typer.testing import CliRunner

import isostep
from isostep.cli import app
from isostep.dataset.data import Dataset, MoleculeDataset, molecule_arrays
from isostep.family import grum3d
from isostep.item import Conformer
from isostep.item.encoding import MoleculeGraph, Molecules
from isostep.metric.evaluate import evaluate
from tests.conformers import SPEC, conformers

CONFIG = """
name = "space-test"
family = "grum3d"
[data]
name = "qm9-3d"
holdout = 0.2
[process]
X = {type = "bridge", drift_coeff = 1.0, cap = 5.0}
A = {type = "bridge", drift_coeff = 1.0, cap = 5.0}
P = {type = "bridge", drift_coeff = 1.0, cap = 5.0}
[grum3d]
layers = 1
dx = 16
de = 8
heads = 2
[optimizer]
lr = 3e-3
[run]
steps = 30
batch = 16
validate_every = 15
validation_graphs = 16
"""


def small_dataset(name: str) -> Dataset:
    items = conformers(4)
    graphs = [
        MoleculeGraph(
            np.array([SPEC.atoms.index(a) for a in item.atoms], np.int16), np.array(item.bonds, np.int16).reshape(-1, 3)
        )
        for item in items
    ]
    arrays = molecule_arrays([item.smiles for item in items], Molecules.of(graphs), np.zeros(len(items)))
    arrays["positions"] = np.concatenate([np.array(item.positions) for item in items]).astype(np.float32)
    return MoleculeDataset(name, "test", SPEC, arrays)


@pytest.fixture
def trained(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(grum3d, "load", small_dataset)
    (tmp_path / "space.toml").write_text(CONFIG)
    done = CliRunner().invoke(app, ["train", str(tmp_path / "space.toml"), "--out", str(tmp_path / "run"), "--json"])
    assert done.exit_code == 0, done.output
    return tmp_path / "run" / "model"


def test_examples_are_the_molecules_with_their_positions(monkeypatch):
    monkeypatch.setattr(grum3d, "load", small_dataset)
    data = grum3d.load_conformers(grum3d.DataConfig(name="qm9-3d", holdout=0.25))
    items = conformers(4)
    whole = torch.cat([part.take(torch.arange(part.count)).mask.sum(1) for part in (data.train, data.validation)])
    assert sorted(whole.tolist()) == sorted(len(item.atoms) for item in items)
    state = data.train.take(torch.tensor([3, 0]))
    assert float(state["P"].sum(1).abs().max()) < 1e-3
    assert state.kinds["P"] == "position"


def test_from_training_to_files_and_metrics(trained, tmp_path):
    runner, out = CliRunner(), tmp_path / "sampled"
    command = ["sample", str(trained), "-n", "12", "--schedule", "uniform", "--solver", "exponential-2", "--steps", "4"]
    done = runner.invoke(app, [*command, "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    lines = (out / Conformer.file).read_text().splitlines()
    items = [Conformer.from_line(line) for line in lines]
    assert len(items) == 12
    points = [np.array(item.positions) for item in items if item.atoms]
    assert all(np.isfinite(p).all() for p in points)
    direct = isostep.sample(str(trained), 12, schedule="uniform", solver="exponential-2", steps=4, batch_size=5)
    assert direct.lines() == lines  # whatever the batch
    assert direct.smiles == [item.smiles for item in items]
    report = evaluate(out, "qm9-3d", metrics=["valid", "no_clash"], resamples=0)
    assert report.values["valid"].value == np.mean([item.valid for item in items])
    for format in ("sdf", "xyz", "jsonl", "smi"):
        done = runner.invoke(app, ["export", str(out), "--format", format, "--out", str(tmp_path / f"all.{format}")])
        assert done.exit_code == 0, done.output
    first = next(Chem.ForwardSDMolSupplier(str(tmp_path / "all.sdf")))
    assert first.GetNumConformers() == 1
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 12
    assert json.loads(lines[0]).keys() == items[0].fields().keys()
