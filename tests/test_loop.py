"""The loop: batch independence, failures that stay their own, refilling, hooks, trace, memory, wrong use."""

from __future__ import annotations

import itertools
import weakref

import pytest
import torch

from isostep.base.errors import InputError
from isostep.control import Dvs, Grid, uniform
from isostep.loop import integrate
from isostep.noise import PhiloxNoise
from isostep.process import VE, VP, Bridge, ProcessSde
from isostep.solution import IntegrationError, Status
from isostep.solver import S4, Corrected, Euler, Exponential, Heun, Langevin, ReverseDiffusion
from isostep.state import GraphState
from tests.problems import Chatter, chatter, noisy_graphs

GRAPH = Langevin(snr=0.1, scale=0.7, norms="graph")
SOLVERS = {
    "euler": (Euler(), Bridge()),
    "heun": (Heun(), Bridge()),
    "heun-noisy": (Heun("noisy"), Bridge(drift_coeff=-1.0)),
    "exponential": (Exponential(), Bridge()),
    "exponential-2": (Exponential(order=2), VP()),
    "reverse": (ReverseDiffusion(), VE()),
    "s4": (S4(GRAPH), VE()),
    "langevin": (Corrected(Euler(), GRAPH), VP()),
}
CONTROLLERS = {
    "uniform": uniform(12),
    "dvs": Dvs(kappa=3.0, dt_base=0.05, reduction="graph"),
    "dvs-entries": Dvs(kappa=0.3, dt_base=0.05, reduction="graph", normalize="entries"),
}
SIZES = [4, 2, 5, 1, 3]


def all_at_once(model: Chatter, controller, solver, nodes: int | None = None):
    return integrate(model, noisy_graphs(SIZES, nodes), controller, solver, PhiloxNoise(7))


def largest_gap(model: Chatter, controller, solver) -> float:
    """Largest difference between a graph in a batch of five and the same graph alone, with its own padding."""
    together = all_at_once(model, controller, solver).raise_failures()
    gap = 0.0
    for i, size in enumerate(SIZES):
        start = noisy_graphs([size], first=i)
        alone = integrate(model, start, controller, solver, PhiloxNoise(7), index=torch.tensor([i]))
        gap = max(gap, abs(float(alone.t - together.t[i])), abs(int(alone.steps) - int(together.steps[i])))
        for name in ("X", "A"):
            window = (slice(size),) * (2 if name == "A" else 1)
            for whole, part in ((together.state, alone.state), (together.mean, alone.mean)):
                gap = max(gap, float((whole[name][i][window] - part[name][0]).abs().max()))
    return gap


@pytest.mark.parametrize("control", CONTROLLERS)
@pytest.mark.parametrize("name", SOLVERS)
def test_a_graph_alone_equals_the_graph_in_a_batch(name, control):
    """For every per-graph mode, at another padding, and although others finish earlier."""
    solver, process = SOLVERS[name]
    assert not solver.couples_graphs
    assert largest_gap(chatter(process), CONTROLLERS[control], solver) < 1e-5


@pytest.mark.parametrize(
    ("controller", "solver", "process"),
    [
        (Dvs(kappa=3.0, dt_base=0.05, reduction="batch"), Euler(), Bridge()),
        (uniform(12), Corrected(Euler(), Langevin(snr=0.1, norms="batch")), VE()),
        (uniform(12), S4(Langevin(snr=0.1, norms="batch")), VE()),
    ],
    ids=["dvs", "langevin", "s4"],
)
def test_batch_averages_do_couple_the_graphs(controller, solver, process):
    """The same check must see an average over the batch, and the parts must say that they take one."""
    assert controller.couples_graphs or solver.couples_graphs
    assert largest_gap(chatter(process), controller, solver) > 1e-3


