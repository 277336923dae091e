"""`isostep train` from a file to a model folder."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from isostep.base.errors import InputError
from isostep.cli import app
from isostep.model.folder import load_folder
from isostep.training import presets
from isostep.training.log import TrainLog
from isostep.training.run import run
from isostep.training.trainer import Trainer
from tests.training.configs import config, toml, values


@pytest.fixture(autouse=True)
def _generated_data(tmp_path, monkeypatch):
    """No dataset folder: community-small is generated."""
    monkeypatch.setenv("ISOSTEP_DATA", str(tmp_path / "none"))


def test_a_file_becomes_a_model_folder_and_a_second_call_has_nothing_left_to_do(tmp_path):
    file = tmp_path / "tiny.toml"
    file.write_text(toml("gdss", data={"name": "community-small", "features": "degree", "degree_classes": 10}))
    call = ["train", str(file), "--out", str(tmp_path / "run"), "--json"]
    first, second = (CliRunner().invoke(app, call) for _ in range(2))
    assert first.exit_code == 0, first.output
    result = json.loads(first.stdout)
    assert (result["name"], result["step"]) == ("tiny", 20)
    assert json.loads(second.stdout) == result
    model = load_folder(result["model"])
    assert model.info.max_nodes == 20
    assert sum(count for _, count in model.info.node_counts) == 80
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        *("train.toml", "log.csv", "loss.png", "last.safetensors", "best.safetensors", "model")
    }


@pytest.mark.parametrize("export", ["best", "last"])
def test_a_run_can_be_ended_before_its_first_validation(export, tmp_path):
    table = {**values("grum")["run"], "validate_every": 10}
    settings = config("grum", run=table)
    run(Trainer(settings, settings.training.load(settings.data)), tmp_path / "run", stop_at=6)
    assert not (tmp_path / "run" / "best.safetensors").exists()
    (tmp_path / "short.toml").write_text(toml("grum", run={**table, "steps": 6}))
    call = ["train", str(tmp_path / "short.toml"), "--out", str(tmp_path / "run"), "--export", export]
    first, second = (CliRunner().invoke(app, call) for _ in range(2))
    assert first.exit_code == 0, first.output
    assert re.match(r"tiny: step 6, 0\.\d min, best validation loss \d", first.stdout)
    assert second.stdout == first.stdout
    assert load_folder(tmp_path / "run" / "model").info.name == "tiny"
    rows = [row for row in TrainLog(tmp_path / "run" / "log.csv").rows if row["val_loss_A"]]
    assert [row["step"] for row in rows] == ["6"]


def test_presets_are_listed():
    assert json.loads(CliRunner().invoke(app, ["train", "--list", "--json"]).stdout) == presets.names()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grum-nowhere"], "no preset 'grum-nowhere'"),
        (["none.toml"], "cannot read none.toml"),
        (["grum-qm9", "--export", "first"], "--export must be best or last"),
        (["grum-community-small", "--device", "abacus"], "unknown device 'abacus'"),
    ],
)
def test_a_bad_call_is_one_line(arguments, message):
    error = CliRunner().invoke(app, ["train", *arguments]).exception
    assert isinstance(error, InputError)
    assert message in str(error)
    assert "\n" not in str(error)
