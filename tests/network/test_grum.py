"""GruM's graph transformer: the reference outputs, its symmetries, its padding, its training mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from isostep.base.errors import InputError
from isostep.model.released.convert import load_released
from isostep.network.grum.reference import GrumNetwork
from tests.conftest import FIXTURES
from tests.oracles.grum_plain import grum_plain

MOLECULES: dict[str, Any] = {
    "model_type": "transformer_mol",
    "n_layers": 2,
    "input_dims": {"X": 4, "E": 2, "y": 1},
    "output_dims": {"X": 4, "E": 2, "y": 0},
    "hidden_dims": {"dx": 16, "de": 8, "dy": 6, "n_head": 4, "dim_ffX": 12, "dim_ffE": 10, "dim_ffy": 5},
    "hidden_mlp_dims": {"X": 9, "E": 7, "y": 5},
    "scale": 3,
    "ffy": 11,
}
GRAPHS: dict[str, Any] = {
    **{key: value for key, value in MOLECULES.items() if key != "scale"},
    "model_type": "transformer",
    "output_dims": {"X": 4, "E": 1, "y": 0},
    "feat_dict": {"type": ["eig1", "deg", "eig2"], "dim": [1, 2, 1], "norm": True, "scale": 10},
}
BOTH = pytest.mark.parametrize("params", [MOLECULES, GRAPHS], ids=["molecules", "graphs"])


def batch(sizes: tuple[int, ...] = (7, 5, 2), nodes: int = 7) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(nodes) < torch.tensor(sizes)[:, None]).float()
    x = torch.randn(len(sizes), nodes, 4, generator=generator) * mask[:, :, None]
    upper = torch.randn(len(sizes), nodes, nodes, generator=generator).triu(1)
    adj = (upper + upper.mT) * mask[:, :, None] * mask[:, None, :]
    return x, adj, mask, torch.linspace(0.05, 0.95, len(sizes))


def random_network(params: dict[str, Any]) -> GrumNetwork:
    torch.manual_seed(2)
    network = GrumNetwork(params).eval()
    for parameter in network.parameters():  # LayerNorm starts as the identity, where mistakes would hide
        parameter.data += torch.randn_like(parameter) * 0.2
    return network


@pytest.mark.parametrize("name", ["mol", "graph"])
@torch.no_grad()
def test_predictions_equal_those_of_the_released_program(name: str) -> None:
    network = load_released(FIXTURES / "grum" / f"{name}.pth", "raw").network
    reference = load_file(FIXTURES / "grum" / f"{name}_net.safetensors")
    outputs = network(*(reference[key] for key in ("x", "adj", "mask", "t")))
    for output, key in zip(outputs, ("pred_x", "pred_adj"), strict=True):
        expected = reference[key]
        assert (output - expected).norm() <= 1e-5 * expected.norm()
        assert (output - expected).abs().max() <= 1e-5 * expected.abs().max()


@BOTH
@torch.no_grad()
def test_equals_the_definition_layer_by_layer(params: dict[str, Any]) -> None:
    network = random_network(params)
    inputs = batch()
    for output, wanted in zip(network(*inputs), grum_plain(params, network.state_dict(), *inputs), strict=True):
        torch.testing.assert_close(output, wanted, rtol=1e-5, atol=1e-5 * wanted.abs().max().item())


@BOTH
@torch.no_grad()
def test_permuting_the_nodes_permutes_the_predictions(params: dict[str, Any]) -> None:
    network = random_network(params)
    x, adj, mask, t = batch()
    p = torch.randperm(7, generator=torch.Generator().manual_seed(1))
    pred_x, pred_adj = network(x, adj, mask, t)
    moved_x, moved_adj = network(x[:, p], adj[:, p][:, :, p], mask[:, p], t)
    torch.testing.assert_close(moved_x, pred_x[:, p], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(moved_adj, pred_adj[:, p][:, :, p], rtol=1e-4, atol=1e-5)


@BOTH
@torch.no_grad()
def test_each_graph_has_its_own_time(params: dict[str, Any]) -> None:
    network = random_network(params)
    x, adj, mask, t = batch()
    pred_x, pred_adj = network(x, adj, mask, t)
    for i in range(len(t)):
        alone_x, alone_adj = network(x[i : i + 1], adj[i : i + 1], mask[i : i + 1].bool(), t[i : i + 1])
        torch.testing.assert_close(alone_x[0], pred_x[i], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(alone_adj[0], pred_adj[i], rtol=1e-4, atol=1e-5)
    later = network(x, adj, mask, t + torch.tensor([0.0, 0.04, 0.0]))[1]
    assert later[0].equal(pred_adj[0])
    assert not later[1].equal(pred_adj[1])


@BOTH
@torch.no_grad()
def test_predictions_are_masked_symmetric_and_in_range(params: dict[str, Any]) -> None:
    x, adj, mask, t = batch()
    pred_x, pred_adj = random_network(params)(x, adj, mask, t)
    torch.testing.assert_close(pred_adj, pred_adj.mT)
    assert pred_adj.diagonal(dim1=1, dim2=2).eq(0).all()
    assert pred_adj.min() >= 0
    assert pred_adj.max() <= 1
    assert pred_x[mask == 0].eq(0).all()
    assert pred_adj[(mask[:, :, None] * mask[:, None, :]) == 0].eq(0).all()
    real = pred_x[mask == 1]
    probabilities = real if params is MOLECULES else real[:, 1:3]
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(len(real)))


@torch.no_grad()
def test_an_eigenvector_of_a_full_graph_has_the_norm_of_the_scale() -> None:
    pred_x, _ = random_network(GRAPHS)(*batch(sizes=(7, 7)))
    torch.testing.assert_close(pred_x[:, :, [0, 3]].norm(dim=1), torch.full((2, 2), 10.0))


@torch.no_grad()
def test_all_padding_of_all_graphs_has_one_node_value_and_one_pair_value_in_every_layer() -> None:
    network = random_network(MOLECULES)
    x, adj, mask, t = batch()
    outputs = []
    for layer in network.tf_layers:
        layer.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    network(x, adj, mask, t)
    padded_pairs = (mask[:, :, None] * mask[:, None, :]) == 0
    assert len(outputs) == 2
    for X, E, _ in outputs:
        for rows, real in ((X[mask == 0], X[mask == 1]), (E[padded_pairs], E[~padded_pairs])):
            torch.testing.assert_close(rows, rows[:1].expand_as(rows), rtol=0, atol=1e-6)
            assert (real - rows[0]).abs().amax(dim=-1).min() > 1e-3


@torch.no_grad()
def test_a_single_node_has_no_spread_and_a_finite_prediction() -> None:
    assert all(output.isfinite().all() for output in random_network(MOLECULES)(*batch(sizes=(1,), nodes=1)))


def test_dropout_acts_in_training_only() -> None:
    network = random_network(MOLECULES)
    inputs = batch()
    assert network(*inputs)[1].equal(network(*inputs)[1])
    network.train()
    assert not network(*inputs)[1].equal(network(*inputs)[1])
    still = random_network({**MOLECULES, "dropout": 0.0})
    assert still.train()(*inputs)[1].equal(still.eval()(*inputs)[1])


@BOTH
def test_gradients_are_finite_even_from_an_empty_state(params: dict[str, Any]) -> None:
    network = random_network(params).train()
    x, adj, mask, t = batch()
    for scale in (1, 0):  # at 0 the pooled standard deviations are 0, where a careless gradient is NaN
        network.zero_grad()
        pred_x, pred_adj = network(scale * x, scale * adj, mask, t)
        (pred_x.square().sum() + pred_adj.square().sum()).backward()
        gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
        assert all(grad is None or grad.isfinite().all() for grad in gradients.values())
        # The graph state of the last layer reaches no output.
        unused = [name for name, grad in gradients.items() if grad is None]
        assert all(name.startswith("tf_layers.1.") and "y" in name for name in unused)


def test_a_few_steps_of_training_lower_the_loss() -> None:
    torch.manual_seed(0)
    network = GrumNetwork({**MOLECULES, "dropout": 0.0}).train()
    x, adj, mask, t = batch()
    target = (adj > 0).float() / 3
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        loss = (network(x, adj, mask, t)[1] - target).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_the_graph_state_is_as_wide_as_released_unless_told() -> None:
    assert GrumNetwork(MOLECULES).tf_layers[0].lin_y1.out_features == 11
    released = GrumNetwork({key: value for key, value in MOLECULES.items() if key != "ffy"})
    assert released.tf_layers[0].lin_y1.out_features == 2048


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *(
            (("model_type",), "gcn"),
            (("n_layers",), 10**9),
            (("hidden_dims", "dx"), 2.5),
            (("hidden_dims", "n_head"), 3),
        ),
        *((("output_dims", "E"), 1), (("scale",), 0), (("hidden_dims",), None), (("ffy",), -1), (("dropout",), 1.5)),
    ],
)
def test_bad_settings_are_named_in_one_line(path: tuple[str, ...], value: Any) -> None:
    params = {key: dict(item) if isinstance(item, dict) else item for key, item in MOLECULES.items()}
    target = params if len(path) == 1 else params[path[0]]
    target[path[-1]] = value
    with pytest.raises(InputError) as caught:
        GrumNetwork(params)
    assert "\n" not in str(caught.value)
    assert any(word in str(caught.value) for word in (path[-1], "hidden_dims", "dx", "output_dims"))


@pytest.mark.parametrize(
    "features", [{"type": ["eig1"], "dim": [3], "scale": 1}, {"type": "eig", "dim": 4, "scale": 1}]
)
def test_features_must_fill_the_output(features: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="feat_dict"):
        GrumNetwork({**GRAPHS, "feat_dict": features})
