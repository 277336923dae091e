"""Noise: known answers of the generator, moments, independence, and one Brownian path for any grid."""

from __future__ import annotations

import itertools
import math
import sys

import pytest
import torch

from isostep import noise
from isostep.base.errors import InputError
from isostep.noise import (
    CORRECTOR,
    FIRST_HALF,
    LEAF,
    PREDICTOR,
    PRIOR,
    SECOND_HALF,
    SIZES,
    BrownianTree,
    Draw,
    PhiloxNoise,
    RecordedNoise,
    ZeroNoise,
    philox,
    uniform,
)
from isostep.state import GraphState
from tests.problems import draw

LOW = 0xFFFFFFFF
FROZEN = [-0.391005, 2.039955, 0.871156, 0.145602]


def blank(count: int, nodes: int = 6, dtype=torch.float32) -> GraphState:
    return GraphState.of(
        torch.ones(count, nodes),
        X=torch.zeros(count, nodes, 4, dtype=dtype),
        A=torch.zeros(count, nodes, nodes, dtype=dtype),
        y=torch.zeros(count, 4, dtype=dtype),
    )


def upper(a: torch.Tensor) -> torch.Tensor:
    i, j = torch.triu_indices(a.shape[1], a.shape[2], 1)
    return a[:, i, j]


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    """In standard errors: under independence it is N(0, 1)."""
    return float((a.double() * b.double()).mean() * math.sqrt(a.numel()))


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0, 0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((LOW, LOW), (LOW, LOW, LOW, LOW), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_known_answers(key, counter, words):
    """The vectors published with the generator (Random123)."""
    out = philox(key, tuple(torch.tensor([c]) for c in counter))
    assert " ".join(f"{int(word):08x}" for word in out) == words


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_moments_of_a_standard_normal(dtype):
    z = PhiloxNoise(1).normal(blank(3000, dtype=dtype), draw(3000), PREDICTOR)
    assert {value.dtype for value in z.values()} == {dtype}
    values = torch.cat([z["X"].flatten(), upper(z["A"]).flatten(), z["y"].flatten()]).double()
    n = values.numel()  # 129,000
    # Standard errors of the first four moments of N(0, 1): variances of z^k are 1, 2, 15, 96.
    for power, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(float((values**power).mean()) - expected) < 4 * math.sqrt(variance / n)
    # Share beyond 2: a wrong angle or radius would keep the moments' order of magnitude but not this.
    tail = 0.0455003
    assert abs(float((values.abs() > 2).double().mean()) - tail) < 4 * math.sqrt(tail / n)


def test_edges_are_mirrored_and_everything_is_masked():
    mask = torch.arange(6)[None, :] < torch.tensor([[6], [4], [1]])
    state = GraphState.of(mask, X=torch.zeros(3, 6, 2), A=torch.zeros(3, 6, 6), E=torch.zeros(3, 6, 6, 3))
    z = PhiloxNoise(2).normal(state, draw(3), PREDICTOR)
    for name in ("A", "E"):
        assert torch.equal(z[name], z[name].transpose(1, 2))
        outside = ~state.masks.of("edge", z[name].ndim).expand_as(z[name])
        assert z[name][outside].abs().sum() == 0
        assert z[name][~outside].ne(0).all()
    assert z["X"][~mask].abs().sum() == 0
    assert len(upper(z["A"])[0].unique()) == 15


def test_a_single_node_has_no_edge_noise():
    z = PhiloxNoise(1).normal(blank(2, nodes=1), draw(2), PREDICTOR)
    assert z["A"].tolist() == [[[0.0]], [[0.0]]]
    assert z["X"].ne(0).all()


def test_the_same_address_gives_the_same_number_and_any_other_a_different_one():
    state = blank(4)
    z = PhiloxNoise(3).normal(state, draw(4), PREDICTOR)
    again = PhiloxNoise(3).normal(state, draw(4), PREDICTOR)
    others = (
        PhiloxNoise(4).normal(state, draw(4), PREDICTOR),
        PhiloxNoise(3 + 2**40).normal(state, draw(4), PREDICTOR),
        PhiloxNoise(3).normal(state, draw(4, step=1), PREDICTOR),
        PhiloxNoise(3).normal(state, draw(4, first=4), PREDICTOR),
        PhiloxNoise(3).normal(state, draw(4, first=2**32), PREDICTOR),
        PhiloxNoise(3).normal(state, draw(4), CORRECTOR),
    )
    for name in state.components:
        assert torch.equal(z[name], again[name])
        for other in others:
            assert not (z[name] == other[name])[z[name] != 0].any()


def test_frozen_numbers():
    """A seed means the same graphs in every later version: these are the first numbers of graph 5, step 2, seed 9."""
    state = blank(1, nodes=3, dtype=torch.float64)
    z = PhiloxNoise(9).normal(state, draw(1, step=2, first=5), PREDICTOR)
    got = [z["X"][0, 0, 0], z["A"][0, 0, 1], z["A"][0, 1, 2], z["y"][0, 3]]
    assert [round(float(v), 6) for v in got] == FROZEN


def test_independence_across_graphs_steps_streams_components_and_entries():
    count = 4000
    state = blank(count)
    noise = PhiloxNoise(5)
    base = noise.normal(state, draw(count), PREDICTOR)
    pairs = {
        "graphs": (base["X"][:-1], base["X"][1:]),
        "entries": (base["X"][:, :, 0], base["X"][:, :, 1]),
        "nodes": (base["X"][:, 0], base["X"][:, 1]),
        "edges": (upper(base["A"])[:, :-1], upper(base["A"])[:, 1:]),
        "components": (base["X"][:, 0], base["y"]),
        "steps": (base["X"], noise.normal(state, draw(count, step=1), PREDICTOR)["X"]),
        "seeds": (base["X"], PhiloxNoise(6).normal(state, draw(count), PREDICTOR)["X"]),
    }
    for stream in (CORRECTOR, FIRST_HALF, SECOND_HALF, PRIOR, SIZES):
        pairs[f"stream {stream}"] = (base["X"], noise.normal(state, draw(count), stream)["X"])
    far = {name: pair for name, pair in pairs.items() if abs(correlation(*pair)) > 4}
    assert not far
    # The squares, too: uncorrelated is not yet independent. (z^2 - 1) / sqrt 2 has unit variance.
    squares = {n: [(v.square() - 1) / math.sqrt(2) for v in pair] for n, pair in pairs.items()}
    assert not [name for name, pair in squares.items() if abs(correlation(*pair)) > 4]


def test_noise_does_not_depend_on_batch_or_padding():
    wide = PhiloxNoise(7).normal(blank(5, nodes=9), draw(5), PREDICTOR)
    alone = PhiloxNoise(7).normal(blank(1, nodes=6), draw(1, first=3), PREDICTOR)
    torch.testing.assert_close(wide["X"][3, :6], alone["X"][0])
    torch.testing.assert_close(wide["A"][3, :6, :6], alone["A"][0])


def test_uniform_numbers_fill_the_unit_interval():
    u = uniform(1, torch.arange(20_000), SIZES)
    assert 0 < float(u.min()) < float(u.max()) < 1
    counts = torch.histc(u, 20, 0, 1)
    chi2 = float(((counts - 1000).square() / 1000).sum())
    assert chi2 < 19 + 5 * math.sqrt(2 * 19)  # mean and spread of chi-square with 19 degrees of freedom
    assert not torch.equal(u, uniform(1, torch.arange(20_000), PRIOR))


@pytest.mark.parametrize("noise", [PhiloxNoise, BrownianTree])
@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "1"])
def test_bad_seeds(noise, seed):
    with pytest.raises(InputError, match="seed must be a whole number"):
        noise(seed)


