"""The fast programs: same outputs as the reference networks, on ragged batches, and fallback where they cannot run."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.family import find_family
from isostep.network.fast import FastNetwork, FastSettings, make_groups
from isostep.network.gdss.fast import TorchOps, pair_places
from isostep.network.gdss.reference import GdssNetwork
from isostep.network.grum.fast import FoldedGrum
from tests.network import test_gdss, test_grum
from tests.network.test_gdss import EDGE, NODE, VARIANTS

SIZES = [7, 5, 2, 7, 1, 6, 3, 3, 7, 4, 5]
GRUM = {"molecules": test_grum.MOLECULES, "graphs": test_grum.GRAPHS}


def fast_network(network: torch.nn.Module, settings: FastSettings | None = None) -> FastNetwork:
    """As a model of the network's family calls it."""
    return find_family("gdss" if isinstance(network, GdssNetwork) else "grum").fast_network(network, settings)


def assert_same(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()


def gdss_batch(sizes: list[int] = SIZES, nodes: int = 9) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return *test_gdss.graphs(sizes, nodes, 3), torch.linspace(0.1, 0.9, len(sizes))


def counting(fast: FastNetwork) -> list[int]:
    """Calls of the reference network made from now on, one entry each."""
    calls: list[int] = []
    fast.network.register_forward_hook(lambda *_: calls.append(1))
    return calls


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "mlp attention"])
@torch.no_grad()
def test_gdss_equals_the_reference_on_graphs_of_all_sizes(name: str, backend: str) -> None:
    if backend == "numba":
        pytest.importorskip("numba")
    # Many graphs of one size too: kernels treat long batches differently.
    network, inputs = test_gdss.random_network(*VARIANTS[name]), gdss_batch([*SIZES, *[6] * 70])
    expected = network(*inputs)
    fast = fast_network(network, FastSettings(backend))
    calls = counting(fast)
    assert_same(fast(*inputs), expected)
    assert not calls


