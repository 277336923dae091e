"""The Python side: results that are saved and read back, studies as functions, pictures, exports, the Hub."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path

import pytest
import torch

import isostep
from isostep.base.errors import InputError
from isostep.item import Molecule
from isostep.model.lookup import EMBEDDED

TOY = "rings-and-stars"
STUDY = {"n": 6, "seeds": (0, 1), "metrics": ("degree",)}


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def result():
    return isostep.sample(TOY, 5, schedule="uniform", steps=8, seed=3, start=2, trace=1)


def test_a_result_is_saved_read_back_and_verified(result):
    result.save("run")
    run = isostep.load_run("run")
    assert [g.to_line(0) for g in run.graphs] == [g.to_line(0) for g in result.graphs]
    assert run.index == list(range(2, 7))
    assert (run.seed, run.settings, run.name) == (3, result.settings, TOY)
    assert run.summary is not None
    assert run.summary["graphs"] == 5
    assert run.to_pandas()["edges"].tolist() == result.to_pandas()["edges"].tolist()
    from isostep.run.inspect import verify

    assert verify("run", TOY).ok
    measured = [isostep.evaluate(what, TOY_GRAPHS, metrics=["degree"], resamples=0) for what in (result, run)]
    assert measured[0].values == measured[1].values
    with pytest.raises(InputError, match="is not a run folder"):
        isostep.load_run("nowhere")


TOY_GRAPHS = isostep.sample(TOY, 8, schedule="uniform", steps=8).graphs


def test_notebooks_and_figures_show_what_there_is(result):
    html = result._repr_html_()
    assert html.count("<svg") == 5
    assert "<script" not in html
    figure = result.plot(count=3)
    assert len(figure.axes) == 3
    edges = [len(graph.edges) for graph in result.graphs[:3]]
    assert [len(axis.lines) for axis in figure.axes] == edges
    above, below = result.solution.trace.plot().axes
    assert len(above.lines[0].get_xdata()) == 8
    assert [line.get_label() for line in below.lines] == ["X", "A"]


def test_a_study_is_a_function_and_its_comparison_a_table():
    compared = isostep.compare(isostep.load_model(TOY), ["uniform", "dvs"], steps=5, out="study", **STUDY)
    table = compared.to_pandas()
    assert table["arm"].tolist() == ["uniform", "dvs"]
    assert "| dvs |" in str(compared)
    assert "<td>dvs</td>" in compared._repr_html_()
    assert {"differences", "step-size"} <= compared.plot().keys()
    assert compared.report() == Path("study/report.html")
    assert isostep.report("study", "page.html").read_text() == Path("study/report.html").read_text()
    record = Path("study/study.json").read_bytes()
    Path("link.html").symlink_to("study/study.json")
    for out in ("study/study.json", "study/comparison.json", "link.html", "page"):
        with pytest.raises(InputError, match=r"a page is an \.html file"):
            isostep.report("study", out)
    assert Path("study/study.json").read_bytes() == record
    arms = {"mine": {"schedule": "uniform", "calls": 4}, "<b>": {"schedule": "dvs", "steps": 6}}
    named = isostep.compare(TOY, arms=arms, out="named", **STUDY)
    assert named.to_pandas()["calls"].tolist()[0] == 4
    assert "<b>" not in named._repr_html_().replace("<b>rings", "").replace("<b>Diff", "")
    swept = isostep.sweep(TOY, {"schedule.gamma": [0.2, 0.3]}, steps=5, out="swept", **STUDY)
    assert swept.to_pandas()["arm"].tolist() == ["uniform", "gamma=0.2", "gamma=0.3"]
    with pytest.raises(InputError, match=r"schedule\.NAME"):
        isostep.sweep(TOY, {"nothing": [1]}, out="bad", **STUDY)


@pytest.mark.parametrize(
    "choice",
    [{"schedule": "cosine"}, {"solver": "heun"}, {"steps": 30}, {"calls": 4}, {"corrector": "none"}, {"clock": "graph"},
     {"snr": 0.1}, {"nonsense": 3}],
    ids=str,
)  # fmt: skip
def test_choices_beside_settings_are_refused(result, choice):
    assert isostep.sample(TOY, 2, settings=result.settings).settings == result.settings
    with pytest.raises(InputError, match=f"{next(iter(choice))} beside settings would be ignored"):
        isostep.sample(TOY, 2, settings=result.settings, **choice)


@pytest.mark.parametrize(
    "choice",
    [{"schedules": ["uniform"]}, {"solvers": ["heun"]}, {"steps": 3}, {"calls": 6}, {"corrector": "langevin"}],
    ids=str,
)
def test_choices_beside_arms_are_refused(choice):
    with pytest.raises(InputError, match=f"{next(iter(choice))} beside arms would be ignored"):
        isostep.compare(TOY, arms={"mine": {"schedule": "uniform"}}, out="study", **choice, **STUDY)
    assert not Path("study").exists()


def test_every_verb_takes_a_path():
    model = Path(TOY)
    made = isostep.sample(model, 2, schedule="uniform", steps=2)
    made.save("run", model)
    from isostep.run.inspect import verify

    assert verify("run").ok
    assert verify("run", model).ok
    isostep.sample_run(model, 2, "again", schedule="uniform", steps=2)
    short = {"n": 2, "metrics": ("degree",)}
    compared = isostep.compare(model, ["uniform"], steps=2, seeds=[0], record=False, out="study", **short)
    assert compared.study.record.plan.model == TOY
    tuned = isostep.tune(model, 2, generations=0, confirm=2, only=["exponential"], yardstick_steps=2, **short)
    assert tuned.plan.model == TOY


def test_what_is_no_model_or_holds_other_weights_is_refused_by_a_study():
    for verb in (isostep.compare, isostep.tune):
        with pytest.raises(InputError, match=r"cannot load a int; make a model of it with isostep\.wrap"):
            verb(3, out="study.toml")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="weights, not 'best'"):
        isostep.compare(isostep.load_model(TOY), weights="best", out="study", **STUDY)


def test_pyg_data_has_features_bonds_and_smiles(result):
    pytest.importorskip("torch_geometric")
    data = result.to_pyg()[0]
    assert data.x.tolist() == [[1.0]] * result.graphs[0].n
    assert data.edge_attr.shape == (2 * len(result.graphs[0].edges), 1)
    molecules = isostep.load_run(_molecules())
    nitro, benzene, empty = molecules.to_pyg()
    assert nitro.x.tolist() == [[6, 0], [7, 1], [8, 0], [8, -1]]
    assert nitro.smiles == "C[N+](=O)[O-]"
    pairs = {tuple(pair): order for pair, order in zip(nitro.edge_index.T.tolist(), nitro.edge_attr[:, 0].tolist())}  # noqa: B905
    assert (pairs[0, 1], pairs[1, 2], pairs[2, 1], pairs[1, 3]) == (1, 2, 2, 1)
    assert set(benzene.edge_attr.flatten().tolist()) == {1.5}
    assert (empty.num_nodes, empty.edge_index.shape) == (0, (2, 0))
    assert torch.equal(nitro.edge_index[:, :3], nitro.edge_index[:, 3:].flip(0))


def _molecules() -> Path:
    """A run folder of three molecules, one of which correction left nothing of."""
    made = isostep.sample("grum-qm9-small", 3, schedule="uniform", solver="euler", steps=2)
    made.items[:] = [Molecule("C[N+](=O)[O-]", True), Molecule("c1ccccc1", True), Molecule("", False)]
    made.save("molecules")
    return Path("molecules")


def test_a_model_of_the_hub_is_a_folder_and_needs_the_client(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError.__mro__[1], match=r"isostep\[hub\]"):
        isostep.load_model("hf:someone/planar")
    with pytest.raises(InputError, match="hf:OWNER/NAME"):
        isostep.load_model("hf:../../etc")
    asked = []

    def snapshot_download(repository: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((repository, revision, allow_patterns))
        if repository == "someone/gone":
            raise ConnectionError("404\nand more")
        shutil.copytree(EMBEDDED / "grum-planar-small", "snapshot", dirs_exist_ok=True)
        return "snapshot"

    client = types.ModuleType("huggingface_hub")
    client.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    model = isostep.load_model("hf:someone/planar@v1")
    assert model.fingerprint() == isostep.load_model("grum-planar-small").fingerprint()
    assert asked == [("someone/planar", "v1", ["model.json", "model.safetensors"])]
    with pytest.raises(InputError, match="cannot get hf:someone/gone: 404; check"):
        isostep.load_model("hf:someone/gone")
