"""`isostep sample --out`, `runs`, `export`, `plan` as a user calls them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from isostep.base.errors import InputError
from isostep.base.text import duration
from isostep.cli import app
from tests.cli.command import refused

TOY = "rings-and-stars"
SAMPLE = ["sample", TOY, "-n", "20", "--schedule", "uniform", "--steps", "3", "--batch-size", "4"]


def call(*arguments: str):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    result = call(*SAMPLE, "--shard-size", "8", "--out", str(folder), "--json")
    assert json.loads(result.stdout)["done"] == 20
    return folder


def test_status_and_verify(folder):
    report = json.loads(call("runs", "status", str(folder), "--json").stdout)
    assert (report["state"], report["graphs"]) == ("complete", 20)
    assert "complete, 20 of 20 graphs, 3 of 3 shards" in call("runs", "status", str(folder)).stdout
    verdict = json.loads(call("runs", "verify", str(folder), "--json").stdout)
    assert verdict["ok"]
    assert verdict["regenerated"] == 4


def test_verify_says_no_with_its_exit_code(folder, tmp_path):
    (tmp_path / "run.json").write_bytes((folder / "run.json").read_bytes())
    (tmp_path / "graphs.jsonl").write_text("other\n")
    result = call("runs", "verify", str(tmp_path))
    assert result.exit_code == 1
    assert "the manifest says" in result.stdout


def test_the_same_command_again_is_done_at_once(folder):
    before = (folder / "graphs.jsonl").stat().st_mtime_ns
    assert call(*SAMPLE, "--shard-size", "8", "--out", str(folder)).exit_code == 0
    assert (folder / "graphs.jsonl").stat().st_mtime_ns == before


def test_export(folder, tmp_path):
    result = call("export", str(folder), "--format", "jsonl", "--out", str(tmp_path / "a.jsonl"), "--json")
    assert json.loads(result.stdout)["graphs"] == 20
    assert [json.loads(line)["index"] for line in (tmp_path / "a.jsonl").open()] == list(range(20))


def test_workers_need_a_folder():
    with pytest.raises(InputError, match="add --out"):
        call(*SAMPLE, "--workers", "2")


def test_plan_states_time_memory_and_disk():
    arguments = ["rings-and-stars", "-n", "1000", "--workers", "4", "--steps", "5", "--schedule", "uniform"]
    cost = json.loads(call("plan", *arguments, "--batch-size", "50", "--shard-size", "50", "--json").stdout)
    assert cost["shards"] == 20
    assert cost["network_calls"] == 100
    assert cost["seconds"] == pytest.approx(cost["worker_seconds"] / 4)
    assert cost["memory_per_worker"] > 0
    assert "disk" in call("plan", *arguments).stdout


@pytest.mark.parametrize(
    "extent", [("--batch-size", "256", "--shard-size", "100"), ("--batch-size", "2000000"), ("-n", str(10**15))]
)
def test_plan_refuses_what_sample_refuses(extent, tmp_path):
    words = [refused(*command, *extent) for command in (("plan", TOY), ("sample", TOY, "--out", tmp_path / "run"))]
    assert words[0] == words[1]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7500, "2 h 5 min"), (262800, "3 days 1 h")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text
