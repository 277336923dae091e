"""A model of one's own goes through every verb, and what does not fit is refused before any work."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import isostep
from isostep.base.errors import InputError
from isostep.item import Graph
from isostep.model.own import contents, from_reference, is_reference
from isostep.model.pyg import SparseNetwork
from isostep.process import VE, VP, Bridge
from isostep.run.engine import sample_run
from isostep.run.inspect import verify
from tests.cli.command import isostep as command
from tests.cli.command import refused

BRIDGES = {"X": Bridge(), "A": Bridge()}


class Clean(nn.Module):
    """Predicts the clean graph; a plain layer works on the time."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.time = nn.Linear(1, 1)

    def forward(self, state, t):
        pull = 4 + 0.1 * self.time(t[:, None])[:, :, None]
        return {"X": torch.tanh(state["X"]), "A": torch.sigmoid(pull * state["A"]) * state.masks.pairs}


class Pull:
    """A drift and a diffusion, nothing else."""

    def drift(self, state, t):
        return {"X": -state["X"], "A": (state["A"].sigmoid() - state["A"]) * state.masks.pairs}

    def diffusion(self, t):
        return 1.0


def clean_model() -> isostep.Model:
    return isostep.wrap(Clean(), BRIDGES, nodes={5: 2, 7: 1}, features=3)


def drift_model() -> isostep.Model:
    return isostep.wrap(Pull(), nodes=[4, 4, 6], features=2, name="pull")


MAKERS = [clean_model, drift_model]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "chosen",
    [{}, {"schedule": "dvs", "steps": 20, "clock": "graph"}, {"schedule": "arclength", "calls": 8}, {"calls": 7}],
    ids=str,
)
def test_budgets_grids_and_clocks_work_and_graphs_do_not_depend_on_the_batch(make, chosen):
    model = make()
    whole = isostep.sample(model, 6, seed=2, **chosen)
    part = isostep.sample(model, 2, start=3, seed=2, batch_size=1, **chosen)
    assert [graph.to_line(0) for graph in whole.items[3:5]] == [graph.to_line(0) for graph in part.items]
    if "calls" in chosen:
        assert whole.solution.calls.unique().tolist() == [chosen["calls"]]


def gaussian(predicts: str, process: VP | VE):
    """Data N(.7, .3^2) in every entry: the exact estimate, in each of the forms."""

    def network(state, t):
        mean, std = (part.view(-1, 1, 1) for part in process.marginal(t.double()))
        variance = (mean * 0.3).square() + std.square()
        score = (mean * 0.7 - state["X"]) / variance
        forms = {"score": score, "noise": -std * score, "clean": (state["X"] + std.square() * score) / mean}
        return {"X": (forms[predicts] * state.mask[..., None]).to(state.dtype)}

    return network


@pytest.mark.parametrize("process", [VP(beta_max=8.0), VE(sigma_max=3.0, prior_std=3.0)], ids=["VP", "VE"])
def test_score_noise_and_clean_are_the_same_model(process):
    ends = []
    for predicts in ("score", "noise", "clean"):
        model = isostep.wrap(gaussian(predicts, process), {"X": process}, nodes=4, features=2, predicts=predicts,
                             items=lambda state: [Graph.of(1, [])] * state.batch)  # fmt: skip
        ends.append(isostep.sample(model, 64, schedule="uniform", solver="euler", steps=60).tensors["X"])
    assert torch.allclose(ends[0], ends[1], atol=1e-4)
    assert torch.allclose(ends[0], ends[2], atol=1e-4)
    assert abs(float(ends[0].mean()) - 0.7) < 4 * 0.3 / math.sqrt(ends[0].numel()) + 0.02