def test_zero_and_recorded_noise():
    state = blank(2, nodes=2)
    assert all(z.abs().sum() == 0 for z in ZeroNoise().normal(state, draw(2), PREDICTOR).values())
    ones = {n: torch.ones_like(x) for n, x in state.components.items()}
    z = RecordedNoise(lambda like, draw, stream: ones).normal(state, draw(2), PREDICTOR)
    assert z["A"][0].tolist() == [[0, 1], [1, 0]]


def increment(tree: BrownianTree, state: GraphState, t0: float, t1: float) -> torch.Tensor:
    """W(t1) - W(t0), (B, entries)."""
    z = tree.normal(state, draw(state.batch, t0=t0, t1=t1), PREDICTOR)
    return (torch.cat([z["X"].flatten(1), upper(z["A"]), z["y"]], 1) * math.sqrt(t1 - t0)).double()


TREE = BrownianTree(3, depth=8)
TIMES = (0.0, 0.131, 0.25, 0.4, 0.77, 1.0)


def test_brownian_increments_add_up():
    state = blank(50, dtype=torch.float64)
    parts = [increment(TREE, state, a, b) for a, b in itertools.pairwise(TIMES)]
    torch.testing.assert_close(sum(parts), increment(TREE, state, 0.0, 1.0), rtol=0, atol=1e-12)
    torch.testing.assert_close(parts[1] + parts[2], increment(TREE, state, TIMES[1], TIMES[3]), rtol=0, atol=1e-12)