@pytest.mark.parametrize("control", CONTROLLERS)
def test_padding_does_not_matter(control):
    narrow = all_at_once(chatter(), CONTROLLERS[control], Exponential(order=2))
    wide = all_at_once(chatter(), CONTROLLERS[control], Exponential(order=2), nodes=8)
    for name in ("X", "A"):
        torch.testing.assert_close(wide.state.pad(5)[name], narrow.state[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("control", ["dvs", "uniform"])
@pytest.mark.parametrize("solver", [Euler(), Exponential(order=2)], ids=["euler", "exponential-2"])
def test_refilling_gives_the_same_graphs(control, solver):
    """Two places, five graphs of different sizes; whoever comes later joins graphs that are halfway."""
    controller = CONTROLLERS[control]
    waiting = [2, 3, 4]
    joined = []

    def refill(count: int):
        taken, waiting[:] = waiting[:count], waiting[count:]
        if not taken:
            return None
        joined.append(len(taken))
        states = [noisy_graphs([SIZES[i]], first=i) for i in taken]
        return GraphState.cat(states), torch.tensor(taken)

    start = noisy_graphs(SIZES[:2], nodes=5)
    refilled = integrate(chatter(), start, controller, solver, PhiloxNoise(7), refill=refill).raise_failures()
    whole = all_at_once(chatter(), controller, solver)
    assert sum(joined) == 3
    assert refilled.index.tolist() == [0, 1, 2, 3, 4]
    assert refilled.steps.tolist() == whole.steps.tolist()
    for name in ("X", "A"):
        torch.testing.assert_close(refilled.state[name], whole.state[name], rtol=0, atol=1e-5)


def test_refilling_needs_room_and_own_settings():
    def refill(count: int):
        return noisy_graphs([6], first=9), torch.tensor([9])

    with pytest.raises(InputError, match="6 node slots, the batch 3; pad the first batch"):
        integrate(chatter(), noisy_graphs([3]), uniform(2), Euler(), refill=refill)
    with pytest.raises(InputError, match="couples the graphs of a batch"):
        integrate(chatter(), noisy_graphs([3]), Dvs(), Euler(), refill=refill)


def test_finished_graphs_leave_the_batch():
    """Own clocks: the network sees fewer graphs towards the end, and the bill of each graph is its own."""
    batches = []
    model = chatter()

    def network(state: GraphState, t: torch.Tensor):
        batches.append(state.batch)
        return model(state, t)

    controller = Dvs(kappa=3.0, dt_base=0.02, reduction="graph")
    solution = integrate(ProcessSde(network, model.processes, raw=False), noisy_graphs([2, 9, 5]), controller, Heun())
    assert batches == sorted(batches, reverse=True)
    assert batches[0] == 3 > batches[-1]
    assert solution.batch_calls == len(batches)
    assert torch.equal(solution.calls, 2 * solution.steps)
    assert len(set(solution.steps.tolist())) == 3


class Fragile:
    """An own model that breaks one graph (the one with the largest first entry) after t = 0.4."""

    def __init__(self, value: float) -> None:
        self.value = value

    def drift(self, state: GraphState, t: torch.Tensor):
        broken = (state["y"][:, :1] > 50) & (t > 0.4)[:, None]
        return {"y": torch.where(broken, self.value, torch.sin(3 * state["y"]))}

    def diffusion(self, t: torch.Tensor):
        return 0.3


def vectors(rows: list[float]) -> GraphState:
    return GraphState.of(torch.ones(len(rows), 1), y=torch.tensor(rows)[:, None].repeat(1, 3))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "controller",
    [uniform(20), Dvs(kappa=0.1, dt_base=0.05), Dvs(kappa=0.1, dt_base=0.05, reduction="graph")],
    ids=["uniform", "dvs-batch", "dvs-graph"],
)
def test_a_graph_that_breaks_stops_and_the_others_do_not_notice(controller, value):
    rows = [0.1, 60.0, -0.4]
    solution = integrate(Fragile(value), vectors(rows), controller, Euler(), PhiloxNoise(3), trace=1)
    assert solution.status.tolist() == [Status.DONE, Status.NON_FINITE, Status.DONE]
    assert solution.counts() == {"done": 2, "max_steps": 0, "non_finite": 1}
    assert 0.4 < float(solution.t[1]) < 0.5
    assert solution.state["y"].isfinite().all()  # the broken graph keeps its last finite state
    assert solution.trace["ds2"][1:].isfinite().all() or not controller.couples_graphs
    if not controller.couples_graphs:
        healthy = integrate(
            Fragile(value), vectors([0.1, -0.4]), controller, Euler(), PhiloxNoise(3), index=torch.tensor([0, 2])
        )
        torch.testing.assert_close(healthy.state["y"], solution.state["y"][[0, 2]])
    with pytest.raises(
        IntegrationError, match=r"1 of 3 graphs did not finish; graph 1 stopped with non_finite at t = 0\.4"
    ):
        solution.raise_failures()


def test_broken_graphs_do_not_count_in_batch_means():
    """Without EMA a step follows from the V of its moment: the mean over the two graphs that are left."""
    dvs = Dvs(kappa=0.1, dt_base=0.05, alpha=1.0, dt_min=1e-4, dt_max=0.5)
    trace = integrate(Fragile(torch.nan), vectors([0.1, 60.0, -0.4]), dvs, Euler(), trace=1).trace
    later = torch.arange(len(trace)) > 0
    assert (trace["t"] > 0.5).sum() > 3
    expected = (0.05 * (0.1 / trace["V_y"]).sqrt()).clamp(1e-4, 0.5)
    expected = torch.minimum(expected, 1 - trace["t"])
    torch.testing.assert_close(trace["dt"][later], expected[later])


def test_max_steps():
    solution = integrate(chatter(), noisy_graphs([3, 2]), uniform(10), Euler(), max_steps=4)
    assert solution.status.tolist() == [Status.MAX_STEPS] * 2
    assert solution.steps.tolist() == [4, 4]
    assert solution.t.tolist() == [0.4, 0.4]
    with pytest.raises(IntegrationError, match="max_steps"):
        solution.raise_failures()
    exact = integrate(chatter(), noisy_graphs([3, 2]), uniform(10), Euler(), max_steps=10)
    assert exact.status.tolist() == [Status.DONE] * 2


def test_hooks_see_every_step_and_snapshots_hold_the_means():
    seen = []
    solution = integrate(
        chatter(), noisy_graphs([3, 2]), uniform(8), Euler(), hooks=(seen.append,), snapshots=(0.0, 0.3, 1.0)
    )
    assert [float(info.t1[0]) for info in seen] == [i / 8 for i in range(1, 9)]
    assert all(info.running.all() for info in seen)
    assert torch.equal(seen[-1].state["A"], solution.state["A"])
    assert torch.equal(solution.snapshots[0.3]["A"], seen[2].mean["A"])  # 3/8 is the first time past 0.3
    assert torch.equal(solution.snapshots[0.0]["X"], seen[0].mean["X"])
    assert torch.equal(solution.snapshots[1.0]["X"], solution.mean["X"])


@pytest.mark.parametrize(
    ("controller", "process"),
    [(uniform(6), VE()), (Dvs(kappa=3.0, dt_base=0.1, eps_bound=2e-3), Bridge())],
    ids=["score", "authors"],
)
def test_a_snapshot_at_one_means_the_models_own_end(controller, process):
    """Score models end at 1 - 1e-4 and the authors' loop at 1 - 2e-3."""
    solution = integrate(chatter(process), noisy_graphs([3]), controller, Euler(), snapshots=(1.0,))
    assert torch.equal(solution.snapshots[1.0]["X"], solution.mean["X"])


def test_snapshots_on_own_clocks_are_in_the_order_of_the_graphs():
    controller = Dvs(kappa=3.0, dt_base=0.05, reduction="graph")
    solution = integrate(chatter(), noisy_graphs([2, 9, 5]), controller, Euler(), snapshots=(0.5,))
    sizes = solution.snapshots[0.5].mask.sum(1).tolist()
    assert sizes == [2, 9, 5]


def test_progress_rises_to_one_also_on_a_fixed_grid():
    shares = []
    integrate(chatter(), noisy_graphs([3, 2]), uniform(100), Euler(), progress=shares.append)
    assert len(shares) >= 4
    assert all(a < b for a, b in itertools.pairwise(shares))
    assert shares[-1] == 1.0


def test_the_trace_is_the_steps_taken():
    trace = integrate(chatter(), noisy_graphs([3, 2]), uniform(10), Euler(), trace=1).trace
    assert len(trace) == 10
    assert trace["t"].tolist() == pytest.approx([i / 10 for i in range(10)])
    assert trace["dt"].tolist() == pytest.approx([0.1] * 10)
    assert trace["graph"].tolist() == [-1] * 10
    assert float(trace["V_X"][0]) == 0
    torch.testing.assert_close(trace["ds2"], (trace["V_X"] + trace["V_A"]) * trace["dt"])
    assert (trace["V_g_A"][1:] > 0).all()
    assert set(trace.to_dict()) == {"graph", "step", "t", "dt", "V_X", "V_g_X", "V_A", "V_g_A", "ds2"}


def test_a_thinned_trace_is_every_kth_row():
    full, thin = (integrate(chatter(), noisy_graphs([3]), uniform(10), Euler(), trace=k).trace for k in (1, 4))
    assert thin["step"].tolist() == [0, 4, 8]
    torch.testing.assert_close(thin["V_A"], full["V_A"][::4])
    assert integrate(chatter(), noisy_graphs([3]), uniform(3), Euler()).trace is None


def test_a_trace_on_own_clocks_has_each_graphs_steps():
    controller = Dvs(kappa=3.0, dt_base=0.05, reduction="graph")
    solution = integrate(chatter(), noisy_graphs([2, 9, 5]), controller, Euler(), trace=1)
    for graph, steps in enumerate(solution.steps.tolist()):
        mine = solution.trace["graph"] == graph
        assert int(mine.sum()) == steps
        assert float(solution.trace["dt"][mine].sum()) == pytest.approx(1.0)


def test_tracing_does_not_change_the_result():
    plain, traced = (integrate(chatter(), noisy_graphs([4, 2]), uniform(9), Heun(), trace=k) for k in (0, 1))
    assert torch.equal(plain.state["A"], traced.state["A"])
    assert plain.batch_calls == traced.batch_calls


def test_no_state_is_kept_from_step_to_step():
    """O(1) memory: with a trace on, the states of past steps are gone."""
    alive = []

    def watch(info):
        alive.append(weakref.ref(info.state))
        assert sum(ref() is not None for ref in alive) <= 2

    integrate(chatter(), noisy_graphs([3, 2]), uniform(12), Exponential(order=2), trace=1, hooks=(watch,))
    assert len(alive) == 12


def test_results_are_ordinary_tensors():
    """They can be changed in place and used in training, and so can masks that sampling looked at."""
    state = noisy_graphs([3])
    solution = integrate(chatter(), state, uniform(2), Euler())
    solution.state["X"].add_(1)
    weight = torch.ones(1, requires_grad=True)
    (state.project("A", weight * solution.state["A"])).sum().backward()
    assert weight.grad is not None


def test_graphs_come_back_in_the_order_of_their_index_and_any_integer_type_will_do():
    index = torch.tensor([30, 10, 20], dtype=torch.int32)
    start = noisy_graphs([4, 2, 3])
    solution = integrate(chatter(), start, uniform(3), Euler(), PhiloxNoise(1), index=index)
    assert solution.index.tolist() == [10, 20, 30]
    assert solution.state.mask.sum(1).tolist() == [2, 3, 4]


def test_the_seed_decides_and_the_default_is_zero():
    runs = [
        integrate(chatter(), noisy_graphs([4]), uniform(5), Euler(), noise).state["A"]
        for noise in (None, PhiloxNoise(0), PhiloxNoise(1))
    ]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_a_single_node_can_be_sampled():
    integrate(chatter(), noisy_graphs([1]), uniform(3), Euler()).raise_failures()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": 3}, "state must be a GraphState"),
        ({"state": noisy_graphs([3]).take(slice(0, 0))}, "the batch is empty"),
        ({"controller": "uniform"}, "expected an object of isostep.control, got 'uniform'"),
        ({"solver": "euler"}, "expected an object of isostep.solver, got 'euler'"),
        ({"noise": 7}, "expected an object of isostep.noise, got 7"),
        ({"index": torch.tensor([0.0])}, "one per graph"),
        ({"index": torch.tensor([0, 1])}, "one per graph"),
        ({"state": noisy_graphs([3, 3]), "index": torch.tensor([4, 4])}, "names a graph twice"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"trace": -1}, "trace at least 0"),
        ({"snapshots": (1.5,)}, r"snapshot times must lie in \[0, 1\], got \(1.5,\)"),
        ({"model": Chatter({"X": Bridge()})}, r"the model has components \['X'\], the state \['A', 'X'\]"),
        ({"model": object()}, "cannot sample from object"),
    ],
)
def test_wrong_use_is_refused_before_any_work(change, words):
    calls = []
    model = chatter()

    def network(state: GraphState, t: torch.Tensor):
        calls.append(t)
        return model(state, t)

    arguments = {
        "model": ProcessSde(network, model.processes, raw=False),
        "state": noisy_graphs([3]),
        "controller": Grid((0.0, 1.0)),
        "solver": Euler(),
        **change,
    }
    with pytest.raises(InputError, match=words) as caught:
        integrate(**arguments)
    assert not calls
    assert "\n" not in str(caught.value)