def test_molecules_from_an_atom_list_and_items_from_a_function():
    molecules = isostep.wrap(Clean(), BRIDGES, nodes=5, features=3, items=("C", "N", "O"))
    assert all(isinstance(smiles, str) for smiles in isostep.sample(molecules, 3, calls=4).smiles)

    def two_nodes(state):
        return [Graph.of(2, [(0, 1)])] * state.batch

    own = isostep.wrap(Clean(), BRIDGES, nodes=5, features=3, items=two_nodes)
    assert {graph.n for graph in isostep.sample(own, 3, calls=4).graphs} == {2}
    with pytest.raises(InputError, match="returned 0 items for 2 graphs"):
        isostep.wrap(Clean(), BRIDGES, nodes=5, features=3, items=lambda state: [])


@pytest.mark.parametrize("make", MAKERS)
def test_a_run_folder_is_resumed_by_workers_and_verified(make, tmp_path):
    alone = sample_run(make(), 12, tmp_path / "one", seed=1, calls=5, batch_size=4, shard_size=4)
    sample_run(make(), 12, tmp_path / "two", seed=1, calls=5, batch_size=4, shard_size=4, workers=2)
    assert alone["graphs"] == 12
    assert (tmp_path / "one" / "graphs.jsonl").read_bytes() == (tmp_path / "two" / "graphs.jsonl").read_bytes()
    assert verify(tmp_path / "two", make()).ok


class Layers(nn.Module):
    """A sparse score network in the style of PyTorch Geometric."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.node, self.edge = nn.Linear(4, 2), nn.Linear(5, 1)

    def forward(self, x, edge_index, edge_attr, batch, t):
        i, j = edge_index
        near = torch.zeros_like(x).index_add(0, i, edge_attr * x[j])
        nodes = self.node(torch.cat([x, near[:, :1], t[batch][:, None]], 1))
        return nodes, self.edge(torch.cat([x[i], x[j], edge_attr], 1))


def test_a_sparse_network_sees_real_nodes_only():
    model = isostep.wrap(SparseNetwork(Layers()), {"X": VP(), "A": VP()}, nodes={3: 1, 5: 1}, features=2)
    whole = isostep.sample(model, 8, calls=6, batch_size=8)
    one = isostep.sample(model, 1, start=4, calls=6)
    n = int(whole.tensors.mask[4].sum())
    for name in ("X", "A"):
        window = (slice(n),) * (2 if name == "A" else 1)
        gap = whole.tensors[name][4][window] - one.tensors[name][0][window]
        assert gap.abs().max() < 1e-5


def towards_one(state, t):
    return {"A": (1 - state["A"]) / (1 - t).clamp_min(0.02)[:, None, None] * state.masks.pairs}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"nodes": 0}, "nodes must be"),
        ({"nodes": []}, "nodes must be"),
        ({"nodes": 4.5}, "nodes must be .* got 4.5"),
        ({"nodes": {"three": 1}}, "nodes must be"),
        ({"features": -1}, "features must be whole numbers from 1 on, got -1"),
        ({"features": 2.5}, "features must be whole numbers from 1 on, got 2.5"),
        ({"processes": VP()}, "processes must name a process for each component"),
        ({"prior_std": 2.0}, "prior_std goes with a drift; a process has its own"),
        ({"items": ("C", "N")}, r"X must be \(B, N, 2\)"),
        ({"items": lambda state: None}, "items do not fit: decoding a state fails with TypeError"),
        ({"predicts": "velocity"}, "predicts must be score, noise or clean, got 'velocity'"),
        ({"predicts": "noise"}, "a bridge needs the clean graph"),
        ({"kinds": {"P": "node"}}, "component 'P' has a kind or a process, but not both"),
        ({"network": 3}, "network must be called with"),
        ({"network": lambda state, t: state["X"]}, "must return a mapping with X, A"),
        ({"network": lambda state, t: {"X": state["X"]}}, "mapping with components"),
        ({"network": lambda state, t: {"X": state["X"] + 1, "A": state["A"]}}, "X of the network's output is not zero"),
        ({"network": lambda state, t: {"X": state["X"], "A": state["A"].tril()}}, "not symmetric"),
        ({"network": object(), "processes": None}, "needs drift"),
        ({"network": Clean().double()}, "the network fails on graphs of 3 and 5 nodes: RuntimeError: mat1 and mat2"),
        ({"network": lambda state, t: {n: x / 0 for n, x in state.components.items()}}, "not finite"),
        ({"diffusion": 1.0}, "diffusion goes with a drift"),
        ({"network": towards_one, "processes": None, "diffusion": 1.0, "noise_at_one": True}, "go with processes"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(arguments, words):
    given = {"network": Clean(), "processes": BRIDGES, "nodes": {3: 1, 5: 1}, "features": 3, **arguments}
    with pytest.raises(InputError, match=words) as caught:
        isostep.wrap(**given)
    assert "\n" not in str(caught.value)


def test_a_model_that_was_not_wrapped_is_told_how():
    with pytest.raises(InputError, match=r"isostep\.wrap"):
        isostep.sample(Pull())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no model"):
        isostep.sample("x" * 5000)


CODE = """
import isostep, torch
class Pull:
    def drift(self, state, t):
        return {"X": -state["X"], "A": -state["A"]}
    def diffusion(self, t):
        return 1.0