def test_brownian_increments_are_independent_with_variance_dt():
    state = blank(800, dtype=torch.float64)
    scaled = [increment(TREE, state, a, b) / math.sqrt(b - a) for a, b in itertools.pairwise(TIMES)]
    n = scaled[0].numel()
    for i, first in enumerate(scaled):
        assert abs(float(first.mean())) < 4 / math.sqrt(n)
        assert abs(float(first.square().mean()) - 1) < 4 * math.sqrt(2 / n)
        for second in scaled[i + 1 :]:
            assert abs(correlation(first, second)) < 4


def test_brownian_path_belongs_to_the_graph_and_other_streams_are_plain_noise():
    state = blank(4)
    whole = TREE.normal(state, draw(4, t0=0.2, t1=0.6), PREDICTOR)
    alone = TREE.normal(blank(1), draw(1, first=2, step=9, t0=0.2, t1=0.6), PREDICTOR)
    torch.testing.assert_close(whole["A"][2], alone["A"][0])
    assert torch.equal(whole["A"], whole["A"].mT)
    corrector = TREE.normal(state, draw(4), CORRECTOR)
    assert torch.equal(corrector["X"], PhiloxNoise(3).normal(state, draw(4), CORRECTOR)["X"])
    with pytest.raises(InputError, match="depth"):
        BrownianTree(0, depth=0)


def definition(
    seed: int, depth: int, state: GraphState, index: torch.Tensor, t: torch.Tensor
) -> dict[str, torch.Tensor]:
    """W(t) node by node of the tree, each with its own draw; nothing kept."""

    def z(key: torch.Tensor, stream: int = PREDICTOR) -> dict[str, torch.Tensor]:
        got = PhiloxNoise(seed).normal(state, Draw(index, key, t, t), stream)
        return {name: value.double().flatten(1) for name, value in got.items()}

    node = torch.zeros_like(index)
    right = z(node)
    left = {name: torch.zeros_like(value) for name, value in right.items()}
    low, width, node = torch.zeros_like(t), 1.0, node + 1
    for _ in range(depth):
        new, upper = z(node), t >= low + width / 2
        for name in new:
            middle = (left[name] + right[name]) / 2 + new[name] * math.sqrt(width) / 2
            left[name] = torch.where(upper[:, None], middle, left[name])
            right[name] = torch.where(upper[:, None], right[name], middle)
        width /= 2
        low, node = torch.where(upper, low + width, low), 2 * node + upper
    u, leaf = ((t - low) / width)[:, None], z((t * 2**32).long(), LEAF)
    bridge = (width * u * (1 - u)).sqrt()
    return {name: torch.lerp(left[name], right[name], u) + leaf[name] * bridge for name in left}


@pytest.mark.parametrize("at_once", [1, 2**22])
def test_the_tree_equals_its_definition_on_a_walk_with_own_clocks_leaving_graphs_and_steps_back(at_once, monkeypatch):
    monkeypatch.setattr("isostep.noise.MOST_AT_ONCE", at_once)
    tree, index, t = BrownianTree(5, depth=6), torch.arange(4), torch.zeros(4, dtype=torch.float64)
    for step in range(10):
        if step == 6:  # graphs leave the batch
            index, t = index[[0, 2]], t[[0, 2]]
        if step == 8:  # rejected
            t = t - 0.1
        state = blank(len(index), nodes=4)
        ahead = t + 0.03 * (1 + index.double())
        z = tree.normal(state, Draw(index, index, t, ahead), PREDICTOR)
        old, new = (definition(5, 6, state, index, clock) for clock in (t, ahead))
        for name, value in z.items():
            expected = ((new[name] - old[name]) * (ahead - t).rsqrt()[:, None]).float()
            assert torch.equal(value.flatten(1), expected)
        t = ahead


