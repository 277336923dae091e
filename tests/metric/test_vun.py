"""Validity, uniqueness, novelty and their conjunction."""

from __future__ import annotations

import json
from pathlib import Path

import networkx
import numpy as np
import pytest
from scipy.stats import chi2

from isostep.base.errors import InputError
from isostep.dataset import generate_planar
from isostep.item.graph import Graph, read_graphs
from isostep.metric.base import evaluate_metric
from isostep.metric.graph_reference import GraphReference
from isostep.metric.sbm import Partition
from isostep.metric.vun import VUN, BlockModel, Connected, Novel, Planar, Unique, Valid

PATH, CYCLE, CLIQUE, NOTHING = (
    Graph.from_networkx(g)
    for g in (networkx.path_graph(6), networkx.cycle_graph(6), networkx.complete_graph(5), networkx.empty_graph(0))
)
APART = Graph.of(6, [(0, 1), (2, 3)])
RENAMED_PATH = Graph.of(6, [(5, 3), (3, 1), (1, 0), (0, 2), (2, 4)])


def share(metric, generated, reference=(PATH,)) -> float:
    return evaluate_metric(metric, generated, reference, resamples=0).value


def benchmark(shared: Path, name: str) -> GraphReference:
    splits: dict[str, list[Graph]] = {}
    for line in (shared / "data" / f"{name}.jsonl").read_text().splitlines():
        splits.setdefault(json.loads(line)["split"], []).append(Graph.from_line(line))
    return GraphReference.fit(splits["test"], splits["train"])


def block_graph(sizes: list[int], seed: int, inside: float = 0.3, across: float = 0.005) -> Graph:
    p = np.full((len(sizes), len(sizes)), across)
    np.fill_diagonal(p, inside)
    return Graph.from_networkx(networkx.stochastic_block_model(sizes, p, seed=seed))


class TestPlanar:
    def test_agrees_with_networkx(self):
        graphs = [networkx.gnp_random_graph(12, p / 20, seed=p) for p in range(1, 12) for _ in range(3)]
        verdicts, _ = Planar().judge([Graph.from_networkx(graph) for graph in graphs])
        plain = [networkx.is_connected(graph) and networkx.check_planarity(graph)[0] for graph in graphs]
        assert verdicts[0].tolist() == plain
        assert 0 < sum(plain) < len(plain)

    @pytest.mark.parametrize(
        ("graph", "valid"),
        [(PATH, 1), (CYCLE, 1), (CLIQUE, 0), (APART, 0), (NOTHING, 0), (Graph.of(1, []), 1), (Graph.of(2, []), 0)],
    )
    def test_known_graphs(self, graph, valid):
        assert share(Valid(Planar()), [graph]) == valid

    def test_thirty_six_of_the_forty_published_samples(self, shared):
        generated = read_graphs(shared / "samples" / "grum_planar.jsonl")
        reference = benchmark(shared, "planar")
        for metric in (Valid(Planar()), VUN(Planar()), VUN(Planar(), against="test")):
            assert share(metric, generated, reference) == 36 / 40


