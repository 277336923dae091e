"""`isostep data`: tables for people, JSON for machines, one line for errors."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from isostep.cli import app


def run(*arguments: str):
    return CliRunner().invoke(app, ["data", *arguments], catch_exceptions=False)


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.setenv("ISOSTEP_DATA", str(tmp_path))
    monkeypatch.setenv("ISOSTEP_CACHE", str(tmp_path / "cache"))


def test_list_names_every_dataset_and_its_source():
    rows = {row["name"]: row for row in json.loads(run("list", "--json").stdout)}
    assert rows["planar"]["source"].startswith("stand-in, generated")
    assert rows["grid"]["source"] is None
    assert rows["qm9"]["kind"] == "molecule"
    table = run("list").stdout
    assert all(name in table for name in rows)
    assert "not found" in table


def test_info_and_prepare_report_the_same_dataset(tmp_path):
    info = json.loads(run("info", "planar-small", "--json").stdout)
    assert (info["train"], info["val"], info["test"], info["nodes"]) == (4096, 128, 128, [8, 10])
    prepared = json.loads(run("prepare", "planar-small", "--json").stdout)
    assert {key: prepared[key] for key in info} == info
    assert prepared["cache"].startswith(str(tmp_path / "cache"))
    assert "8 to 10" in run("info", "planar-small").stdout


def test_a_folder_can_be_named(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "qm9.csv").write_text("smiles,test\nCC,0\nCO,1\n")
    info = json.loads(run("info", "qm9", "--folder", str(tmp_path / "mine"), "--json").stdout)
    assert (info["train"], info["test"], info["atoms"]) == (1, 1, ["C", "N", "O", "F"])


def test_an_error_is_one_line_and_exit_code_2():
    code = "from isostep.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "data", "info", "moses"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown dataset 'moses'")
    assert len(done.stderr.splitlines()) == 1