def test_a_tree_serves_states_of_other_shapes_and_types_in_turn():
    shared = BrownianTree(4, depth=5)
    for nodes, dtype in ((3, torch.float32), (5, torch.float32), (5, torch.float64), (3, torch.float32)):
        state = blank(2, nodes, dtype)
        at = draw(2, t0=0.3, t1=0.8)
        got, alone = (tree.normal(state, at, PREDICTOR) for tree in (shared, BrownianTree(4, depth=5)))
        assert all(torch.equal(got[name], alone[name]) and got[name].dtype == dtype for name in got)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("graphs", "nodes"), [(1, 1), (5, 2), (33, 9), (3, 20)])
def test_compiled_helpers_give_the_same_bits(monkeypatch, dtype, graphs, nodes):
    pytest.importorskip("numba")
    generator = torch.Generator().manual_seed(nodes)
    mask = torch.arange(nodes) < torch.randint(1, nodes + 1, (graphs, 1), generator=generator)
    shapes = {"X": (nodes, 3), "A": (nodes, nodes), "E": (nodes, nodes, 3), "y": (5,)}
    state = GraphState.of(mask, **{n: torch.zeros(graphs, *shape, dtype=dtype) for n, shape in shapes.items()})
    index, step = (torch.randint(2**bits, (graphs,), generator=generator) for bits in (40, 33))
    t = torch.rand(graphs, generator=generator, dtype=torch.float64) / 2
    at = Draw(index, step, t, t + 0.3)

    def numbers(backend: str) -> list[torch.Tensor]:
        monkeypatch.setenv("ISOSTEP_BACKEND", backend)
        drawn = [PhiloxNoise(2**63 + 5).normal(state, at, stream) for stream in range(LEAF + 1)]
        return [
            value for each in (*drawn, BrownianTree(1, depth=4).normal(state, at, PREDICTOR)) for value in each.values()
        ]

    for compiled, reference in zip(numbers("numba"), numbers("torch"), strict=True):
        assert compiled.dtype == reference.dtype == dtype
        assert torch.equal(compiled, reference)
        assert not torch.signbit(compiled[compiled == 0]).any()


@pytest.mark.parametrize("at_once", [1, 50, 2**15])
def test_graphs_that_share_a_clock_walk_together_to_the_same_bits(monkeypatch, at_once):
    kernels = pytest.importorskip("isostep.noise_kernels")
    monkeypatch.setattr(kernels, "AT_ONCE", at_once)
    clocks = [[0.1, 0.1, 0.2, 0.2, 0.2], [0.4, 0.4, 0.4, 0.4, 0.5], [0.4, 0.6, 0.6, 0.6, 0.6], [1.0] * 5]
    state, index = blank(5, nodes=4), torch.arange(5)

    def numbers(backend: str) -> list[torch.Tensor]:
        monkeypatch.setenv("ISOSTEP_BACKEND", backend)
        tree = BrownianTree(1, depth=4)
        steps = itertools.pairwise(torch.tensor(clocks, dtype=torch.float64))
        return [z for t0, t1 in steps for z in tree.normal(state, Draw(index, index, t0, t1), PREDICTOR).values()]

    for compiled, reference in zip(numbers("numba"), numbers("torch"), strict=True):
        assert torch.equal(compiled, reference)


def test_without_numba_or_with_many_threads_torch_draws(monkeypatch):
    monkeypatch.setenv("ISOSTEP_BACKEND", "auto")
    monkeypatch.setattr(noise, "_kernels", lambda: "compiled")
    monkeypatch.setattr(torch, "get_num_threads", lambda: noise.MOST_THREADS)
    cpu = torch.device("cpu")
    assert noise._compiled(cpu) == "compiled"
    assert noise._compiled(torch.device("meta")) is None
    monkeypatch.setattr(torch, "get_num_threads", lambda: noise.MOST_THREADS + 1)
    assert noise._compiled(cpu) is None
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "isostep.noise_kernels", None)  # makes the import fail
    monkeypatch.delattr("isostep.noise_kernels", raising=False)
    assert noise._kernels.__wrapped__() is None