class TestBlockModel:
    @pytest.mark.slow
    def test_published_samples_by_both_forms(self, shared):
        """The published program, with graph-tool, finds 32 to 34 of 40 over runs; elementwise, 17 in one."""
        generated = read_graphs(shared / "samples" / "grum_sbm.jsonl")
        settings = {"inference": "own", "runs": 1}
        matrix, elementwise = (
            evaluate_metric(Valid(BlockModel(form, **settings)), generated, [PATH])
            for form in ("matrix", "elementwise")
        )
        assert 32 <= round(40 * matrix.value) <= 34
        assert 15 <= round(40 * elementwise.value) <= 19
        assert matrix.details == {"inference": "own", "form": "matrix", "runs": 1, "spread": 0.0}

    @pytest.mark.filterwarnings("ignore:the matrix subclass")
    @pytest.mark.parametrize("form", ["matrix", "elementwise"])
    def test_the_verdict_is_the_formula_with_numpy_matrices(self, form):
        """`numpy.matrix` makes ** and * matrix products, which is what the form is named after."""
        kind = np.matrix if form == "matrix" else np.array
        passed = []
        for seed in range(12):
            partition = Partition(
                block_graph([20, 25, 30], seed, 0.24 + seed / 100, 0.002 * seed), np.repeat([0, 1, 2], [20, 25, 30])
            )
            n, e = partition.sizes, partition.e
            inside = np.diag(e) / (n * (n - 1) + 1e-6)
            across = kind((e - np.diag(np.diag(e))) / (np.outer(n, n) + 1e-6))
            w = np.array((across - 0.005) ** 2 / (across * (1 - across) + 1e-6))
            np.fill_diagonal(w, (inside - 0.3) ** 2 / (inside * (1 - inside) + 1e-6))
            passed.append((1 - chi2.cdf(w, 1)).mean() > 0.9)
            assert BlockModel(form).fits(partition) == passed[-1]
        assert 0 < sum(passed) < len(passed)

    def test_block_graphs_pass_and_others_do_not(self):
        good = [block_graph([22, 30, 38], seed) for seed in range(2)]
        bad = [
            block_graph([60], 0),  # one block
            block_graph([22, 30, 38], 0, inside=0.9),  # too dense
            block_graph([10, 10, 20], 0),  # blocks too small
            Graph.of(39, []),  # too few nodes for two blocks
            Graph.of(201, []),  # too many for five
            Graph.of(50, []),
            Graph.of(1, []),
            NOTHING,
        ]
        verdicts, details = BlockModel(inference="own", runs=1).judge(good + bad)
        assert verdicts.shape == (1, 10)
        assert verdicts[:, :2].all()
        assert not verdicts[:, 2:].any()
        assert details["inference"] == "own"

    def test_verdicts_that_differ_between_runs_are_averaged(self, monkeypatch):
        """A seed that fails to find the blocks lowers the share, and shows as spread."""
        from isostep.metric import vun

        graph = block_graph([22, 30, 38], 0)
        right, wrong = np.repeat([0, 1, 2], [22, 30, 38]), np.zeros(90, int)
        monkeypatch.setattr(vun, "infer", lambda graphs, seed, inference: [wrong if seed == 3 else right] * len(graphs))
        value = evaluate_metric(Valid(BlockModel(inference="own", runs=4)), [graph, graph], [PATH])
        assert value.value == 0.75
        assert value.details["spread"] == pytest.approx(np.std([1, 1, 1, 0]))

    @pytest.mark.parametrize("setting", [{"form": "tensor"}, {"inference": "guess"}, {"runs": 0}])
    def test_unknown_settings_are_refused(self, setting):
        with pytest.raises(InputError, match=str(*setting.values())):
            BlockModel(**setting)


def test_connected():
    assert share(Connected(), [PATH, APART, NOTHING, Graph.of(1, [])]) == 0.5


def test_unique_counts_isomorphism_classes():
    assert share(Unique(), [PATH, RENAMED_PATH, CYCLE, APART, CYCLE]) == pytest.approx(3 / 5)


def test_resampling_does_not_make_duplicates():
    value = evaluate_metric(Unique(), [PATH, CYCLE, CLIQUE], [PATH])
    assert (value.value, value.high) == (1, 1)


def test_novel_is_against_training_graphs_unless_told():
    reference = GraphReference.fit(test=[CYCLE], train=[PATH])
    assert share(Novel(), [RENAMED_PATH, CYCLE, CLIQUE], reference) == pytest.approx(2 / 3)
    assert share(Novel(), [RENAMED_PATH, CYCLE, CYCLE], reference) == pytest.approx(2 / 3)
    assert share(Novel("test"), [RENAMED_PATH, CYCLE, CYCLE], reference) == pytest.approx(1 / 3)


def test_training_graphs_are_never_novel():
    graphs = generate_planar(40, 64, seed=0)
    reference = GraphReference.fit(graphs[:10], graphs[10:])
    rng = np.random.default_rng(0)
    renamed = [Graph.of(graph.n, rng.permutation(graph.n)[graph.edges]) for graph in reference.train]
    assert share(Novel(), renamed, reference) == 0


def test_vun_is_the_conjunction():
    """Of six: K5 is not planar, one cycle is a repetition, the path is known, the two parts are not connected."""
    star = Graph.from_networkx(networkx.star_graph(4))
    reference = GraphReference.fit(test=[star], train=[PATH])
    generated = [CLIQUE, CYCLE, CYCLE, RENAMED_PATH, APART, star]
    assert share(VUN(Planar()), generated, reference) == pytest.approx(2 / 6)
    assert share(VUN(Planar(), against="test"), generated, reference) == pytest.approx(2 / 6)
    assert share(VUN(Planar(), against="test"), generated[:-1], reference) == pytest.approx(2 / 5)


def test_spread_of_vun_is_that_of_its_own_shares(monkeypatch):
    from isostep.metric import vun

    graph = block_graph([22, 30, 38], 0)
    right, wrong = np.repeat([0, 1, 2], [22, 30, 38]), np.zeros(90, int)
    monkeypatch.setattr(vun, "infer", lambda graphs, seed, inference: [wrong if seed else right] * len(graphs))
    reference = GraphReference.fit([PATH], [PATH])
    value = evaluate_metric(VUN(BlockModel(inference="own", runs=2)), [graph, graph], reference)  # one is a repetition
    assert value.value == 0.25
    assert value.details["spread"] == pytest.approx(0.25)


def test_novelty_without_training_graphs_is_refused():
    for metric in (Novel(), VUN(Planar())):
        with pytest.raises(InputError, match="novelty needs training graphs"):
            evaluate_metric(metric, [PATH], [CYCLE])
