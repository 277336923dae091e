"""Evaluation as a user meets it: files and folders, bad lines, references that come with the package, the command."""

from __future__ import annotations

import gzip
import json
import pickle
import sys

import networkx
import numpy as np
import pytest

import isostep
from isostep.base.errors import InputError
from isostep.cli import main
from isostep.item import write_items
from isostep.item.graph import Graph, read_graphs
from isostep.metric.base import evaluate_metric
from isostep.metric.evaluate import evaluate
from isostep.metric.graph_reference import GraphReference
from isostep.metric.graph_summary import GraphSummary
from isostep.metric.mmd import GraphMMD
from isostep.metric.molecules import FragmentSimilarity, NearestNeighbour, Novelty, ScaffoldSimilarity, Uniqueness
from isostep.metric.nspdk import GraphNspdk, MoleculeNspdk
from isostep.metric.reference import FOLDER, MOLECULE_METRICS, MoleculeReference, shipped
from isostep.metric.suite import JudgedOnce, load_reference
from isostep.metric.vun import VUN, Novel, Planar, Valid
from isostep.run.engine import save_result
from tests.conftest import FIXTURES

METRICS = FIXTURES / "metrics"
LIGHT = (Uniqueness(), Novelty(), ScaffoldSimilarity(), FragmentSimilarity(), NearestNeighbour(), MoleculeNspdk())


def smiles(name: str) -> list[str]:
    return (METRICS / f"mols_{name}.smi").read_text().split()


@pytest.fixture(scope="module")
def molecules() -> MoleculeReference:
    return MoleculeReference.fit(smiles("test")[:80], smiles("train")[:120], LIGHT, floor_sizes=(20, 60))