def make():
    return isostep.wrap(Pull(), nodes=4, features=2)
def wrong():
    return 3
def needs(size):
    return make()
def fails():
    return 1 / 0
def reads():
    return open("weights.pt")
"""


def test_the_command_line_takes_a_function_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own_code.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    ended = command("sample", "own_code:make", "-n", "4", "--calls", "5", "--out", "run")
    assert ended.code == 0, ended
    assert len((tmp_path / "run" / "graphs.jsonl").read_text().splitlines()) == 4
    assert "returned int" in refused("sample", "own_code:wrong", "-n", "4")
    assert "no attribute 'nothing'" in refused("sample", "own_code:nothing", "-n", "4")
    assert "cannot import 'not_there'" in refused("sample", "not_there:make", "-n", "4")
    assert "own_code:needs fails: TypeError: needs() missing 1" in refused("sample", "own_code:needs", "-n", "4")
    assert "own_code:fails fails: ZeroDivisionError" in refused("sample", "own_code:fails", "-n", "4")
    assert "own_code:reads fails: FileNotFoundError" in refused("sample", "own_code:reads", "-n", "4")
    (tmp_path / "no_code.py").write_text("def make(:")
    assert "(no_code.py, line 1)" in refused("sample", "no_code:make", "-n", "4")
    # A folder from elsewhere does not choose what runs here.
    assert "name it with --model" in refused("runs", "verify", "run")
    assert command("runs", "verify", "run", "--model", "own_code:make").code == 0


VERBS = """
import isostep, torch
from torch import nn
from isostep.item import Graph
from isostep.process import VP
class Score(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gain = nn.Linear(1, 1)
    def forward(self, state, t):
        gain = self.gain(t[:, None])[:, :, None]
        return {name: gain * value for name, value in state.components.items()}
def decode(state):
    return [Graph.from_adjacency((a.abs() > 0.5).numpy()) for a in state["A"]]
def make():
    both = {"X": VP(), "A": VP()}
    return isostep.wrap(Score(), both, predicts="noise", noise_at_one=True, nodes=[4, 5], items=decode)
"""


def test_every_verb_takes_a_function_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own_verbs.py").write_text(VERBS)
    (tmp_path / "mine.jsonl").write_text(
        '{"n": 4, "edges": [[0, 1], [1, 2]]}\n{"n": 5, "edges": [[0, 1], [0, 2]]}\n' * 4
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def done(*arguments: object) -> str:
        ended = command(*arguments)
        assert ended.code == 0, ended
        return ended.out

    run = ("sample", "own_verbs:make", "-n", 12, "--calls", 4, "--batch-size", 4, "--shard-size", 4)
    done(*run, "--out", "one")
    done(*run, "--out", "two", "--workers", 2)
    assert Path("one/graphs.jsonl").read_bytes() == Path("two/graphs.jsonl").read_bytes()
    sys.modules.pop("own_verbs")  # code that is imported anew is the same model
    assert "12 graphs" in done(*run, "--out", "two")
    done("runs", "verify", "two", "--model", "own_verbs:make")
    assert "degree" in done("evaluate", "one", "--reference", "mine.jsonl", "--resamples", 0)
    assert "t = 0.0000" in done("calibrate", "own_verbs:make", "--steps", 3, "--graphs", 2, "--pilot-steps", 10)
    study = ("--seeds", "0-1", "-n", 6, "--steps", 4, "--reference", "mine.jsonl", "--metrics", "degree")
    done("compare", "own_verbs:make", "--schedules", "uniform,dvs,arclength", *study, "--no-plots", "--out", "study")
    done("sweep", "own_verbs:make", "--param", "schedule.gamma=0.2,0.3", *study, "--no-plots", "--out", "swept")
    done("report", "study")
    assert "own-model" in Path("study/report.html").read_text()


class Noisy(Clean):
    def __init__(self, share: float = 0.5, power: int = 1) -> None:
        super().__init__()
        self.drop, self.power = nn.Dropout(share), power

    def forward(self, state, t):
        return super().forward(state.replace({"X": self.drop(state["X"]), "A": state["A"]}), t)


def test_a_network_left_in_training_mode_is_put_into_evaluation_mode():
    model = isostep.wrap(Noisy(), BRIDGES, nodes=5, features=3)
    first, second = (isostep.sample(model, 3, calls=4).tensors["X"] for _ in range(2))
    assert torch.equal(first, second)


class NoisyDrift(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, state, t):
        a = self.drop(torch.ones_like(state["A"]))
        return {"X": -state["X"], "A": ((a + a.mT) / 2 - state["A"]) * state.masks.pairs}


def test_a_drift_left_in_training_mode_is_put_into_evaluation_mode():
    model = isostep.wrap(NoisyDrift(), diffusion=0, nodes=6)
    first, second = (isostep.sample(model, 3, steps=4, schedule="uniform").tensors["A"] for _ in range(2))
    assert torch.equal(first, second)


def test_numbers_of_nodes_may_be_numpys_or_of_json():
    make = {"network": Clean(), "processes": BRIDGES, "features": np.int64(3)}
    assert isostep.wrap(nodes=np.int64(5), **make).info.node_counts == ((5, 1),)
    assert isostep.wrap(nodes={"3": 2, "5": 1}, **make).info.node_counts == ((3, 2), (5, 1))
    assert isostep.wrap(nodes=np.array([5, 3, 3]), **make).info.node_counts == ((3, 2), (5, 1))


def same_items(state):
    return [Graph.of(1, [])] * state.batch


def other_items(state):
    return [Graph.of(2, [])] * state.batch


def test_models_that_differ_in_anything_have_other_fingerprints():
    made = [
        isostep.wrap(Noisy(), BRIDGES, nodes=5, features=3),
        isostep.wrap(Noisy(power=2), BRIDGES, nodes=5, features=3),
        isostep.wrap(Noisy(share=0.1), BRIDGES, nodes=5, features=3),
        isostep.wrap(Noisy(), BRIDGES, nodes=6, features=3),
        isostep.wrap(Noisy(), BRIDGES, nodes=5, features=3, noise_at_one=True),
        isostep.wrap(Noisy(), BRIDGES, nodes=5, features=3, items=same_items),
        isostep.wrap(Noisy(), BRIDGES, nodes=5, features=3, items=other_items),
    ]
    assert len({model.fingerprint() for model in made}) == len(made)
    again = isostep.wrap(Noisy(), BRIDGES, nodes=5, features=3, items=same_items, name="another name")
    assert again.fingerprint() == made[-2].fingerprint()
    assert "0x" not in repr(contents(made[-2].info.decoder))  # no address, which another process would change


class Level(nn.Module):
    """All edges or none, as an attribute says that no state_dict() holds."""

    def __init__(self, **held: Any) -> None:
        super().__init__()
        for name, value in held.items():
            setattr(self, name, value)

    def forward(self, state, t):
        return {"A": self.levels[0] * state.masks.pairs.float()}


class Told:
    def __init__(self, *held: Any) -> None:
        self.held = held


class TensorDrift(Pull):
    def __init__(self, value: float) -> None:
        self.rate = torch.tensor([value])


def hidden(value: float) -> Level:
    module = Level(levels=[1.0])
    module.register_buffer("shift", torch.tensor(value), persistent=False)
    return module


def hooked(hook: Any) -> Level:
    module = Level(levels=[1.0])
    module.register_forward_hook(hook)
    return module


def first_hook(module, given, out): ...


def second_hook(module, given, out): ...


MODULES: list[Callable[[], nn.Module]] = [
    lambda: Level(levels=[0.0]),
    lambda: Level(levels=[1.0]),
    lambda: Level(levels={0: 1.0}),
    lambda: Level(levels=torch.tensor([1.0])),
    lambda: Level(levels=torch.tensor([1.0]).double()),
    lambda: Level(levels=torch.tensor([[1.0]])),
    lambda: Level(levels=[1.0], shift=torch.tensor(1.0)),
    lambda: Level(levels=[1.0], shift=torch.tensor(2.0)),
    lambda: Level(levels=[1.0], deep={"a": [(torch.tensor(1.0),)]}),
    lambda: Level(levels=[1.0], deep={"a": [(torch.tensor(2.0),)]}),
    lambda: Level(levels=[1.0], deep=Told(torch.tensor(1.0))),
    lambda: Level(levels=[1.0], deep=Told(torch.tensor(2.0))),
    lambda: Level(levels=[1.0], atoms={"C", "N", "O"}),
    lambda: Level(levels=[1.0], atoms={"C", "N", "S"}),
    lambda: Level(levels=[1.0], unregistered=[nn.ReLU()]),
    lambda: Level(levels=[1.0], unregistered=[nn.Tanh()]),
    lambda: Level(levels=[1.0], function=torch.tanh),
    lambda: Level(levels=[1.0], function=torch.relu),
    lambda: hidden(1.0),
    lambda: hidden(2.0),
    lambda: hooked(first_hook),
    lambda: hooked(second_hook),
]


def level_model(module: nn.Module) -> isostep.Model:
    return isostep.wrap(module, {"A": Bridge()}, nodes=4)


def test_whatever_a_module_holds_is_in_its_fingerprint():
    first, again = ([level_model(make()).fingerprint() for make in MODULES] for _ in range(2))
    assert len(set(first)) == len(first)
    assert first == again
    drifts = [isostep.wrap(TensorDrift(value), nodes=4).fingerprint() for value in (1.0, 2.0, 2.0)]
    assert drifts[0] != drifts[1] == drifts[2]


def test_fingerprints_are_those_of_another_process():
    code = "from tests.model.test_own import *; print(*(level_model(make()).fingerprint() for make in MODULES))"
    elsewhere = {**os.environ, "PYTHONHASHSEED": "5", "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", code], env=elsewhere, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [level_model(make()).fingerprint() for make in MODULES]


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),
        lambda: nn.GRU(2, 2),
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
        lambda: torch.compile(nn.Linear(2, 2), backend="eager"),
    ],
    ids=["with a number", "with weak references", "that cannot be pickled", "with addresses"],
)
def test_parts_of_torch_have_fingerprints(make):
    found = []
    for seed in (0, 1, 1):
        torch.manual_seed(seed)
        found.append(level_model(Level(levels=[1.0], part=make())).fingerprint())
    assert found[0] != found[1] == found[2]


def test_what_cannot_be_told_apart_is_refused():
    with pytest.raises(InputError, match=r"own-model cannot be told from other models \(Can't pickle"):
        level_model(Level(levels=[1.0], function=lambda x: x)).fingerprint()


def test_a_run_is_not_continued_with_a_module_that_holds_something_else(tmp_path: Path):
    none, all_edges = (level_model(Level(levels=[level], shift=torch.tensor(level))) for level in (0.0, 1.0))
    sample_run(none, 3, tmp_path, steps=3)
    with pytest.raises(InputError, match="fingerprint"):
        sample_run(all_edges, 3, tmp_path, steps=3)


def test_time_the_other_way_round():
    heard = []

    def network(state, t):
        heard.append(t.clone())
        return {"X": -state["X"]}

    def nothing(state):
        return [Graph.of(1, [])] * state.batch

    for noise_at_one in (False, True):
        model = isostep.wrap(network, {"X": VP()}, nodes=3, items=nothing, noise_at_one=noise_at_one)
        heard.clear()
        isostep.sample(model, 1, schedule="uniform", solver="euler", steps=4)
        times = torch.cat(heard).tolist()
        assert times == sorted(times, reverse=noise_at_one)
        assert times[0] == pytest.approx(float(noise_at_one))


def test_a_function_with_its_noise_is_a_model_and_without_noise_it_is_flow_matching():
    model = isostep.wrap(towards_one, diffusion=0.0, nodes=4, kinds={"A": "edge"})
    result = isostep.sample(model, 3, schedule="uniform", solver="heun", steps=40)
    assert [len(graph.edges) for graph in result.graphs] == [6, 6, 6]
    for chosen in ({"schedule": "dvs", "steps": 30}, {"schedule": "arclength", "calls": 12}, {"calls": 9}):
        result = isostep.sample(model, 2, **chosen)
        assert result.solution.counts()["done"] == 2
        assert result.tensors["A"].isfinite().all()
    noisy = isostep.wrap(towards_one, diffusion={"A": 0.3}, nodes=4, kinds={"A": "edge"})
    assert noisy.fingerprint() != model.fingerprint()


def test_names_that_are_code():
    assert is_reference("package.module:function")
    assert not any(map(is_reference, ("C:\\model.pth", "runs/a:b", "grum-qm9-small", "a.pth", "a:b:c")))
    with pytest.raises(InputError, match="cannot import"):
        from_reference("no_such_module:f")


def test_a_close_name_is_proposed():
    with pytest.raises(InputError, match="did you mean grum-planar-small"):
        isostep.load_model("grum-planar-smal")


def test_snapshots_of_graphs_that_fail_are_left_out_in_every_batch():
    def breaks(state, t):  # some graphs are lost after t = .6
        lost = (state["A"][:, 0, 1] > 0) & (t > 0.6)
        return {"A": torch.where(lost[:, None, None], torch.nan, 0.0) * state["A"]}

    model = isostep.wrap(breaks, {"A": VP()}, predicts="noise", nodes=4)
    chosen = {"schedule": "uniform", "solver": "euler", "steps": 10, "snapshots": (0.3, 0.9, 0.9)}
    whole, alone = (isostep.sample(model, 6, batch_size=size, **chosen).solution for size in (6, 1))
    assert 0 < whole.snapshots[0.9].batch < 6 == whole.snapshots[0.3].batch
    for time in (0.3, 0.9):
        assert torch.allclose(whole.snapshots[time]["A"], alone.snapshots[time]["A"], atol=1e-6)


def test_a_clean_end_is_clean_where_dvs_stops_before_the_end():
    def grey(state, t):
        return {"A": torch.full_like(state["A"], 0.75) * state.masks.pairs}

    model = isostep.wrap(grey, {"A": VE(sigma_min=0.1)}, predicts="clean", nodes=5)
    options = {"schedule_options": {"kappa": 1e-3, "eps_bound": 2e-3}, "solver_options": {"clean_end": True}}
    result = isostep.sample(model, 4, schedule="dvs", solver="exponential", steps=200, clock="graph", **options)
    assert result.solution.t.max() < 1
    assert torch.allclose(result.tensors["A"][:, 0, 1], torch.tensor(0.75))


def test_error_control_takes_no_more_steps_for_a_graph_without_entries():
    def zero(state, t):
        return {"A": 0 * state["A"]}

    model = isostep.wrap(zero, {"A": VP()}, predicts="noise", nodes={1: 1, 6: 1})
    result = isostep.sample(model, 8, schedule="error", solver="heun-error", steps=10)
    sizes = result.solution.state.mask.sum(1)
    assert set(sizes.tolist()) == {1, 6}
    assert result.solution.steps[sizes == 1].max() <= result.solution.steps[sizes == 6].max()
