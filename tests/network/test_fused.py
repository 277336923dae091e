"""Training's faster way through GruM: outputs and gradients of the reference, compared in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from isostep.network.grum import fused
from isostep.network.grum import fused_kernels as kernels
from isostep.network.grum.fused import FusedGrum, Pool
from isostep.network.grum.reference import GrumNetwork, Pooling

HIDDEN = {"dx": 24, "de": 20, "dy": 12, "n_head": 4, "dim_ffX": 28, "dim_ffE": 36, "dim_ffy": 16}
HEADS: dict[str, dict[str, Any]] = {
    "molecules": {"model_type": "transformer_mol", "output_dims": {"X": 4, "E": 2}, "scale": 3.0},
    "graphs": {
        "model_type": "transformer",
        "output_dims": {"X": 4, "E": 1},
        "feat_dict": {"type": ["eig1", "eig2", "deg"], "dim": [1, 1, 2], "scale": 10.0},
    },
}


def network(head: str, **changes: Any) -> GrumNetwork:
    torch.manual_seed(3)
    params = {"n_layers": 3, "input_dims": {"X": 4, "E": 2, "y": 1}, "hidden_dims": HIDDEN, "ffy": 16, "dropout": 0.0}
    return GrumNetwork({**params, "hidden_mlp_dims": {"X": 16, "E": 16, "y": 8}, **HEADS[head], **changes})


def graphs(count: int = 5, n: int = 7) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Noisy graphs of n, n - 1, n - 2 nodes."""
    generator = torch.Generator().manual_seed(4)
    mask = (torch.arange(n) < n - torch.arange(count)[:, None] % 3).float()
    x = torch.randn(count, n, 4, generator=generator) * mask[..., None]
    upper = torch.randn(count, n, n, generator=generator).triu(1)
    adj = (upper + upper.mT) * mask[:, :, None] * mask[:, None, :]
    return x, adj, mask, torch.rand(count, generator=generator)


def gradients(net: torch.nn.Module, parameters: list[torch.nn.Parameter], batch: tuple[Tensor, ...]) -> list[Tensor]:
    """Outputs, then gradients of a loss that looks at every output, by input and by parameter (0 where unused)."""
    dtype = parameters[0].dtype
    x, adj, mask, t = (value.to(dtype) for value in batch)
    out_x, out_adj = net(x.requires_grad_(), adj.requires_grad_(), mask, t)
    weights = torch.linspace(0.5, 2, out_x.shape[-1], dtype=dtype)
    loss = (out_x * weights).square().sum() + (out_adj + 0.3).pow(3).sum()
    wanted = [x, adj, *parameters]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    zeros = [torch.zeros_like(p) if g is None else g for p, g in zip(wanted, found, strict=True)]
    return [out_x.detach(), out_adj.detach(), *zeros]


def assert_equal_to_reference(net: GrumNetwork, batch: tuple[Tensor, ...]) -> None:
    exact = copy.deepcopy(net).double()
    expected = gradients(exact, list(exact.parameters()), batch)
    found = gradients(FusedGrum(net), list(net.parameters()), batch)
    scale = max(float(value.norm()) for value in expected)
    for e, f in zip(expected, found, strict=True):
        assert float((f - e).norm()) <= 1e-5 * float(e.norm()) + 1e-8 * scale


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("block", [1, 4 * 24 * 7 * 3, 800_000])
def test_outputs_and_gradients_are_those_of_the_reference(head, block, monkeypatch):
    """One node at a time, blocks that end within a graph, and all at once."""
    monkeypatch.setattr(fused, "BLOCK", block)
    assert_equal_to_reference(network(head), graphs())


@pytest.mark.parametrize("head", HEADS)
def test_products_in_bfloat16_give_outputs_and_gradients_to_its_precision(head):
    """8 bits: a few hundredths, in the direction of the reference's; and not the numbers of float32."""
    net, batch = network(head), graphs()
    exact = copy.deepcopy(net).double()
    expected = gradients(exact, list(exact.parameters()), batch)
    found = gradients(FusedGrum(net, half=True), list(net.parameters()), batch)
    for e, f in zip(expected[:2], found[:2], strict=True):
        assert 1e-6 * float(e.norm()) < float((f - e).norm()) < 0.03 * float(e.norm())
    e, f = (torch.cat([value.double().flatten() for value in each[4:]]) for each in (expected, found))
    assert float((f - e).norm()) < 0.05 * float(e.norm())


def test_equal_rows_share_the_gradient_of_their_minimum():
    """Whole numbers meet often; a column without spread passes no gradient through it."""
    rows = torch.randint(0, 3, (6, 9, 5), generator=torch.Generator().manual_seed(5)).float()
    rows[..., 2] = 2.0
    pooling = Pooling(5, 7)
    slopes = []
    for module in (copy.deepcopy(pooling).double(), lambda r: pooling.lin(Pool.apply(r).flatten(1))):
        into = rows.to(torch.float64 if isinstance(module, Pooling) else torch.float32).requires_grad_()
        out = module(into)
        slopes.append(torch.autograd.grad((out * torch.linspace(1, 2, 7)).sum(), into)[0].double())
    torch.testing.assert_close(*slopes, rtol=1e-5, atol=1e-6)


def test_padding_gets_no_gradient_of_its_own():
    net, (x, adj, mask, t) = network("molecules"), graphs(6)
    found = gradients(FusedGrum(net), list(net.parameters()), (x, adj, mask, t))
    assert found[0][mask == 0].abs().max() == 0
    assert found[1][(mask[:, :, None] * mask[:, None, :]) == 0].abs().max() == 0


def test_what_it_does_not_compute_is_left_to_the_reference():
    assert FusedGrum.fits(network("graphs"))
    assert not FusedGrum.fits(network("graphs", dropout=0.1))
    assert not FusedGrum.fits(network("graphs").double())
    assert not FusedGrum.fits(torch.nn.Linear(2, 2))


def test_kernels_round_to_bfloat16_as_torch_does():
    """Ties to even, both signs, zeros, infinities; NaN stays NaN whatever its bits."""
    ties = torch.arange(0x3F80, 0x3FC0, dtype=torch.int32) * 2**16 + 2**15
    near = torch.cat([ties - 1, ties, ties + 1, torch.tensor([0x7F7FFFFF, 0x7F800000, 0])]).view(torch.float32)
    x = torch.cat([near, -near, torch.randn(1000)])
    rounded = torch.zeros(1, len(x), dtype=torch.bfloat16)
    nothing, ones = torch.zeros(len(x)), torch.ones(1, 1)
    fused._call(kernels.masked, x[None], 0, ones, nothing, rounded)
    assert torch.equal(rounded[0].view(torch.int16), x.bfloat16().view(torch.int16))
    total = torch.zeros(1, len(x))
    fused._call(kernels.add, total, rounded)
    assert torch.equal(total, rounded.float())
    undefined = torch.tensor([[2**31 - 1, -1, 0x7FC00000]], dtype=torch.int32).view(torch.float32)
    found = torch.zeros(1, 3, dtype=torch.bfloat16)
    fused._call(kernels.masked, undefined, 0, ones, torch.zeros(3), found)
    assert found.isnan().all()