class Flow:
    """dx = (target - x) / (1.05 - t) dt: a straight path without noise."""

    def drift(self, state, t):
        return {"X": (2.0 - state["X"]) / (1.05 - t)[:, None, None] * state.mask[..., None]}

    def diffusion(self, t):
        return 0.0


@pytest.mark.parametrize("reduction", ["batch", "graph"])
def test_a_model_without_noise_has_finite_steps_that_follow_kappa(reduction):
    """V = ||df||^2: a straight path has a constant drift, so DVS soon takes its longest steps."""
    start = GraphState.of(torch.ones(3, 2), X=torch.linspace(-1, 1, 12).view(3, 2, 2))
    dvs = Dvs(kappa=1.0, dt_base=0.01, reduction=reduction)
    solution = integrate(Flow(), start, dvs, Euler(), trace=1).raise_failures()
    assert solution.trace is not None
    assert solution.trace["ds2"].isfinite().all()
    assert int(solution.steps.max()) < 40  # of 100 base steps
    exact = 2.0 - (2.0 - start["X"]) * 0.05 / 1.05
    assert (solution.mean["X"] - exact).abs().max() < 1e-4


def test_a_network_gets_the_time_in_the_type_of_its_weights():
    layer = torch.nn.Linear(1, 1)

    def network(state, t):
        return {"X": state["X"] * layer(t[:, None])[..., None]}

    start = GraphState.of(torch.ones(2, 3), X=torch.ones(2, 3, 1))
    with torch.no_grad():
        for model in (ProcessSde(network, {"X": Bridge()}, raw=False), FromNetwork(network)):
            integrate(model, start, uniform(3), Euler()).raise_failures()


class FromNetwork:
    def __init__(self, network):
        self.drift = network

    def diffusion(self, t):
        assert t.dtype == torch.float64  # the clock itself
        return 1.0 + 0 * t
