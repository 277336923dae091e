"""GDSS networks: the released outputs, and what every graph network owes its users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from isostep.base.errors import InputError
from isostep.model.released.convert import load_released
from isostep.network.gdss.reference import GdssNetwork
from tests.conftest import FIXTURES
from tests.oracles.gdss_plain import gdss_plain

RELEASED = ["community_small", "ego_small", "enzymes", "grid", "qm9", "zinc250k", "zinc250k_v2"]
EDGE = {
    **{"model_type": "ScoreNetworkA", "max_feat_num": 3, "max_node_num": 7, "nhid": 8, "num_layers": 3},
    **{"num_linears": 2, "c_init": 2, "c_hid": 4, "c_final": 3, "adim": 6, "num_heads": 2, "conv": "GCN"},
}
NODE = {"model_type": "ScoreNetworkX", "max_feat_num": 3, "depth": 2, "nhid": 8}
VARIANTS = {
    "gcn nodes": (NODE, EDGE),
    "attention nodes": ({**EDGE, "model_type": "ScoreNetworkX_GMH", "depth": 3}, EDGE),
    "mlp attention": ({**EDGE, "model_type": "ScoreNetworkX_GMH", "depth": 2, "conv": "MLP"}, {**EDGE, "conv": "MLP"}),
    "one linear, one layer, three powers": (NODE, {**EDGE, "num_linears": 1, "num_layers": 1, "c_init": 3}),
}


def graphs(sizes: list[int], nodes: int, features: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random masked states of the given sizes, padded to `nodes`."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(nodes) < torch.tensor(sizes)[:, None]).float()
    x = torch.randn(len(sizes), nodes, features, generator=generator) * mask[:, :, None]
    upper = torch.randn(len(sizes), nodes, nodes, generator=generator).triu(1)
    return x, (upper + upper.mT) * mask[:, :, None] * mask[:, None, :], mask


def random_network(params_x: dict[str, Any], params_adj: dict[str, Any]) -> GdssNetwork:
    torch.manual_seed(3)
    network = GdssNetwork(params_x, params_adj).eval()
    for parameter in network.parameters():  # biases start at zero, where mistakes would hide
        parameter.data = torch.randn_like(parameter) * 0.4
    return network


@pytest.mark.parametrize("name", RELEASED)
@torch.no_grad()
def test_outputs_equal_those_of_the_released_program(shared: Path, name: str) -> None:
    file = shared / "checkpoints" / "gdss" / f"gdss_{name}.pth"
    check_outputs(file, load_file(shared / "fixtures" / "gdss" / f"{name}.safetensors"))


@pytest.mark.parametrize("name", ["random_graph", "random_mol", "random_subvp"])
@torch.no_grad()
def test_outputs_of_random_networks_equal_those_of_the_released_program(name: str) -> None:
    folder = FIXTURES / "gdss_random"
    check_outputs(folder / f"{name}.pth", load_file(folder / f"{name}.safetensors"))


def check_outputs(file: Path, reference: dict[str, Tensor]) -> None:
    network = load_released(file, "raw").network
    outputs = network(reference["x"], reference["adj"], reference["mask"])
    for output, key in zip(outputs, ("net_x", "net_adj"), strict=True):
        expected = reference[key]
        assert (output - expected).norm() <= 1e-5 * expected.norm()
        assert (output - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_equals_the_definition_layer_by_layer(variant: str) -> None:
    params_x, params_adj = VARIANTS[variant]
    network = random_network(params_x, params_adj)
    x, adj, mask = graphs([7, 4, 1], 7, 3)
    expected = gdss_plain(params_x, params_adj, network.state_dict(), x, adj, mask)
    for output, wanted in zip(network(x, adj, mask), expected, strict=True):
        torch.testing.assert_close(output, wanted, rtol=1e-5, atol=1e-5 * wanted.abs().max().item())


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_real_nodes_do_not_depend_on_padding(variant: str) -> None:
    network = random_network(*VARIANTS[variant])
    sizes = [7, 4, 1]
    x, adj, mask = graphs(sizes, 7, 3)
    out_x, out_adj = network(x, adj, mask)
    for i, n in enumerate(sizes):
        alone_x, alone_adj = network(x[i : i + 1, :n], adj[i : i + 1, :n, :n], mask[i : i + 1, :n])
        torch.testing.assert_close(out_x[i, :n], alone_x[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(out_adj[i, :n, :n], alone_adj[0], rtol=1e-4, atol=1e-5)
        assert out_x[i, n:].eq(0).all()
        assert out_adj[i, n:].eq(0).all()
        assert out_adj[i, :, n:].eq(0).all()


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_permuting_the_nodes_permutes_the_outputs(variant: str) -> None:
    network = random_network(*VARIANTS[variant])
    x, adj, mask = graphs([7, 5], 7, 3)
    p = torch.randperm(7, generator=torch.Generator().manual_seed(1))
    out_x, out_adj = network(x, adj, mask)
    moved_x, moved_adj = network(x[:, p], adj[:, p][:, :, p], mask[:, p])
    torch.testing.assert_close(moved_x, out_x[:, p], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(moved_adj, out_adj[:, p][:, :, p], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_edge_output_is_symmetric_with_zero_diagonal() -> None:
    x, adj, mask = graphs([7, 5], 7, 3)
    _, out_adj = random_network(NODE, EDGE)(x, adj, mask)
    torch.testing.assert_close(out_adj, out_adj.mT, rtol=1e-4, atol=1e-6)
    assert out_adj.diagonal(dim1=1, dim2=2).eq(0).all()
    assert out_adj.abs().max() > 0.1


@torch.no_grad()
def test_any_vector_of_times_and_a_boolean_mask_change_nothing() -> None:
    network = random_network(NODE, EDGE)
    x, adj, mask = graphs([7, 5], 7, 3)
    for plain, other in zip(network(x, adj, mask), network(x, adj, mask.bool(), torch.tensor([0.1, 0.9])), strict=True):
        assert plain.equal(other)


def test_the_input_state_is_left_as_it_was() -> None:
    x, adj, mask = graphs([7, 5], 7, 3)
    before = adj.clone()
    random_network(NODE, EDGE)(x, adj, mask)
    assert adj.equal(before)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        *(("x", "model_type", "Other"), ("adj", "model_type", "ScoreNetworkX"), ("x", "depth", 10**9)),
        *(("x", "nhid", "8"), ("adj", "c_hid", 0), ("adj", "conv", "GAT"), ("adj", "num_heads", 5)),
        *(("adj", "max_feat_num", None), ("x", "nhid", True)),
    ],
)
def test_bad_settings_are_named_in_one_line(part: str, key: str, value: Any) -> None:
    params = {"x": dict(NODE), "adj": dict(EDGE)}
    params[part][key] = value
    with pytest.raises(InputError, match=key) as caught:
        GdssNetwork(params["x"], params["adj"])
    assert "\n" not in str(caught.value)


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(InputError, match="nhid"):
        GdssNetwork({key: value for key, value in NODE.items() if key != "nhid"}, EDGE)