def random_graphs(count: int, seed: int) -> list[Graph]:
    rng = np.random.default_rng(seed)
    return [
        Graph.from_networkx(networkx.gnp_random_graph(int(rng.integers(5, 14)), 0.4, seed=int(rng.integers(2**31))))
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def graphs() -> GraphReference:
    return GraphReference.fit(random_graphs(12, 0), random_graphs(20, 1))


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["isostep", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return run


# What is read


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_graph_files_whole_and_compressed(tmp_path, graphs, ending):
    generated = random_graphs(6, 2)
    path = tmp_path / "g.jsonl"
    write_items(path, generated)
    if ending:
        (tmp_path / "g.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    report = evaluate(f"{path}{ending}", graphs, resamples=0)
    assert (report.kind, report.n, report.kernel) == ("graph", 6, "tv")
    assert report.values == evaluate(generated, graphs, resamples=0).values
    assert report.values == evaluate([g.to_networkx() for g in generated], graphs, resamples=0).values


def test_molecule_files_of_all_kinds_agree(tmp_path, molecules):
    from rdkit import Chem

    texts = smiles("gen")[:12]
    (tmp_path / "a.smi").write_text("".join(f"{text} name{i}\n" for i, text in enumerate(texts)))
    (tmp_path / "b.csv").write_text("id,SMILES\n" + "".join(f"{i},{text}\n" for i, text in enumerate(texts)))
    with Chem.SDWriter(str(tmp_path / "c.sdf")) as writer:
        for text in texts:
            writer.write(Chem.MolFromSmiles(text))
    (tmp_path / "d.smi.gz").write_bytes(gzip.compress((tmp_path / "a.smi").read_bytes()))
    reports = [evaluate(tmp_path / name, molecules, resamples=0) for name in ("a.smi", "b.csv", "c.sdf", "d.smi.gz")]
    assert all(report.values == evaluate(texts, molecules, resamples=0).values for report in reports)
    assert all(report.skipped == [] and report.n == 12 for report in reports)


def test_a_run_folder_brings_validity_without_correction(tmp_path, molecules):
    (tmp_path / "molecules.smi").write_text("CCO\t0\t1\nCCN\t1\t0\n\t2\t0\nCCC\t3\t1\n")
    (tmp_path / "run.json").write_text("{}")
    report = evaluate(tmp_path, molecules, resamples=0)
    assert report.values["valid"].value == 0.5
    assert report.values["valid"].n == 4
    assert report.values["unique"].n == 3  # correction left nothing of one
    assert "without correction" in report.definitions["valid"]
    assert "RDKit accepts" in evaluate(["CCO"], molecules, resamples=0).definitions["valid"]


def test_a_run_folder_of_graphs(tmp_path, graphs):
    write_items(tmp_path / "graphs.jsonl", random_graphs(5, 3))
    assert evaluate(tmp_path, graphs, metrics=["degree"], resamples=0).n == 5


# What cannot be used


def test_a_bad_line_is_named_and_counted(tmp_path, graphs):
    path = tmp_path / "g.jsonl"
    path.write_bytes(
        b'{"n": 3, "edges": [[0, 1]]}\n\n{"n": 2, "edges": [[0, 5]]}\nnonsense\n\xff\xfe\n{"n": 2, "edges": [[0, 1]]}\n'
    )
    report = evaluate(path, graphs, metrics=["degree"], resamples=0)
    assert report.n == 2
    assert [(s.file, s.line) for s in report.skipped] == [(str(path), 3), (str(path), 4), (str(path), 5)]
    assert "node 5" in report.skipped[0].reason
    assert "not JSON" in report.skipped[1].reason
    assert "UTF-8" in report.skipped[2].reason
    with pytest.raises(InputError, match=r"g\.jsonl, line 3: .*node 5"):
        evaluate(path, graphs, strict=True)


def test_a_molecule_that_rdkit_rejects_is_invalid_and_left_out(tmp_path, molecules):
    path = tmp_path / "m.smi"
    path.write_text("CCO\nC(C)(C)(C)(C)C\nnot_a_molecule\nCCN\n")
    report = evaluate(path, molecules, resamples=0)
    assert report.values["valid"].value == 0.5
    assert report.values["unique"].n == 2
    assert [s.line for s in report.skipped] == [2, 3]
    assert "valence" in report.skipped[0].reason
    with pytest.raises(InputError, match=r"m\.smi, line 2"):
        evaluate(path, molecules, strict=True)


def test_bad_lines_of_tables_and_runs(tmp_path, molecules):
    (tmp_path / "a.csv").write_text("smiles,x\nCCO,1\nCCN\n,2\nCCC,3\n")
    report = evaluate(tmp_path / "a.csv", molecules, metrics=["unique"], resamples=0)
    assert [s.line for s in report.skipped] == [3, 4]
    (tmp_path / "molecules.smi").write_text("CCO\t0\t1\nCCN\t1\nCCC\t2\tyes\nC(C\t3\t1\n")
    report = evaluate(tmp_path, molecules, metrics=["valid"], resamples=0)
    assert [s.line for s in report.skipped] == [2, 3, 4]
    assert report.n == 1
    (tmp_path / "b.csv").write_text("name\nCCO\n")
    with pytest.raises(InputError, match=r"line 1: expected a column `smiles`"):
        evaluate(tmp_path / "b.csv", molecules)
    (tmp_path / "c.sdf").write_text("garbage\n$$$$\n")
    with pytest.raises(InputError, match="holds no molecule; 1 lines were skipped"):
        evaluate(tmp_path / "c.sdf", molecules)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("g.pkl", pickle.dumps([networkx.path_graph(3)]), "is a pickle"),
        ("g.jsonl", pickle.dumps([networkx.path_graph(3)]), "is a pickle"),
        ("g.txt", b"", "cannot tell what"),
        ("g.jsonl", b"", "holds no graph"),
        ("g.smi", b"\n\n", "holds no molecule"),
        ("g.jsonl.gz", b"not gzip", "cannot read"),
        ("g.jsonl.gz", gzip.compress(b"{}\n" * 1000, mtime=0)[:30], "cut short"),
    ],
)
def test_files_that_are_refused(tmp_path, graphs, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as refusal:
        evaluate(tmp_path / name, graphs)
    assert "\n" not in str(refusal.value)


def test_other_refusals(tmp_path, graphs, molecules):
    for name in ("absent", "absent.jsonl", "absent.smi.gz", "absent.pkl", "no/folder/absent.jsonl"):
        with pytest.raises(InputError, match=f"{name} does not exist"):
            evaluate(tmp_path / name, graphs)
    with pytest.raises(InputError, match=r"folder without molecules\.smi or conformers\.jsonl or graphs\.jsonl"):
        evaluate(tmp_path, graphs)
    with pytest.raises(InputError, match="holds molecules, but the reference"):
        evaluate(["CCO"], graphs)
    with pytest.raises(InputError, match="unknown metric 'fdc'; those for this kind are valid, unique"):
        evaluate(["CCO"], molecules, metrics=["fdc"])
    with pytest.raises(InputError, match="kernel 'tv' is for graph MMDs"):
        evaluate(["CCO"], molecules, kernel="tv")
    with pytest.raises(InputError, match="no reference 'moon'"):
        evaluate(["CCO"], "moon")
    for numbers in ({"workers": 0}, {"resamples": -1}, {"seed": -1}):
        with pytest.raises(InputError, match="need workers >= 1, resamples >= 0, seed >= 0"):
            evaluate(["CCO"], molecules, **numbers)
    with pytest.raises(InputError, match="SMILES only or molecules only"):
        evaluate(["CCO", Graph.of(1, [])], molecules)
    with pytest.raises(InputError, match="the generated set holds no graph"):
        evaluate([], graphs)
    with pytest.raises(InputError, match="the reference holds no graph"):
        evaluate([Graph.of(1, [])], [])


# What comes out


def test_hard_sets_have_defined_values_or_a_reason(graphs, molecules):
    for generated in (
        [Graph.of(1, [])],
        [Graph.of(1, [])] * 3,
        [Graph.of(6, [(0, 1), (2, 3)])],
        [Graph.of(0, []), Graph.of(2, [(0, 1)])],
        [Graph.of(0, [])],
    ):
        report = evaluate(generated, graphs, resamples=10)
        assert report.values.keys() | report.undefined.keys() == report.definitions.keys()
        json.dumps(report.to_dict(), allow_nan=False)
    assert set(report.undefined) == {"degree", "clustering", "orbit", "spectral", "nspdk"}
    with pytest.raises(InputError, match="none of the 1 generated graphs has a node"):
        evaluate([Graph.of(0, [])], graphs, metrics=["degree"])
    for texts in (["C"], ["[Na+].[Cl-]", "C"], ["C(C"]):
        report = evaluate(texts, molecules, resamples=10)
        json.dumps(report.to_dict(), allow_nan=False)
        assert "fcd" in report.undefined  # not fitted here
    assert report.values["valid"].value == 0
    assert set(report.undefined) == report.definitions.keys() - {"valid"}


def test_intervals_hold_the_value_and_follow_the_seed(molecules):
    one, again, other = (evaluate(smiles("gen")[:30], molecules, resamples=50, seed=seed) for seed in (1, 1, 2))
    assert one.values == again.values
    assert one.values["snn"].low != other.values["snn"].low
    for value in one.values.values():
        assert value.low is not None
        assert value.high is not None
        assert value.low <= value.value <= value.high


def test_kernels_differ_and_are_said(graphs):
    generated = random_graphs(6, 2)
    tv, emd = (evaluate(generated, graphs, kernel=kernel, resamples=0) for kernel in ("tv", "emd"))
    assert (tv.kernel, emd.kernel) == ("tv", "emd")
    assert tv.values["degree"] != emd.values["degree"]
    assert tv.values["nspdk"] == emd.values["nspdk"]


# References


def test_a_molecule_reference_survives_its_file(tmp_path, molecules):
    molecules.save(tmp_path / "r.npz")
    report = evaluate(smiles("gen")[:30], tmp_path / "r.npz", resamples=0)
    assert report.values == evaluate(smiles("gen")[:30], molecules, resamples=0).values


def test_floors_are_the_training_sets_own_values(molecules):
    sample = np.random.default_rng(0).permutation(120)[:60]
    train = [smiles("train")[i] for i in sample]
    for metric in (NearestNeighbour(), MoleculeNspdk()):
        expected = evaluate_metric(metric, train, molecules, resamples=0)
        assert expected.floor == pytest.approx(expected.value, abs=1e-9)
    snn = NearestNeighbour()
    assert snn.floor(molecules, 19) is None
    assert snn.floor(molecules, 10**6) == snn.floor(molecules, 60)
    nspdk = [MoleculeNspdk().floor(molecules, n) for n in (20, 30, 60)]
    assert nspdk[0] > nspdk[1] > nspdk[2]
    assert nspdk[1] == pytest.approx(nspdk[2] + (nspdk[0] - nspdk[2]) * (1 / 30 - 1 / 60) / (1 / 20 - 1 / 60))


def test_a_reference_without_training_set_says_what_it_lacks():
    reference = MoleculeReference.fit(smiles("test")[:10], metrics=LIGHT)
    report = evaluate(smiles("gen")[:5], reference, resamples=0)
    assert "no statistics of a train set" in report.undefined["novel"]
    assert report.values["snn"].floor is None


def test_a_summary_without_graphs_measures_what_the_graphs_do(tmp_path, graphs):
    summary = GraphSummary.of(graphs)
    summary.save(tmp_path / "s.npz")
    generated = [*random_graphs(5, 4), *graphs.train[:2], graphs.test[0]]
    whole = evaluate(generated, graphs, resamples=20)
    stored = evaluate(generated, tmp_path / "s.npz", resamples=20)
    assert stored.values["novel"].value == pytest.approx(6 / 8)
    for key, value in whole.values.items():
        assert stored.values[key].value == pytest.approx(value.value, abs=1e-7)
        assert stored.values[key].floor == pytest.approx(value.floor, abs=1e-7)
    with pytest.raises(InputError, match="not the graphs"):
        evaluate_metric(Novel(), generated, summary)


def test_graphs_of_ones_own_are_a_reference_in_a_file_and_in_memory(tmp_path):
    ring, path = Graph.of(3, [(0, 1), (1, 2), (0, 2)]), Graph.of(3, [(0, 1), (1, 2)])
    lines = [json.dumps({"n": g.n, "edges": g.edges.tolist()}) for g in (ring, path, path)]
    (tmp_path / "plain.jsonl").write_text("\n".join(lines) + "\n")
    split = [line[:-1] + f', "split": "{name}"}}' for line, name in zip(lines, ("train", "test", "test"), strict=True)]
    (tmp_path / "split.jsonl").write_text("\n".join(split) + "\n")
    generated = [path, path]
    memory = evaluate(generated, [ring, path, path], resamples=0)
    assert memory.values["degree"].value > 0
    assert "novel" in memory.undefined
    plain = evaluate(generated, tmp_path / "plain.jsonl", resamples=0)
    assert plain.values["degree"] == memory.values["degree"]
    halves = evaluate(generated, tmp_path / "split.jsonl", resamples=0)
    assert halves.values["degree"].value == pytest.approx(0, abs=1e-9)
    assert halves.values["novel"].value == 1
    assert evaluate(["CCO", "CC"], ["CCO", "CC", "CCC"], resamples=0, metrics=["unique"]).values["unique"].value == 1
    (tmp_path / "train.jsonl").write_text(split[0] + "\n")
    with pytest.raises(InputError, match="no graph of the split test"):
        evaluate(generated, tmp_path / "train.jsonl")


def test_no_reference_file_is_unpickled(tmp_path):
    np.savez(tmp_path / "evil.npz", graph_summary=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="not a reference file"):
        load_reference(tmp_path / "evil.npz")
    (tmp_path / "cut.npz").write_bytes((FOLDER / "planar.npz").read_bytes()[:5000])
    with pytest.raises(InputError, match="not a reference file"):
        load_reference(tmp_path / "cut.npz")
    np.save(tmp_path / "plain.npy", np.zeros(3))
    with pytest.raises(InputError, match="not a reference file"):
        load_reference(tmp_path / "plain.npy")


def test_every_shipped_reference_loads_and_they_are_small():
    for name, entry in shipped().items():
        reference = load_reference(name)
        assert isinstance(reference, MoleculeReference) == (entry.kind == "molecule")
        if isinstance(reference, MoleculeReference):
            assert {metric.name for metric in MOLECULE_METRICS} <= set(reference.statistics)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 8e6


def test_shipped_sizes_are_the_published_splits():
    assert load_reference("qm9").sizes == {"test": 13_082, "train": 120_803}
    assert load_reference("zinc250k").sizes == {"test": 24_887, "train": 224_568}
    planar = load_reference("planar")
    assert (len(planar.test), len(planar.train)) == (40, 128)


def test_known_molecules_are_not_novel_and_strangers_are():
    report = evaluate(["C", "CCO", "CC(C)(C)C(=O)OC(C)(C)CCCCCC"], "qm9", metrics=["novel"], resamples=0)
    assert report.values["novel"].value == pytest.approx(1 / 3)


def test_verdicts_are_asked_for_once():
    class Counting(Planar):
        asked = 0

        def judge(self, graphs):
            Counting.asked += 1
            return super().judge(graphs)

    rule, generated = JudgedOnce(Counting()), random_graphs(4, 5)
    reference = GraphReference.fit(random_graphs(3, 6), random_graphs(3, 7))
    valid, vun = (evaluate_metric(metric, generated, reference, resamples=0) for metric in (Valid(rule), VUN(rule)))
    assert Counting.asked == 1
    assert vun.value <= valid.value


# Published samples


def test_published_planar_samples_give_the_published_row(shared):
    report = evaluate(shared / "samples" / "grum_planar.jsonl", "planar", resamples=0)
    row = [report.values[key].value for key in ("degree", "clustering", "orbit", "spectral")]
    assert [round(value, 4) for value in row] == [0.0005, 0.0353, 0.0009, 0.0062]
    assert report.values["valid"].value == pytest.approx(0.9)
    assert report.kernel == "tv"
    floors = [report.values[key].floor for key in ("degree", "clustering", "orbit", "spectral", "nspdk")]
    assert None not in floors


def test_shipped_summary_equals_the_dataset(shared):
    from isostep.dataset import load

    data = load("ego-small", shared / "data")
    fitted = GraphReference.fit(data.split("test"), data.split("train"))
    generated = read_graphs(shared / "data" / "community_small.jsonl")[:10]
    for metric in (GraphMMD("orbit", "emd"), GraphMMD("spectral", "tv"), GraphNspdk()):
        ours, theirs = (
            evaluate_metric(metric, generated, r, resamples=0) for r in (load_reference("ego-small"), fitted)
        )
        assert ours.value == pytest.approx(theirs.value, abs=1e-7)
        assert ours.floor == pytest.approx(theirs.floor, abs=1e-7)


def test_published_qm9_molecules(shared):
    """The authors' own list: novelty and uniqueness near their table, no molecule rejected."""
    report = evaluate(
        shared / "samples" / "grum_qm9_first5000.smi", "qm9", metrics=["valid", "unique", "novel"], resamples=0
    )
    assert report.values["valid"].value == 1
    assert report.values["unique"].value == pytest.approx(0.98, abs=0.01)
    assert report.values["novel"].value == pytest.approx(0.24, abs=0.02)


# The command


def test_command_prints_json(tmp_path, command):
    write_items(tmp_path / "g.jsonl", random_graphs(5, 8))
    code, out, _ = command(
        "evaluate", tmp_path / "g.jsonl", "--reference", "ego-small", "--metrics", "degree,novel", "--json"
    )
    result = json.loads(out)
    assert code == 0
    assert set(result["values"]) == {"degree", "novel"}
    assert set(result["values"]["degree"]) >= {"value", "low", "high", "n", "floor"}
    assert result["kernel"] == "emd"


def test_command_prints_a_table_and_names_bad_lines(tmp_path, command):
    write_items(tmp_path / "g.jsonl", random_graphs(5, 8))
    with open(tmp_path / "g.jsonl", "a") as file:
        file.write("broken\n")
    arguments = ("evaluate", tmp_path / "g.jsonl", "--reference", "ego-small", "--metrics", "degree")
    code, out, err = command(*arguments, "--resamples", "20")
    assert code == 0
    assert "5 graphs against ego-small, kernel emd (default" in out
    assert "g.jsonl, line 6: not JSON" in err
    code, _, err = command(*arguments, "--strict")
    assert code == 2
    assert err.startswith("error: ")
    assert "line 6" in err


def test_command_refuses_with_one_line(tmp_path, command):
    (tmp_path / "g.pkl").write_bytes(b"\x80\x04.")
    for arguments in (
        ("evaluate", tmp_path / "g.pkl", "--reference", "planar"),
        ("evaluate", tmp_path / "none.jsonl", "--reference", "planar", "--kernel", "gauss"),
        ("reference", "build", "nothing", "--out", tmp_path / "x.npz"),
    ):
        code, out, err = command(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1


def test_reference_build_writes_what_evaluate_reads(tmp_path, command, monkeypatch):
    write_items(tmp_path / "ego_small.jsonl", random_graphs(20, 9))
    monkeypatch.setenv("ISOSTEP_DATA", str(tmp_path))
    code, out, _ = command("reference", "build", "ego-small", "--out", tmp_path / "r.npz")
    assert code == 0
    assert "r.npz" in out
    assert len(load_reference(tmp_path / "r.npz").train) == 16
    code, out, _ = command("reference", "list", "--json")
    assert {row["name"] for row in json.loads(out)} >= {"qm9", "zinc250k", "planar", "sbm"}


def test_a_result_is_measured_as_its_run_folder_and_bare_smiles_say_that_they_were_corrected(tmp_path):
    """Corrected SMILES are all readable: a share of 1 that must not pass for validity."""
    result = isostep.sample("grum-qm9-small", 48, calls=5, seed=3)
    save_result(result, tmp_path / "run")
    share = sum(molecule.valid for molecule in result.molecules) / 48
    assert 0 < share < 1
    whole = isostep.evaluate(result, "qm9", metrics=["valid", "unique"], resamples=10)
    stored = isostep.evaluate(tmp_path / "run", "qm9", metrics=["valid", "unique"], resamples=10)
    assert whole.values == stored.values
    assert whole.values["valid"].value == pytest.approx(share)
    again = isostep.evaluate(result.items, "qm9", metrics=["valid"], resamples=0)
    assert again.values["valid"].value == pytest.approx(share)
    bare = isostep.evaluate([s for s in result.smiles if s], "qm9", metrics=["valid"], resamples=10)
    assert bare.values["valid"].value == 1
    assert "| valid (after correction) ↑ | 1 |" in str(bare)
    assert "| valid ↑ |" in whole.to_markdown()
    assert whole.to_pandas().loc["valid", "value"] == pytest.approx(share)
    assert "<svg" in result._repr_html_()
