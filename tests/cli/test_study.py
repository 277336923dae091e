"""The study commands as a user runs them: output, files, repetition, one-line errors."""

from __future__ import annotations

import json
import shutil
import sys

import pytest
import torch

from isostep.cli import demo as demo_module
from isostep.cli import main
from isostep.model.analytic import analytic_model
from isostep.model.presets import find_preset
from isostep.study.reproduce import CONSTANTS, chosen_arms, load_constant_table, load_target, model_label, target_names


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


def test_compare_writes_everything_and_repeats_from_store(isostep, tmp_path):
    words = (
        "compare",
        "gdss-community-small",
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


def test_sweep_reaches_the_schedule(isostep, tmp_path):
    code, out, err = isostep(
        "sweep", "gdss-community-small", "--param", "schedule.gamma=.1,.3", "--seeds", "0", "-n", "3", "--steps", "3",
        "--out", "s", "--no-plots", "--json",
    )  # fmt: skip
    assert code == 0, err
    assert [arm["name"] for arm in json.loads(out)["arms"]] == ["uniform", "gamma=0.1", "gamma=0.3"]
    arms = json.loads((tmp_path / "s" / "study.json").read_text())["arms"]
    assert [arm["settings"]["schedule_options"].get("gamma") for arm in arms] == [None, 0.1, 0.3]


def test_an_arm_of_one_step_is_reported(isostep, tmp_path):
    """It has no information rate: that needs a step before."""
    words = ("-n", "2", "--seeds", "0", "--metrics", "degree", "--out", "s", "--no-plots")
    code, _, err = isostep("sweep", "rings-and-stars", "--schedule", "uniform", "--param", "steps=1,3", *words)
    assert code == 0, err
    code, _, err = isostep("report", "s")
    assert code == 0, err
    page = (tmp_path / "s" / "report.html").read_text()
    assert page.count('data-name="drift V_f"') == 2  # of the baseline and of three steps
    code, _, err = isostep("reproduce", "F5", "--model", "rings-and-stars", "-n", "2", "--seeds", "0", "--steps", "1")
    assert code == 0, err
    text = next((tmp_path / "results").glob("F5-*.md")).read_text()
    assert "| fixed | 1 | 1 | 1 |  |  |" in text


def test_reproduce_shows_the_paper_beside_ours(isostep, shared, tmp_path, monkeypatch):
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
    words = ("reproduce", "T10", "-n", "2", "--steps", "6", "--seeds", "0-1", "--model", "grum-qm9-small")
    code, _, err = isostep(*words)
    assert code == 0, err
    text = next((tmp_path / "results").glob("T10-grum-qm9-small-*.md")).read_text()
    assert "Left out: zinc250k: the model given is of qm9" in text
    assert "| DVS | paper | 0.898 | +6.5 % |  | 755 | 678 | -19.6 % |" in text
    code, out, _ = isostep(*words, "--json")
    times = json.loads(out)["parts"][0]["times"]
    assert [(one["arm"], one["seed"]) for one in times[3:]] == [("fixed", 1), ("DVS", 1), ("fixed, calls of DVS", 1)]
    for one, control in zip(times[1::3], times[2::3], strict=True):
        assert (one["steps"], one["calls"]) == (control["steps"], control["calls"])
        assert 0 < one["noise_seconds"] < one["cpu_seconds"]


def test_without_a_model_every_part_has_its_own(isostep, tmp_path, monkeypatch):
    monkeypatch.setenv("ISOSTEP_DATA", str(tmp_path / "nothing"))
    code, _, err = isostep("reproduce", "F5", "-n", "2", "--steps", "2")
    assert code == 0, err
    text = (tmp_path / "results" / "F5.md").read_text()
    assert "Embedded model grum-qm9, smaller than the paper's" in text  # not grum-qm9-small, which is weaker
    assert "Left out: zinc250k: GruM's weights are needed" in text


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
    assert target_names() == [*(f"T{k}" for k in range(1, 11)), *(f"F{k}" for k in range(2, 8))]
    for name in target_names():
        if name in CONSTANTS:
            continue
        target = load_target(name)
        number = ("Table" if name[0] == "T" else "Figure") + f" {name[1:]}:"
        assert target.title.startswith(number)  # the paper's own number, and no other
        for part in target.parts:
            published = {key for arm in part.arms for key in arm.paper}
            assert published <= {*part.metrics, "calls", "step_seconds", "total_seconds"}
            assert len({arm.name for arm in part.arms}) == len(part.arms)
            assert {test.arm for test in part.paper_tests} <= {arm.name for arm in part.arms[1:]}
            assert {test.metric for test in part.paper_tests} <= {*part.metrics}
            controls = [(arm.control_of, arm.schedule) for arm in part.arms if arm.control_of]
            assert {of for of, _ in controls} <= {arm.name for arm in part.arms if arm.schedule == "dvs" and arm.paper}
            if name.startswith("T"):
                assert all(arm.paper for arm in part.arms if arm.control_of is None and arm.solver in ("euler", "heun"))
                assert "uniform" in {schedule for _, schedule in controls}
                local = find_preset(f"{part.family}-{part.dataset}").sampler.dvs.active != ((0.0, 1.0),)
                assert ("ranges" in {schedule for _, schedule in controls}) == local


def test_controls_take_exactly_the_calls_of_dvs(isostep, tmp_path):
    """Seed by seed, whatever DVS spends: evenly, and with the base step outside the active range."""
    words = ("reproduce", "T8", "-n", "3", "--steps", "12", "--seeds", "0-2", "--model", "grum-planar-small", "--json")
    code, out, err = isostep(*words)
    assert code == 0, err
    part = json.loads(out)["parts"][0]
    (folder,) = (path for path in (tmp_path / "results").iterdir() if path.is_dir())
    study = json.loads((folder / "study.json").read_text())
    spent = {}
    for arm in study["arms"]:
        cells = {seed: json.loads((folder / "cells" / f"{key}.json").read_text()) for seed, key in arm["cells"].items()}
        spent[arm["name"]] = {seed: cell["calls"] for seed, cell in cells.items()}
    assert spent["fixed"] == {"0": 12, "1": 12, "2": 12}
    for of in ("DVS, full", "DVS, active range"):
        assert spent[f"fixed, calls of {of}"] == spent[of]
        assert set(spent[of].values()) != {12.0}
    assert spent["fixed, finer in the active range"] == spent["DVS, active range"]
    assert part["constants"]["fixed, finer in the active range"]["outside"] == 6
    assert part["constants"]["DVS, active range"]["active"] == [[0.5, 1.0]]
    assert part["constants"]["DVS, active range"]["kappa"] == pytest.approx(10 * 1000 / 12)
    assert len(part["controls"]) == 3 * 4
    assert all(row["n"] == 3 and row["p_holm"] >= row["p"] for row in part["controls"])
    assert any("authors' code for generic graphs" in note for note in part["notes"])


def test_constant_tables_show_the_paper_beside_what_is_in_use(isostep, tmp_path):
    code, out, err = isostep("reproduce", "T6", "--json")
    assert (code, err) == (0, "")
    assert all(row["paper"] == row["in use"] for row in json.loads(out))
    code, out, err = isostep("reproduce", "t7")
    assert (code, err) == (0, "")
    text = (tmp_path / "results" / "T7.md").read_text()
    assert "| gdss, qm9 | paper | 1 | 0.68 |  | [0, 0.2] and [0.95, 1] |  |" in text
    for row in load_constant_table("T7").rows:
        dvs = find_preset(f"{row.family}-{row.dataset}").sampler.dvs
        assert (dvs.kappa, dvs.gamma, dvs.gamma_heun, dvs.active) == (row.kappa, row.gamma, row.gamma_heun, row.active)


def test_weights_of_a_file_can_be_chosen(isostep, tmp_path):
    code, _, err = isostep("reproduce", "T8", "--model", "grum-planar-small", "--weights", "raw")
    assert code == 2
    assert "holds ema weights, not 'raw'" in err


def test_fetched_files_are_found_as_sample_finds_them(isostep, shared, tmp_path, monkeypatch):
    monkeypatch.setenv("ISOSTEP_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("ISOSTEP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "models").mkdir(parents=True)
    shutil.copy(shared / "checkpoints" / "gdss" / "gdss_ego_small.pth", tmp_path / "cache" / "models")
    for extra in ((), ("--model", "gdss_ego_small", "--weights", "ema")):
        code, _, err = isostep("reproduce", "T4", "-n", "2", "--steps", "2", "--seeds", "0", *extra)
        assert code == 0, err
    records = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("*/study.json")]
    assert sorted(record["model"]["weights"] for record in records) == ["ema", "raw"]


