"""What could be taken for another answer than it is: refused, or said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import isostep as package
from isostep.base.errors import InputError
from isostep.dataset import load
from isostep.metric.evaluate import evaluate
from tests.cli.command import isostep, refused
from tests.conftest import FIXTURES

TOY = "rings-and-stars"
MOL = FIXTURES / "grum" / "mol.pth"
STUDY = ("--seeds", "0", "-n", 4, "--steps", 3, "--no-plots", "--out", "study")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_validity_of_a_result_is_that_before_correction_and_bare_smiles_are_named_as_corrected():
    result = package.sample("grum-qm9-small", 24, schedule="uniform", solver="euler", steps=8)
    share = result.summary()["valid"]
    assert share < 1  # so few steps break some
    report = evaluate(result, "qm9", metrics=["valid"], resamples=0)
    assert report.values["valid"].value == pytest.approx(share)
    assert report.title("valid") == "valid"
    bare = evaluate([smiles for smiles in result.smiles if smiles], "qm9", metrics=["valid"], resamples=0)
    assert bare.values["valid"].value == 1
    assert bare.title("valid") == "valid (after correction)"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--reference", "nowhere.jsonl"), "no reference 'nowhere.jsonl': neither a file nor a known set"),
        (("--reference", "qm9"), "the model makes graphs, but the reference qm9 holds molecules"),
        (("--metrics", "degree,fcd"), "unknown metric 'fcd'"),
        (("--metrics", "degre"), "unknown metric 'degre'"),
        (("--device", "tpu"), "unknown device 'tpu'"),
    ],
)
def test_compare_refuses_before_the_first_arm_is_sampled(options, words):
    assert words in refused("compare", TOY, "--schedules", "uniform,dvs", *STUDY, *options)
    assert not list(Path().rglob("runs"))


def test_a_metric_that_the_reference_cannot_tell_is_refused_before_the_first_arm():
    Path("rings.jsonl").write_text(f"{json.dumps({'n': 3, 'edges': [[0, 1]]})}\n" * 4)
    for metrics in ("novel", "degree,novel"):
        line = refused("compare", TOY, *STUDY, "--reference", "rings.jsonl", "--metrics", metrics)
        assert "novelty needs training graphs, but the reference has none" in line
    for words in (("--metrics", "novel"), ("--keep", "novelty")):
        assert "novel" in refused("tune", TOY, "--calls", 3, "--reference", "rings.jsonl", *words)
    assert not list(Path().rglob("runs"))


@pytest.mark.parametrize("metrics", ["fcd", "valid,fcd"])
def test_a_metric_that_is_not_defined_is_shown_with_the_reason(metrics):
    ended = isostep(
        "sweep", "grum-qm9-small", "--schedule", "power", "--param", "schedule.rho=2,3", "--seeds", "0", "-n", 1,
        "--steps", 3, "--out", "study", "--metrics", metrics,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    said = "fcd: not defined in 3 of 3 arms and seeds (fcd needs at least 2 molecules for a covariance, got 1)."
    table = Path("study/comparison.md").read_text()
    assert said in table
    assert table.count("not defined |") == 3
    assert Path("study/comparison.csv").read_text().count(",fcd,lower,0,") == 3
    assert json.loads(Path("study/comparison.json").read_text())["undefined"]["fcd"]["cells"] == 3
    assert isostep("report", "study").code == 0
    page = Path("study/report.html").read_text()
    assert said in page[: page.index("<table")]


def test_sampling_without_a_folder_says_that_nothing_is_kept():
    few = ("sample", TOY, "-n", 2, "--schedule", "uniform", "--steps", 2)
    assert isostep(*few).err == "warning: the graphs are not kept: --out DIR writes them\n"
    ended = isostep(*few, "--json")
    assert json.loads(ended.out)["graphs"] == 2
    assert "not kept" in ended.err
    assert "not kept" not in isostep(*few, "--out", "run").err


@pytest.mark.parametrize(
    "option", [("--workers", 2), ("--ray", "auto"), ("--threads", 7), ("--shard-size", 3), ("--trace",), ("--sdf",)]
)
def test_what_only_a_run_folder_has_is_refused_without_one(option):
    few = ("sample", TOY, "-n", 2, "--schedule", "uniform", "--steps", 2)
    assert f"{option[0]} needs a run folder: add --out DIR" in refused(*few, *option)


def test_graphs_are_refused_as_sdf_before_they_are_sampled():
    few = ("sample", TOY, "-n", 2, "--schedule", "uniform", "--steps", 2, "--out", "run")
    assert f"{TOY} makes graphs, which cannot be written as sdf" in refused(*few, "--sdf")
    assert not Path("run").exists()


@pytest.mark.parametrize("option", [("--snr", 0.5), ("--scale", 3)])
def test_numbers_of_a_corrector_that_is_not_there_are_refused(option):
    few = ("sample", TOY, "-n", 2, "--schedule", "uniform", "--steps", 2, *option)
    assert f"{option[0][2:]} is the Langevin corrector's, and there is none" in refused(*few)
    assert isostep(*few, "--corrector", "langevin").code == 0
    settings = package.sample(TOY, 2, schedule="uniform", steps=2).settings
    assert package.sample(TOY, 2, **settings.model_dump()).settings == settings  # these name their corrector: none


@pytest.mark.parametrize(
    ("schedule", "option"),
    [
        *(("dvs", option) for option in (("--out", "t.txt"), ("--power", 0.7), ("--combine", "A"), ("--steps", 20))),
        ("arclength", ("--plot", "p")),
    ],
)
def test_calibrate_refuses_what_says_nothing_to_the_schedule(schedule, option):
    words = f"{option[0]} says nothing to the schedule {schedule}; leave it out"
    assert words in refused("calibrate", TOY, "--schedule", schedule, *option)


def test_calibrate_prints_each_schedule_under_its_own_name():
    for name in ("arclength", "decisions"):
        ended = isostep("calibrate", TOY, "--schedule", name, "--steps", 2, "--graphs", 2, "--pilot-steps", 10)
        assert f"\n{name}, 2 steps, t = 0.0000 " in ended.out


@pytest.mark.parametrize(
    ("solver", "steps", "calls", "agree"),
    [("euler", 10, 10, True), ("heun", 5, 10, True), ("euler", 10, 20, False), ("heun", 10, 10, False)],
)
def test_steps_and_calls_that_disagree_are_refused(solver, steps, calls, agree):
    chosen = {"schedule": "uniform", "solver": solver, "steps": steps, "calls": calls}
    if agree:
        assert package.sample(TOY, 1, **chosen).solution.calls.tolist() == [calls]
        return
    with pytest.raises(InputError, match="give steps or calls, not both"):
        package.sample(TOY, 1, **chosen)
    options = ("--schedule", "uniform", "--solver", solver, "--steps", steps, "--calls", calls)
    assert "not both" in refused("sample", TOY, "-n", 1, *options, "--out", "run")
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("--schedule", "uniform", "--solver", "reverse"), "the reverse solver works on score SDEs"),
        (
            ("--schedule", "error", "--solver", "euler"),
            "needs a solver with a tolerance, euler has none; use heun-error",
        ),
        (
            ("--schedule", "error", "--set", "eps_bound=NaN"),
            "eps_bound must be from 0 to dt_min, which is 0.001, got nan",
        ),
        (
            ("--schedule", "error", "--set", "eps_bound=.9"),
            "eps_bound must be from 0 to dt_min, which is 0.001, got 0.9",
        ),
        (("--temperature", "Z=.5"), "a temperature for 'Z', but the model's components are X, A"),
        (("--seed", -1), "seed must be a whole number from 0"),
    ],
)
def test_a_refused_command_does_not_stand_in_the_way_of_the_right_one(wrong, words):
    few = ("sample", TOY, "-n", 2, "--steps", 40, "--out", "run")
    assert words in refused(*few, *wrong)
    assert isostep(*few).code == 0


def test_import_does_not_replace_a_model_unless_told():
    assert isostep("import", MOL, "--out", "model").code == 0
    before = Path("model/model.json").read_bytes()
    assert "holds a model already" in refused("import", FIXTURES / "grum" / "graph.pth", "--out", "model")
    assert Path("model/model.json").read_bytes() == before
    assert isostep("import", FIXTURES / "grum" / "graph.pth", "--out", "model", "--force").code == 0
    assert Path("model/model.json").read_bytes() != before


def test_generated_graphs_do_not_carry_a_benchmarks_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ISOSTEP_DATA", "none")
    assert json.loads(isostep("data", "info", "planar", "--json").out)["name"] == "planar (generated stand-in)"
    source = {row["name"]: row["source"] for row in json.loads(isostep("data", "list", "--json").out)}
    assert all(source[name].startswith("stand-in, generated: ") for name in ("planar", "sbm", "community-small"))
    assert all(source[name].startswith("generated: ") for name in ("planar-small", "communities", "sbm-small"))
    Path("files").mkdir()
    line = json.dumps({"n": 3, "edges": [[0, 1]]})
    Path("files/planar.jsonl").write_text(f"{line}\n" * 200)
    assert load("planar", "files").title == "planar"


def test_a_cache_that_cannot_be_written_warns_and_goes_on(monkeypatch: pytest.MonkeyPatch):
    Path("file").write_text("")
    monkeypatch.setenv("ISOSTEP_CACHE", "file/cache")
    monkeypatch.setenv("ISOSTEP_DATA", "none")
    ended = isostep("data", "info", "communities", "--json")
    assert json.loads(ended.out)["test"] == 128
    assert "file/cache/dataset" in ended.err
    assert sum(line.startswith("warning") for line in ended.err.splitlines()) == 1
    study = ("compare", TOY, "--schedules", "uniform,arclength", *STUDY, "--metrics", "degree")
    ended = isostep(*study)
    assert ended.code == 0, ended.err
    assert "not kept for the next time" in ended.err  # the pilot
    assert "fitted again the next time" in ended.err
    shutil.rmtree("study")
