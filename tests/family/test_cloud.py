"""A family of three components from another package: trained, stored, loaded, sampled, and run by the command line,
with nothing in ours that knows of it.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import isostep
from isostep.base.errors import InputError
from isostep.cli import app
from isostep.family import families, find_family
from isostep.model.card import ModelInfo
from isostep.model.folder import CARD, load_folder, save_model
from isostep.model.lookup import list_models
from isostep.model.model import Model
from tests.family.cloud import FAMILY, CloudNetwork

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
name = "cloud-test"
family = "cloud"
[data]
name = "rings-and-chains"
[process]
X = {type = "bridge", cap = 5.0}
A = {type = "bridge", cap = 5.0}
P = {type = "bridge", cap = 5.0, factor = 2.0}
[cloud]
width = 16
[optimizer]
lr = 1e-2
[run]
steps = 40
batch = 32
validate_every = 20
validation_graphs = 64
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """As after `pip install` of a package with the entry point."""

    def install(value: str = "tests.family.cloud:FAMILY") -> None:
        info = tmp_path / "site" / "cloud_family-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cloud-family\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[isostep.families]\ncloud = {value}\n")
        monkeypatch.syspath_prepend(info.parent)
        path = [str(info.parent), str(ROOT), str(ROOT / "src")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
        find_family.cache_clear()

    yield install
    find_family.cache_clear()


@pytest.fixture
def trained(installed, tmp_path) -> Path:
    """A model folder, after a few steps by the command line."""
    installed()
    (tmp_path / "cloud.toml").write_text(CONFIG)
    result = CliRunner().invoke(app, ["train", str(tmp_path / "cloud.toml"), "--out", str(tmp_path / "run"), "--json"])
    assert result.exit_code == 0, result.output
    return Path(json.loads(result.stdout)["model"])


def test_it_is_trained_stored_loaded_and_sampled(trained):
    log = list(csv.DictReader((trained / "log.csv").open()))
    assert all(float(log[-1][f"val_loss_{name}"]) < 0.9 * float(log[0][f"loss_{name}"]) for name in "XAP")
    model = load_folder(trained)
    assert (model.info.family, model.info.features, model.info.dataset) == (
        "cloud", {"X": 2, "P": 3}, "rings-and-chains",
    )  # fmt: skip
    for settings in ({"schedule": "uniform"}, {"schedule": "dvs", "clock": "graph"}, {"solver": "heun"}, {}):
        result = isostep.sample(model, 6, steps=8, trace=1, **settings)
        assert result.tensors.kinds == FAMILY.components
        assert result.tensors["P"].shape == (6, 6, 3)
        assert not result.tensors["P"][~result.tensors.mask].any()
        assert {"V_X", "V_A", "V_P"} <= result.solution.trace.columns.keys()
        assert result.solution.counts()["done"] == 6
        assert [len(cloud.positions) for cloud in result.items] == result.tensors.masks.sizes.tolist()


def test_the_command_line_runs_it_in_several_processes_and_reads_its_own_items(trained, tmp_path):
    def command(*words: str) -> None:
        program = [sys.executable, "-c", "from isostep.cli import main; main()", *words]
        done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    size = ("-n", "12", "--steps", "6", "--batch-size", "4", "--shard-size", "4", "--workers", "2")
    command("sample", str(trained), *size, "--out", "out", "--json")
    command("export", "out", "--format", "jsonl", "--out", "clouds.jsonl")
    expected = isostep.sample(load_folder(trained), 12, steps=6, batch_size=4).items
    assert (tmp_path / "out" / "clouds.jsonl").read_text().splitlines() == [c.to_line(0) for c in expected]
    rows = [json.loads(line) for line in (tmp_path / "clouds.jsonl").read_text().splitlines()]
    assert [row["positions"] for row in rows] == [cloud.positions for cloud in expected]


def test_its_fast_path_serves_all_components(trained):
    model = load_folder(trained)
    state = model.prior(torch.arange(40), seed=1)
    inputs = (*state.components.values(), state.mask, torch.linspace(0, 0.9, 40))
    calls = []
    fast = FAMILY.fast_network(model.network)
    with torch.no_grad():
        expected = model.network(*inputs)
        model.network.register_forward_hook(lambda *_: calls.append(1))
        found = fast(*inputs)
    assert 1 < len(calls) < 40  # groups of graphs
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_turned_starts_give_turned_answers(trained):
    model = load_folder(trained)
    state, t = model.prior(torch.arange(5), seed=2), torch.full((5,), 0.5)
    frame, _ = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)))
    turned = state.replace({**state.components, "P": state["P"] @ frame})
    with torch.no_grad():
        one, other = (model.network(*s.components.values(), s.mask, t) for s in (state, turned))
    torch.testing.assert_close(one[2] @ frame, other[2], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(one[1], other[1], atol=1e-5, rtol=1e-4)


BAD = {
    "a component without a process": (lambda card: card["process"].pop("P"), "components X and A and P"),
    "a width too few": (lambda card: card["features"].pop("P"), "component P of kind node"),
    "a width too many": (lambda card: card["features"].update(Q=1), "features of 'Q'"),
    "another width": (lambda card: card["features"].update(X=3), "does not take"),
    "another process": (lambda card: card["process"].update(P={"type": "VP"}), "a process of Cloud is one of bridge"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_card_that_does_not_fit_the_family_is_refused(installed, tmp_path, case):
    installed()
    edit, message = BAD[case]
    torch.manual_seed(0)
    network = CloudNetwork({"width": 4})
    bridge = {"type": "bridge"}
    record = {
        **{"name": "cloud", "family": "cloud", "dataset": "x", "network": {"width": 4}, "max_nodes": 6},
        **{"process": dict.fromkeys("XAP", bridge), "features": {"X": 2, "P": 3}, "node_counts": [[3, 1]]},
        "provenance": {"source": "test", "licence": "none"},
    }
    info = save_model(tmp_path / "m", ModelInfo.parse(record, "test"), network.state_dict())
    assert isinstance(load_folder(tmp_path / "m"), Model)
    card = json.loads((tmp_path / "m" / CARD).read_text())
    assert card["features"] == info.features == {"X": 2, "P": 3}
    edit(card)
    (tmp_path / "m" / CARD).write_text(json.dumps(card))
    with pytest.raises(InputError, match=message):
        load_folder(tmp_path / "m")


def test_without_its_package_it_is_unknown_and_a_wrong_entry_point_is_told(installed, trained, monkeypatch):
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not place.endswith("site")])
    find_family.cache_clear()
    assert "cloud" not in [family.name for family in families()]
    with pytest.raises(InputError, match="unknown family 'cloud'; known: gdss, grum, grum3d"):
        load_folder(trained)
    rows = {row.path: row for row in list_models([trained.parent])}
    assert "unknown family 'cloud'" in (rows[str(trained)].problem or "")


def test_an_entry_point_to_something_else_is_told(installed):
    installed("tests.family.cloud:NOT_A_FAMILY")
    with pytest.raises(InputError, match=r"NOT_A_FAMILY of isostep\.families is not the record of a family 'cloud'"):
        find_family("cloud")