def test_demo_runs_on_the_analytic_model_and_writes_a_page(isostep, tmp_path, monkeypatch):
    monkeypatch.setattr(demo_module, "GRAPHS", 16)
    monkeypatch.setattr(demo_module, "SEEDS", (0, 1))
    code, out, err = isostep("demo", "--model", "rings-and-stars")
    assert code == 0, err
    assert out.splitlines()[0].endswith(f"{demo_module.CALLS} network calls, 16 graphs, 2 seeds")
    assert "quadratic" in out
    assert (tmp_path / "report" / "report.html").stat().st_size > 100_000


def test_some_arms_of_a_target_give_what_they_give_in_all_of_it(isostep, tmp_path):
    words = ("reproduce", "T3", "-n", "3", "--steps", "12", "--seeds", "0", "--model", "grum-planar-small", "--json")
    found = {}
    for arms in ("Heun, DVS; heun, f", "Heun"):
        code, out, err = isostep(*words, "--arms", arms, "--out", f"results-{len(found)}", "--no-reuse")
        assert code == 0, err
        (part,) = json.loads(out)["parts"]
        assert any(arms in note for note in part["notes"])
        (folder,) = (path for path in (tmp_path / f"results-{len(found)}").iterdir() if path.is_dir())
        found[arms] = {arm["name"]: arm["cells"] for arm in json.loads((folder / "study.json").read_text())["arms"]}
    some, all_heun = found.values()
    assert list(some) == ["Heun, fixed", "Heun, DVS", "Heun, fixed, calls of DVS"]
    assert len(all_heun) == 4
    assert some == {name: all_heun[name] for name in some}


