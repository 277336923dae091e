"""Released files as models: which settings come from the file, which from the preset."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isostep.base.errors import InputError
from isostep.model.presets import find_preset, preset_names
from isostep.model.released.convert import card, load_released
from isostep.model.released.known import known_table
from isostep.model.released.pickle import Released, read_released
from isostep.process import VE, VP, Bridge, SubVP
from isostep.settings.resolve import build, resolve
from tests.conftest import FIXTURES

MOL, RANDOM = FIXTURES / "grum" / "mol.pth", FIXTURES / "gdss_random"
# solver, Langevin (snr, scale), weights that the released GDSS programs sample with
RELEASED = {
    "ego_small": ("euler", None, "raw"),
    "community_small": ("euler", (0.05, 0.7), "raw"),
    "enzymes": ("s4", (0.15, 0.7), "ema"),
    "grid": ("reverse", (0.1, 0.7), "ema"),
    "qm9": ("reverse", (0.2, 0.7), "raw"),
    "zinc250k": ("reverse", (0.2, 0.9), "raw"),
    "zinc250k_v2": ("reverse", (0.2, 0.8), "raw"),
}
# kappa, gamma for Euler, gamma for Heun, active range, as published
DVS = {
    "grum-qm9": (1.0, 0.22, 0.23, ((0.0, 1.0),)),
    "grum-zinc250k": (5.0, 0.02, 0.04, ((0.0, 1.0),)),
    "grum-planar": (10.0, 0.31, 0.30, ((0.5, 1.0),)),
    "grum-sbm": (10.0, 0.26, 0.26, ((0.4, 1.0),)),
    "gdss-qm9": (1.0, 0.68, 0.68, ((0.0, 0.2), (0.95, 1.0))),
    "gdss-ego-small": (0.2, 0.02, 0.02, ((0.95, 1.0),)),
}


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_gdss_file_is_sampled_as_its_authors_do(name: str) -> None:
    """By the preset that its sha256 names."""
    solver, corrector, weights = RELEASED[name]
    sampler = find_preset(known_table()[1][f"gdss_{name}"].preset).sampler
    settings = resolve(sampler, schedule="gdss")
    assert (settings.solver, settings.steps, sampler.weights) == (solver, 1000, weights)
    assert settings.corrector == ("none" if corrector is None else "langevin")
    if corrector is not None:
        assert (settings.snr, settings.scale) == corrector


def test_a_known_file_keeps_its_preset_under_another_name(shared: Path, tmp_path: Path) -> None:
    shutil.copyfile(shared / "checkpoints" / "gdss" / "gdss_zinc250k_v2.pth", tmp_path / "renamed (1).pth")
    info = load_released(tmp_path / "renamed (1).pth").info
    assert max(n for n, _ in info.node_counts) <= info.max_nodes
    assert info.sampler.corrector is not None
    assert (info.name, info.sampler.corrector.scale) == ("renamed--1-", 0.8)


def test_processes_come_from_the_file() -> None:
    processes = load_released(RANDOM / "random_subvp.pth").info.processes()
    assert processes == {"X": VP(beta_min=0.1, beta_max=1.0), "A": SubVP(beta_min=0.1, beta_max=1.0)}
    processes = load_released(RANDOM / "random_mol.pth").info.processes()
    assert processes == dict.fromkeys("XA", VE(sigma_min=0.1, sigma_max=1.0))
    bridges = load_released(MOL).info.processes()
    assert bridges["A"] == Bridge(sigma_0=0.4, sigma_1=0.2, drift_coeff=1.0)


@pytest.mark.parametrize("name", DVS)
def test_presets_hold_the_published_constants(name: str) -> None:
    kappa, gamma, gamma_heun, active = DVS[name]
    preset = find_preset(name).sampler
    for solver, expected in (("euler", gamma), ("heun", gamma_heun)):
        options = resolve(preset, schedule="dvs", solver=solver).schedule_options
        assert (options["kappa"], options["gamma"], options["active"]) == (kappa, expected, active)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_can_be_sampled_with_and_overridden(name: str) -> None:
    preset = find_preset(name)
    assert name.startswith(f"{preset.family}-{preset.dataset}")
    settings = resolve(preset.sampler, schedule="dvs", corrector="none", schedule_options={"gamma": 0.5})
    assert settings.corrector == "none"
    assert settings.schedule_options["gamma"] == 0.5
    assert build(settings).controller.couples_graphs


def test_every_known_file_has_a_preset() -> None:
    assert {known.preset for known in known_table()[1].values()} <= set(preset_names())


def test_an_own_preset_serves_a_file_of_another_dataset(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'family = "grum"\ndataset = "mine"\natoms = ["C", "N", "O", "S"]\nnode_counts = [[5, 1]]\n'
        '[sampler]\nweights = "raw"\nsteps = 30\n'
    )
    info = load_released(MOL, preset=own).info
    assert (info.dataset, info.atoms, info.weights) == ("mine", ("C", "N", "O", "S"), "raw")
    assert resolve(info.sampler, schedule="uniform").steps == 30
    assert load_released(MOL, preset="grum-qm9").info.dataset == "qm9"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("family = ", "TOML"),
        ('family = "grum"', "dataset"),
        ('family = "grum"\ndataset = "x"\nnode_counts = [[1, 1]]\nstep = 1', "step"),
        ('family = "gdss"\ndataset = "x"\nnode_counts = [[1, 1]]', "the preset is for gdss"),
        ('family = "grum"\ndataset = "x"\nnode_counts = [[1, 1]]\natoms = ["C"]', "1 atoms for 4 features"),
        ('family = "grum"\ndataset = "x"\nnode_counts = [[0, 1]]', "node_counts"),
    ],
)
def test_a_bad_preset_is_refused_in_one_line(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(InputError, match=part) as caught:
        load_released(MOL, preset=tmp_path / "bad.toml")
    assert "\n" not in str(caught.value)


def test_weights_that_are_not_there_are_named() -> None:
    with pytest.raises(InputError, match="--weights raw"):
        load_released(RANDOM / "random_mol.pth", "ema")
    with pytest.raises(InputError, match="'best'"):
        load_released(MOL, "best")


def without(released: Released, *path: str, **values: Any) -> Released:
    """The file with an entry of its configuration removed, or others added."""
    config: dict[str, Any] = {**released.config}
    place = config
    for key in path[:-1]:
        place[key] = {**place[key]}
        place = place[key]
    place.pop(path[-1])
    place.update(values)
    return replace(released, config=config)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (("data", "max_node_num"), {}),
        (("data", "max_node_num"), {"max_node_num": "nine"}),
        (("data", "max_node_num"), {"max_node_num": 10**9}),
        (("data", "max_feat_num"), {"max_feat_num": [4]}),
        (("mix",), {}),
        (("mix",), {"mix": 3}),
        (("mix", "x"), {}),
        (("mix", "adj", "type"), {"type": "cosine"}),
        (("mix", "adj", "sigma_0"), {"sigma_0": "big"}),
        (("mix", "adj", "sigma_0"), {}),
    ],
)
def test_malformed_settings_of_a_file_are_refused_in_one_line(path: tuple[str, ...], values: dict[str, Any]) -> None:
    released = without(read_released(MOL), *path, **values)
    with pytest.raises(InputError) as caught:
        card(released, find_preset("grum-qm9"), None, "x", "0" * 64)
    assert "\n" not in str(caught.value)
