"""The fast programs: same outputs as the reference networks, on ragged batches, and fallback where they cannot run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from isostep.network.fast import FastNetwork, FastSettings
from tests.network.test_gdss import VARIANTS, graphs
from tests.network.test_gdss import random_network as gdss_network

SIZES = [7, 5, 2, 7, 1, 6, 3, 3, 7, 4, 5]


def assert_same(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()


def gdss_batch(sizes: list[int] = SIZES, nodes: int = 9) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return *graphs(sizes, nodes, 3), torch.linspace(0.1, 0.9, len(sizes))


@pytest.mark.parametrize("backend", ["torch"])
@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "mlp attention"])
@torch.no_grad()
def test_gdss_equals_the_reference_on_graphs_of_all_sizes(name: str, backend: str) -> None:
    network, inputs = gdss_network(*VARIANTS[name]), gdss_batch()
    fast = FastNetwork(network, FastSettings(backend))
    assert fast.program(inputs[0]) is not None
    assert_same(fast(*inputs), network(*inputs))
