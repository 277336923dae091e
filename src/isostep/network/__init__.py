"""What is learned: a network maps (x, adj, mask, t) to one prediction for x and one for adj."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from isostep.base.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn


def assemble(family: str, params: Mapping[str, Any], weights: Mapping[str, Tensor]) -> nn.Module:
    """The network of `family` ("gdss", "grum") with copies of `weights` in float32, in eval mode.

    `params` are the released constructor settings; for GDSS {"x": params_x, "adj": params_adj}. The network is laid
    out without memory first, so settings that do not fit the weights cost nothing.
    """
    import torch

    with torch.device("meta"):
        network = _empty(family, params)
    expected = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise InputError(
                f"weights do not fit the network settings: {name!r} has shape {found.get(name, 'none')}, "
                f"expected {expected.get(name, 'none')}"
            )
    copies = {name: value.detach().to(torch.float32, copy=True).contiguous() for name, value in weights.items()}
    network.load_state_dict(copies, assign=True)
    return network.eval()


def _empty(family: str, params: Mapping[str, Any]) -> nn.Module:
    if family == "gdss":
        from isostep.network.gdss.reference import GdssNetwork
        from isostep.network.settings import entry

        return GdssNetwork(entry(params, "x"), entry(params, "adj"))
    if family == "grum":
        from isostep.network.grum.reference import GrumNetwork

        return GrumNetwork(params)
    raise InputError(f"unknown network family {family!r}; expected gdss or grum")
