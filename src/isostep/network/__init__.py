"""What is learned: a network maps (x, a, ..., mask, t) to one prediction per component, (x, a, ...)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

from isostep.base.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn

MOST_SHARED = 4  # names that one parameter may have, and parameters that a layer makes and drops


@contextlib.contextmanager
def _at_most(count: int) -> Generator[None, None, None]:
    """Settings may name thousands of layers: building ends once it has made more parameters than there are weights."""
    from torch.nn.modules.module import register_module_parameter_registration_hook

    made = 0

    def one_more(module: Any, name: str, parameter: Any) -> None:
        nonlocal made
        made += 1
        if made > MOST_SHARED * (count + 1):
            raise InputError(f"weights do not fit the network settings: these ask for more than {count} parameters")

    handle = register_module_parameter_registration_hook(one_more)
    try:
        yield
    finally:
        handle.remove()


def assemble(
    make: Callable[[Mapping[str, Any]], nn.Module], params: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> nn.Module:
    """The network `make(params)` with copies of `weights` in float32, in eval mode.

    It is laid out without memory first, so settings that do not fit the weights cost nothing.
    """
    import torch

    with torch.device("meta"), _at_most(len(weights)):
        network = make(params)
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