@pytest.mark.parametrize("graphs", [1, 3, 200])
@pytest.mark.parametrize("nodes", range(2, 12))
def test_compiled_parts_of_gdss_equal_the_torch_ones(nodes: int, graphs: int) -> None:
    """Odd and even rings of nodes, runs shorter and longer than a tile."""
    pytest.importorskip("numba")
    from isostep.network.gdss.kernels import NumbaOps

    torch.manual_seed(nodes)
    *_, square = pair_places(nodes, torch.device("cpu"))
    channels = torch.randn(3, nodes * (nodes - 1) // 2, graphs)
    x, query_key = torch.randn(5, nodes, graphs), torch.randn(3, 2 * 2 * 3, 6)
    sums, scores = [], []
    for ops in (TorchOps(), NumbaOps()):
        sums.append(torch.full((3, 6, nodes, graphs), 7.0))
        scores.append(torch.empty_like(channels))
        ops.aggregate(channels, x, square, sums[-1])
        ops.scores(query_key, sums[0], 2, scores[-1])
    assert_same((sums[1], scores[1]), (sums[0], scores[0]))


@pytest.mark.parametrize("columns", [5, 31, 32, 33, 64, 1000])
@pytest.mark.parametrize("widths", [(3, 1), (7, 6, 5), (16, 44, 9, 4)])
def test_compiled_mlp_equals_the_torch_one(widths: tuple[int, ...], columns: int) -> None:
    """Rows and columns that do not fill a block, and a value that is not a number: it stays in its column."""
    pytest.importorskip("numba")
    from isostep.network.gdss.kernels import NumbaOps

    torch.manual_seed(columns)
    weights = tuple(torch.randn(rows, depth + 1) for depth, rows in itertools.pairwise(widths))
    h = torch.cat((torch.randn(widths[0], columns), torch.ones(1, columns)))
    h[0, 2] = torch.nan
    found, expected = (torch.empty(widths[-1], columns) for _ in range(2))
    NumbaOps().mlp(weights, h, found)
    TorchOps().mlp(weights, h, expected)
    assert torch.equal(found.isnan(), expected.isnan())
    assert expected.isnan().any(0).sum() == 1
    assert_same((found.nan_to_num(),), (expected.nan_to_num(),))


@pytest.mark.parametrize("block", [1, 20, 100, 2000])  # pairs: a row, a part of a graph, a few graphs, all
@pytest.mark.parametrize("nodes", [7, 8, 12])
@pytest.mark.parametrize("name", GRUM)
@pytest.mark.parametrize("backend", ["torch", "numba"])
@torch.no_grad()
def test_grum_without_padding_gives_the_padded_result(backend: str, name: str, nodes: int, block: int) -> None:
    if backend == "numba":
        pytest.importorskip("numba")
    network, inputs = test_grum.random_network(GRUM[name]), test_grum.batch(tuple(SIZES), nodes)
    expected = network(*inputs)
    fast = fast_network(network, FastSettings(backend))
    program = fast.program(inputs[0])
    assert isinstance(program, FoldedGrum)
    assert type(program.ops).__name__ == ("NumbaOps" if backend == "numba" else "TorchOps")
    program.ops.block = block * program.layers[0].e_out.shape[0]
    calls = counting(fast)
    assert_same(fast(*inputs), expected)
    assert not calls


@torch.no_grad()
def test_grum_padding_matters_so_that_the_test_above_can_fail() -> None:
    network = test_grum.random_network(test_grum.MOLECULES)
    x, adj, mask, t = test_grum.batch((5, 5), 7)
    cut = network(x[:, :5], adj[:, :5, :5], mask[:, :5], t)[0]
    assert (network(x, adj, mask, t)[0][:, :5] - cut).abs().max() > 1e-3


@torch.no_grad()
def test_a_mask_with_holes() -> None:
    x, adj, mask, t = gdss_batch([9, 8, 8, 5])
    mask[:, 3] = 0
    x, adj = x * mask[:, :, None], adj * mask[:, :, None] * mask[:, None, :]
    network = test_gdss.random_network(NODE, EDGE)
    assert_same(fast_network(network)(x, adj, mask, t), network(x, adj, mask))
    grum = test_grum.random_network({**test_grum.MOLECULES, "input_dims": {"X": 3, "E": 2, "y": 1}, **WIDTH_3})
    fast = fast_network(grum)
    calls = counting(fast)
    assert_same(fast(x, adj, mask, t), grum(x, adj, mask, t))
    assert len(calls) == 2


WIDTH_3: dict[str, Any] = {"output_dims": {"X": 3, "E": 2, "y": 0}}


@torch.no_grad()
def test_a_graph_that_is_not_finite_spoils_no_other() -> None:
    for network, inputs in (
        (test_gdss.random_network(NODE, EDGE), gdss_batch()),
        (test_grum.random_network(test_grum.MOLECULES), test_grum.batch(tuple(SIZES), 8)),
    ):
        fast = fast_network(network)
        clean = fast(*inputs)
        inputs[1][3, 0, 1] = inputs[1][3, 1, 0] = float("nan")
        spoilt = fast(*inputs)
        others = torch.arange(len(SIZES)) != 3
        assert_same(tuple(out[others] for out in spoilt), tuple(out[others] for out in clean))
        assert not spoilt[1][3].isfinite().all()


@torch.no_grad()
def test_compiled_gdss_runs_on_one_thread_and_gives_the_others_back() -> None:
    pytest.importorskip("numba")
    fast, before = fast_network(test_gdss.random_network(NODE, EDGE), FastSettings("numba")), torch.get_num_threads()
    program: Any = fast.program(gdss_batch()[0])
    seen: list[int] = []
    tanh = program.ops.tanh_
    program.ops.tanh_ = lambda h: [seen.append(torch.get_num_threads()), tanh(h)][1]
    try:
        torch.set_num_threads(2)
        fast(*gdss_batch())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen
    assert set(seen) == {1}


def test_training_gradients_and_other_types_go_to_the_reference() -> None:
    network, inputs = test_gdss.random_network(NODE, EDGE), gdss_batch()
    fast = fast_network(network)
    calls = counting(fast)
    fast(*inputs)[0].sum().backward()
    assert all(parameter.grad is not None for parameter in network.x.parameters())
    with torch.no_grad():
        network.train()
        fast(*inputs)
        network.eval().double()
        fast(*(value.double() for value in inputs))
    assert len(calls) == 3


@torch.no_grad()
def test_mlp_attention_goes_to_the_reference() -> None:
    network, inputs = test_gdss.random_network(*VARIANTS["mlp attention"]), gdss_batch()
    assert fast_network(network)(*inputs)[1].equal(network(*inputs)[1])


@torch.no_grad()
def test_new_weights_are_noticed() -> None:
    network, inputs = test_gdss.random_network(NODE, EDGE), gdss_batch()
    fast = fast_network(network)
    before = fast(*inputs)[1]
    network.load_state_dict({name: value * 1.1 for name, value in network.state_dict().items()})
    assert_same(fast(*inputs), network(*inputs))
    assert not before.allclose(network(*inputs)[1], rtol=1e-3)


@torch.no_grad()
def test_bfloat16_is_near() -> None:
    network, inputs = test_gdss.random_network(NODE, EDGE), gdss_batch()
    exact, rough = network(*inputs), fast_network(network, FastSettings("torch", "bfloat16"))(*inputs)
    for one, other in zip(rough, exact, strict=True):
        assert one.dtype == torch.float32
        assert 1e-5 < (one - other).norm() / other.norm() < 0.1


@torch.no_grad()
def test_groups_hold_every_graph_once_and_waste_little() -> None:
    program = fast_network(test_gdss.random_network(NODE, EDGE)).program(torch.zeros(1))
    assert program is not None
    sizes = torch.randint(4, 39, (600,), generator=torch.Generator().manual_seed(1))
    groups = make_groups(torch.arange(40) < sizes[:, None], program)
    assert groups is not None
    assert torch.cat([group.rows for group in groups]).sort()[0].equal(torch.arange(600))
    for rows, nodes, mask in groups:
        assert int(sizes[rows].max()) == nodes
        assert (mask is None) == bool((sizes[rows] == nodes).all())
    assert sum(len(group.rows) * group.nodes**2 for group in groups) < 1.2 * int(sizes.square().sum())


@pytest.mark.parametrize(("backend", "precision"), [("cuda", "float32"), ("torch", "int8")])
def test_unknown_settings_are_named(backend: str, precision: str) -> None:
    with pytest.raises(InputError, match=r"cuda|int8"):
        FastSettings(backend, precision)
