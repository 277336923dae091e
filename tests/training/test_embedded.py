"""Embedded models: small, complete, what their cards say, and better than noise."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
import torch

from isostep.model.folder import load_folder
from isostep.model.presets import find_preset, preset_names
from isostep.process.matching import SCORE_MATCHING
from isostep.training import presets as training_presets
from isostep.training.config import load_config
from isostep.training.trainer import VALIDATION, Trainer

FOLDERS = sorted(path.parent for path in Path(str(resources.files("isostep"))).glob("embedded/*/model.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_embedded_model_is_complete_and_small(folder):
    assert {path.name for path in folder.iterdir()} >= {"model.json", "model.safetensors", "train.toml", "log.csv"}
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3 * 2**20
    config, info = load_config(folder / "train.toml"), load_folder(folder).info
    assert config.name == info.name == folder.name
    assert config.data.name == info.dataset


@pytest.mark.parametrize("folder", [f for f in FOLDERS if "qm9" not in f.name], ids=lambda folder: folder.name)
def test_an_embedded_model_knows_its_data(folder, tmp_path, monkeypatch):
    """Its loss on held-out graphs is a fraction of what the best constant answer gets."""
    monkeypatch.setenv("ISOSTEP_DATA", str(tmp_path))
    config, model = load_config(folder / "train.toml"), load_folder(folder)
    trainer = Trainer(config, config.training.load(config.data))
    look = trainer.look(trainer.data.validation, torch.arange(32) % trainer.data.validation.count, VALIDATION)
    density = look.clean["A"].sum() / look.clean.masks.pairs.sum()

    def constant(x, adj, mask, t):
        scores = config.training.loss is SCORE_MATCHING
        return torch.zeros_like(x), torch.zeros_like(adj) if scores else density * look.clean.masks.pairs

    with torch.no_grad():
        learned, guessed = (trainer.objective(net, look)["A"] for net in (model.network, constant))  # type: ignore[arg-type]
    assert learned < 0.6 * guessed


@pytest.mark.parametrize("name", training_presets.names())
def test_a_training_preset_names_its_sampler(name):
    """A trained model samples as the released one of its family and dataset does, with the paper's constants."""
    config = load_config(training_presets.find(name))
    assert {"steps", "solver", "dvs"} <= config.sampler.model_fields_set
    assert {"kappa", "gamma", "active"} <= config.sampler.dvs.model_fields_set
    released = f"{config.family}-{config.data.name.removesuffix('-small')}"
    released = released if released in preset_names() else f"{config.family}-{config.data.name}"
    if released in preset_names():
        theirs = find_preset(released).sampler
        assert config.sampler.dvs == theirs.dvs
        if name not in {folder.name for folder in FOLDERS}:  # embedded models are sampled as they were measured
            assert config.sampler.corrector == theirs.corrector
            assert config.sampler.released_solver == theirs.released_solver


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_embedded_card_samples_as_its_training_preset_says(folder):
    ours, preset = load_folder(folder).info.sampler, load_config(training_presets.find(folder.name)).sampler
    for name in ("steps", "solver", "corrector", "dvs"):
        assert getattr(ours, name) == getattr(preset, name)
