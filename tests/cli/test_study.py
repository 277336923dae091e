"""The study commands as a user runs them: output, files, repetition, one-line errors."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from isostep.cli import demo as demo_module
from isostep.cli import main
from isostep.model.analytic import analytic_model
from isostep.study.reproduce import load_target, model_label, target_names


@pytest.fixture
def isostep(monkeypatch, capsys, tmp_path):
    """Run a command in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["isostep", *words])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return run


@pytest.fixture
def ego(shared) -> str:
    return str(shared / "checkpoints" / "gdss" / "gdss_ego_small.pth")


def test_compare_writes_everything_and_repeats_from_store(isostep, ego, tmp_path):
    words = (
        "compare",
        ego,
        "--schedules",
        "uniform,dvs",
        "--seeds",
        "0-1",
        "-n",
        "4",
        "--steps",
        "3",
        "--out",
        "study",
    )
    code, out, err = isostep(*words, "--no-plots")
    assert code == 0, err
    assert ": dvs, seed 1" in err
    for name in ("study.json", "comparison.json", "comparison.md", "comparison.tex", "comparison.csv"):
        assert (tmp_path / "study" / name).is_file()
    code, out, err = isostep(*words, "--no-plots", "--json")
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert [arm["name"] for arm in record["arms"]] == ["uniform", "dvs"]
    assert record["arms"][1]["metrics"]["degree"]["test"]["n"] == 2


def test_sweep_reaches_the_schedule(isostep, ego, tmp_path):
    code, out, err = isostep(
        "sweep", ego, "--param", "schedule.gamma=.1,.3", "--seeds", "0", "-n", "3", "--steps", "3", "--out", "s",
        "--no-plots", "--json",
    )  # fmt: skip
    assert code == 0, err
    assert [arm["name"] for arm in json.loads(out)["arms"]] == ["uniform", "gamma=0.1", "gamma=0.3"]
    arms = json.loads((tmp_path / "s" / "study.json").read_text())["arms"]
    assert [arm["settings"]["schedule_options"].get("gamma") for arm in arms] == [None, 0.1, 0.3]


def test_reproduce_shows_the_paper_beside_ours(isostep, ego, shared, tmp_path, monkeypatch):
    monkeypatch.setenv("ISOSTEP_DATA", str(shared))
    code, out, err = isostep("reproduce", "t4", "-n", "4", "--steps", "3", "--seeds", "0-1")
    assert code == 0, err
    text = (tmp_path / "results" / "T4.md").read_text()
    assert "| Euler, DVS | paper |  | 0.0195 | 0.0149 | 0.013 | 0.0331 |" in text
    assert "Released GDSS weights." in text
    assert "3 base steps" in text
    (folder,) = (path.name for path in (tmp_path / "results").iterdir() if path.is_dir())
    assert folder.startswith("gdss_ego_small-")
    assert (tmp_path / "results" / f"T4-{folder}.html").is_file()
    code, out, err = isostep("reproduce", "T4", "-n", "4", "--steps", "3", "--seeds", "0-1", "--json")
    assert (code, err) == (0, "")  # nothing computed, so nothing said
    part = json.loads(out)["parts"][0]
    assert part["paper"]["Euler, fixed"]["spectral"] == 0.0369
    assert part["comparison"]["n"] == 4


def test_reproduce_keeps_models_apart_and_repeats_from_store(isostep, tmp_path):
    results = tmp_path / "results"
    words = ("reproduce", "T4", "-n", "3", "--steps", "3", "--seeds", "0")
    seen = {}
    for model in ("rings-and-stars", "gdss-community-small"):
        code, _, err = isostep(*words, "--model", model)
        assert code == 0, err
        assert ": Euler, DVS, seed 0" in err
        (folder,) = (path for path in results.iterdir() if path.is_dir() and path.name.startswith(model))
        files = [folder / "study.json", *(results / f"T4-{folder.name}{end}" for end in (".md", ".json", ".html"))]
        seen |= {path: path.read_bytes() for path in files}
    for model in ("rings-and-stars", "gdss-community-small"):
        code, _, err = isostep(*words, "--model", model)
        assert (code, err) == (0, "")  # nothing computed, so nothing said
    assert {path: path.read_bytes() for path in seen} == seen
    text = next(results.glob("T4-rings*.md")).read_text()
    assert "trained on rings-and-stars, the paper's on ego-small" in text
    assert "of the family grum, the paper's of gdss" in text


def test_reproduce_names_the_part_that_has_no_model(isostep, tmp_path):
    code, _, err = isostep("reproduce", "T8", "-n", "2", "--steps", "2", "--seeds", "0", "--model", "grum-qm9-small")
    assert code == 0, err
    text = next((tmp_path / "results").glob("T8-grum-qm9-small-*.md")).read_text()
    assert "Left out: zinc250k: GruM's weights are needed" in text
    assert "| DVS | paper | 0.898 | +6.5 % | 755 | 678 | -19.6 % |" in text


def test_a_label_follows_the_weights():
    model, other = analytic_model(), analytic_model()
    assert model_label(model) == model_label(other)
    with torch.no_grad():
        next(other.network.parameters()).mul_(2)
    assert model_label(model) != model_label(other)


def test_reproduce_without_weights_says_what_to_do(isostep, tmp_path, monkeypatch):
    monkeypatch.setenv("ISOSTEP_DATA", str(tmp_path))
    code, _, err = isostep("reproduce", "T4", "--quick")
    assert code == 2
    assert err.count("\n") == 1
    assert "--model FILE" in err


def test_every_target_is_whole():
    assert target_names() == sorted([f"F{k}" for k in range(2, 8)] + [f"T{k}" for k in range(1, 9)])
    for name in target_names():
        target = load_target(name)
        for part in target.parts:
            published = {key for arm in part.arms for key in arm.paper}
            assert published <= {*part.metrics, "calls", "step_seconds", "total_seconds"}
            assert len({arm.name for arm in part.arms}) == len(part.arms)
            assert {test.arm for test in part.paper_tests} <= {arm.name for arm in part.arms[1:]}
            assert {test.metric for test in part.paper_tests} <= {*part.metrics}
            if name.startswith("T"):
                assert all(arm.paper for arm in part.arms)


def test_demo_runs_on_the_analytic_model_and_writes_a_page(isostep, tmp_path, monkeypatch):
    monkeypatch.setattr(demo_module, "LIMIT", 0.0)
    monkeypatch.setattr(demo_module, "SEEDS", (0, 1))
    code, out, err = isostep("demo", "--model", "rings-and-stars")
    assert code == 0, err
    assert "min on this machine" in out.splitlines()[0]
    assert "quadratic" in out
    assert (tmp_path / "report" / "report.html").stat().st_size > 100_000


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("report", "nowhere"), "no study.json"),
        (("compare", "no-such-model", "--out", "x"), "no model 'no-such-model'"),
        (("compare", "m", "--seeds", "x", "--out", "x"), "seeds must look like"),
        (("compare", "m", "--calls", "0", "--out", "x"), "above 0"),
        (("compare", "m", "--kernel", "rbf", "--out", "x"), "kernel"),
        (("sweep", "m", "--param", "gamma=1", "--out", "x"), "--param takes"),
        (("reproduce", "T9"), "unknown target 'T9'"),
    ],
)
def test_mistakes_are_one_line(isostep, words, cause):
    code, _, err = isostep(*words)
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert cause in err