def test_a_name_chooses_its_arm_alone_though_others_begin_so():
    arms = load_target("F2").parts[0].arms
    assert [arm.name for arm in chosen_arms(arms, "Fixed")] == ["fixed"]
    assert [arm.name for arm in chosen_arms(arms, "DVS; fix")] == ["fixed", "DVS", "fixed, calls of DVS"]


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("report", "nowhere"), "no study.json"),
        (("compare", "no-such-model", "--out", "x"), "no model 'no-such-model'"),
        (("compare", "m", "--seeds", "x", "--out", "x"), "seeds must look like"),
        (("compare", "m", "--calls", "0", "--out", "x"), "above 0"),
        (("compare", "m", "--kernel", "rbf", "--out", "x"), "kernel"),
        (("sweep", "m", "--param", "gamma=1", "--out", "x"), "--param takes"),
        (("sweep", "m", "--param", "schedule.gamma=,", "--out", "x"), "--param schedule.gamma has no value"),
        (("reproduce", "T11"), "unknown target 'T11'"),
        (("reproduce", "T3", "--model", "grum-planar-small", "--arms", "Euler; Milstein"), "begins with 'milstein'"),
        (
            ("reproduce", "T3", "--model", "grum-planar-small", "--arms", "Euler, fixed, calls"),
            "takes its steps from 'Euler, DVS'",
        ),
    ],
)
def test_mistakes_are_one_line(isostep, words, cause):
    code, _, err = isostep(*words)
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert cause in err
