"""`isostep sample`: the files it writes, the summary it prints, and that a killed run is the same run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isostep.sampling.run import sample
from tests.cli.command import isostep, refused
from tests.conftest import FIXTURES

MOL, GRAPH = FIXTURES / "grum" / "mol.pth", FIXTURES / "grum" / "graph.pth"
TOY = "rings-and-stars"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_of_graphs_is_written_with_all_that_repeats_it(tmp_path: Path) -> None:
    options = ("-n", 5, "--schedule", "uniform", "--steps", 12, "--seed", 7, "--start", 2, "--batch-size", 4)
    ended = isostep("sample", TOY, *options, "--out", "run", "--trace", "--json")
    assert ended.code == 0, ended.err
    summary = json.loads(ended.out)
    assert (summary["graphs"], summary["done"], summary["calls_mean"]) == (5, 5, 12)
    record = json.loads(Path("run/run.json").read_text())
    assert record["summary"] == summary
    expected = sample(TOY, 5, schedule="uniform", steps=12, seed=7, start=2, batch_size=4)
    lines = [json.loads(line) for line in Path("run/graphs.jsonl").read_text().splitlines()]
    assert [(line["n"], line["edges"]) for line in lines] == [(g.n, g.edges.tolist()) for g in expected.graphs]
    assert json.loads(Path("run/trace.json").read_text())


def test_a_run_of_molecules_is_written_with_validity() -> None:
    options = ("-n", 6, "--schedule", "uniform", "--solver", "euler", "--steps", 20)
    ended = isostep("sample", "grum-qm9-small", *options, "--out", "run", "--sdf")
    assert ended.code == 0, ended.err
    assert "6 graphs" in ended.out
    assert "written to run" in ended.out
    expected = sample("grum-qm9-small", 6, schedule="uniform", solver="euler", steps=20)
    rows = [line.split("\t") for line in Path("run/molecules.smi").read_text().splitlines()]
    assert [(row[0], row[2]) for row in rows] == [(m.smiles, str(int(m.valid))) for m in expected.molecules]
    assert Path("run/molecules.sdf").read_text().count("$$$$") == sum(map(bool, expected.smiles))


def test_any_setting_of_the_preset_can_be_overridden() -> None:
    chosen = ("--set", "gamma=.5", "--set", "active=[[.2,0.9]]", "--snr", 0.05, "--corrector", "langevin")
    arguments = ("sample", GRAPH, "-n", 2, "--steps", 4, "--weights", "raw", "--clock", "graph", *chosen)
    assert isostep(*arguments, "--out", "run", "--json").code == 0
    record = json.loads(Path("run/run.json").read_text())
    settings = record["settings"]
    assert settings["schedule_options"]["gamma"] == 0.5
    assert settings["schedule_options"]["active"] == [[0.2, 0.9]]
    assert (settings["snr"], settings["clock"], settings["schedule"]) == (0.05, "graph", "dvs")


def test_the_amount_of_noise_is_an_option_of_the_default_schedule() -> None:
    assert isostep("sample", GRAPH, "-n", 2, "--steps", 4, "--eta", 3, "--out", "run", "--json").code == 0
    settings = json.loads(Path("run/run.json").read_text())["settings"]
    assert (settings["schedule"], settings["solver_options"]) == ("cosine", {"eta": 3.0})


@pytest.mark.parametrize(("text", "tau"), [(".85", 0.85), ("X=.6,A=.95:.88", {"X": 0.6, "A": [0.95, 0.88]})])
def test_the_temperature_is_a_number_or_one_for_each_component(text, tau) -> None:
    assert isostep("sample", GRAPH, "-n", 2, "--steps", 4, "--temperature", text, "--out", "run", "--json").code == 0
    settings = json.loads(Path("run/run.json").read_text())["settings"]
    assert (settings["schedule"], settings["solver_options"]) == ("cosine", {"temperature": tau})


def test_a_coupled_run_says_so() -> None:
    assert "depends on its batch mates" in isostep("sample", TOY, "-n", 2, "--schedule", "dvs", "--steps", 20).out
    assert "batch mates" not in isostep("sample", TOY, "-n", 2, "--steps", 20, "--clock", "graph").out


def test_a_killed_run_repeated_gives_the_same_graphs(tmp_path: Path) -> None:
    options = [
        "-n",
        "12",
        "--schedule",
        "uniform",
        "--steps",
        "40",
        "--batch-size",
        "3",
        "--seed",
        "4",
        "--weights",
        "raw",
    ]
    command = ["sample", str(GRAPH), *options, "--shard-size", "3", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from isostep.cli import main; main()", *command, "--out", "killed"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("killed/shards/0*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not Path("killed/run.json").exists()
    assert isostep(*command, "--out", "killed").code == 0
    assert isostep(*command, "--out", "whole").code == 0
    killed, whole = (Path(run, "graphs.jsonl").read_bytes() for run in ("killed", "whole"))
    assert killed == whole


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("nothing",), "no model 'nothing'"),
        (("gdss_grid",), "isostep fetch gdss_grid"),
        ((TOY, "-n", 0), "n"),
        ((TOY, "--schedule", "linear"), "choose one of"),
        ((TOY, "--set", "gamma"), "key=value"),
        ((TOY, "--set", "speed=3"), "speed"),
        ((TOY, "--solver", "s4", "--steps", 3, "--schedule", "uniform"), "s4 solver"),
        ((TOY, "--eta", -2), "eta is between 0 and 1000, got -2.0"),
        ((TOY, "--eta", 2, "--solver", "euler"), "euler has no option 'eta'"),
        ((TOY, "--temperature", -2), "a number between 0 and 100, or two, at t = 0 and 1, got -2.0"),
        ((TOY, "--temperature", "X=.5,A"), "COMPONENT=number"),
        ((TOY, "--temperature", "X=.5,X=.6"), "every component once"),
        ((TOY, "--temperature", "Y=.5"), "'Y', but the model's components are X, A"),
        ((TOY, "--device", "tpu"), "tpu"),
        ((TOY, "--seed", -1), "seed"),
        ((MOL, "--weights", "best"), "best"),
        ((MOL, "--preset", "nothing.toml"), "nothing.toml"),
        ((FIXTURES / "grum",), "model.json"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments: tuple, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ISOSTEP_DATA")
    assert part in refused("sample", *arguments)
