"""The networks at inference speed: graphs are grouped by size, padding is cut off, and each group runs the fastest
program that can compute the network. The network itself runs whenever none can: in training, with gradients, in another
type than float32, where its family has no fast path.

Groups minimise the work a graph of n nodes brings, n^2, plus a fixed cost per group:

    sum over groups of (overhead + graphs in the group * (largest n in the group)^2)

Environment: `ISOSTEP_BACKEND` = auto (default), reference, torch or numba; `ISOSTEP_PRECISION` = float32 (default),
bfloat16 or float16.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from isostep.base.errors import InputError, require
from isostep.state import Kind

BACKENDS = ("auto", "reference", "torch", "numba")
FEW_GRAPHS = 8
KEPT = 31 << 20  # bytes; glibc's limit is 32 MB
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Program(Protocol):
    """A network with its weights prepared."""

    @property
    def overhead(self) -> int:
        """Fixed cost of one call, in units of n^2 of one graph."""
        ...

    @property
    def cells(self) -> int:
        """Most graphs * n^2 of one call: what keeps temporaries in cache."""
        ...

    @property
    def takes_mask(self) -> bool:
        """Whether graphs of different sizes may share a call."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Outputs, masked, for (x, a, ..., mask, t, padding): components of n node slots; `mask` (B, n), None where
        all nodes are real; t (B,); how many padded node slots were cut off.
        """
        ...


@dataclass(frozen=True)
class Unpadded:
    """The network itself on graphs without their padding, for one that does not read it."""

    network: nn.Module
    overhead: int = 1000
    cells: int = 8192
    takes_mask: bool = True

    def __call__(self, *inputs: Any) -> tuple[Tensor, ...]:
        *components, mask, t, _ = inputs
        x = components[0]
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
        return self.network(*components, real, t)


class FastPath(NamedTuple):
    """A family's programs: `fold(network, dtype, ops)` prepares the weights, or returns None for a network that it
    does not know. `kernels` is the module whose `NumbaOps` are the compiled `ops`; without them `ops` is None.
    """

    fold: Callable[[Any, torch.dtype, Any], Program | None]
    kernels: str | None = None


class Group(NamedTuple):
    """Graphs that share a call: their rows, the node slots kept, and a mask if some of these are padding."""

    rows: Tensor
    nodes: int
    mask: Tensor | None


class Order(NamedTuple):
    """All graphs of a batch, group after group, and where each one of the batch is found there."""

    rows: Tensor
    places: Tensor
    groups: list[Group]

    @staticmethod
    def of(groups: list[Group]) -> Order:
        rows = torch.cat([group.rows for group in groups])
        return Order(rows, rows.argsort(), groups)


@dataclass(frozen=True)
class FastSettings:
    backend: str = "auto"
    precision: str = "float32"

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InputError(f"unknown network backend {self.backend!r}; choose one of: {', '.join(BACKENDS)}")
        if self.precision not in PRECISIONS:
            raise InputError(f"unknown precision {self.precision!r}; choose one of: {', '.join(PRECISIONS)}")
        if self.backend == "numba":
            require("numba", "fast", "the numba backend")

    @staticmethod
    def from_environment() -> FastSettings:
        return FastSettings(os.environ.get("ISOSTEP_BACKEND", "auto"), os.environ.get("ISOSTEP_PRECISION", "float32"))


class FastNetwork:
    """`network` called the fast way; same arguments, same results up to rounding. `kinds` are its components'."""

    def __init__(
        self, network: nn.Module, path: FastPath | None, kinds: tuple[Kind, ...], settings: FastSettings | None = None
    ) -> None:
        self.network, self.path = network, path
        self.settings = FastSettings.from_environment() if settings is None else settings
        self._node_axes = tuple({"node": 1, "position": 1, "edge": 2, "graph": 0}[kind] for kind in kinds)
        self._program: Program | None = None
        self._weights: list[tuple[int, int]] | None = None
        # Where each weight is kept: walking through the modules would add a tenth to the call of a single graph.
        self._homes = [(m._parameters, name) for m in network.modules() for name in m._parameters]
        self._plan: tuple[Tensor, Order | None] | None = None

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """(x, a, ..., mask, t): components zero on padding, edges symmetric; mask (B, N); t (B,)."""
        *components, mask, t = inputs
        program = self.program(components[0])
        order = None if program is None else self._order(mask, program)
        if program is None or order is None:
            return self.network(*inputs)
        # Whole rows are moved, there and back: cheaper than to index the parts of every group.
        *components, t = (part.index_select(0, order.rows) for part in (*components, t))
        out = [torch.zeros_like(part) for part in components]
        start = 0
        for rows, n, real in order.groups:
            here = slice(start, start + len(rows))
            cuts = [(here, *(slice(n),) * axes) for axes in self._node_axes]
            parts = (part[cut] for part, cut in zip(components, cuts, strict=True))
            found = program(*parts, real, t[here], mask.shape[1] - n)
            for whole, cut, part in zip(out, cuts, found, strict=True):
                whole[cut] = part
            start = here.stop
        return tuple(part.index_select(0, order.places) for part in out)

    def program(self, x: Tensor) -> Program | None:
        """The program for inputs like `x` with the present weights; None: only the reference can do it."""
        if torch.is_grad_enabled() or self.network.training or x.dtype != torch.float32:
            return None
        found = (home[name] for home, name in self._homes)
        weights = [(p.data_ptr(), p._version) for p in found if p is not None]
        if weights != self._weights:
            self._program, self._weights = choose_program(self.network, self.path, self.settings), weights
        return self._program

    def _order(self, mask: Tensor, program: Program) -> Order | None:
        """Made once per mask: steps of one batch share the tensor, so there is no device synchronisation per step."""
        if self._plan is None or self._plan[0] is not mask:
            groups = make_groups(mask.bool(), program)
            self._plan = mask, None if groups is None else Order.of(groups)
        return self._plan[1]


def choose_program(network: nn.Module, path: FastPath | None, settings: FastSettings) -> Program | None:
    """The fastest program that computes `network` on the device its weights are on."""
    if path is None or settings.backend == "reference":
        return None
    keep_memory()
    ops = _kernels(path.kernels) if path.kernels and _compiled_pays(network, settings) else None
    return path.fold(network, PRECISIONS[settings.precision], ops)


def keep_memory() -> None:
    """Let freed temporaries stay with the process: getting them back page by page takes an eighth of a sampling step.

    glibc returns free memory to the system from twice the size of the largest block that it has seen freed; this one
    is never written, so it takes no memory. Elsewhere it does nothing.
    """
    torch.empty(KEPT, dtype=torch.uint8)


def _compiled_pays(network: nn.Module, settings: FastSettings) -> bool:
    """Whether to use compiled helpers if they are installed: they run on one thread."""
    wanted = settings.backend == "numba" or (settings.backend == "auto" and torch.get_num_threads() <= 4)
    return wanted and next(network.parameters()).device.type == "cpu" and settings.precision == "float32"


def _kernels(module: str) -> Any:
    """Compiled helpers of a family; None where Numba is not installed."""
    try:
        return importlib.import_module(module).NumbaOps()
    except ImportError:
        return None


def make_groups(mask: Tensor, program: Program) -> list[Group] | None:
    """Groups of graphs for `program`; None where it needs whole graphs and a mask has holes."""
    nodes = mask.shape[1]
    extents = (mask * torch.arange(1, nodes + 1, device=mask.device)).amax(1)  # slots up to the last real node
    if not program.takes_mask and bool((mask.sum(1) != extents).any()):
        return None
    order = extents.argsort(descending=True, stable=True)
    sizes, counts = extents.unique(return_counts=True)
    sizes, counts = sizes.flip(0).tolist(), counts.flip(0).tolist()
    groups, start = [], 0
    for first, end in _merge(sizes, counts, program):
        rows = order[start : start + sum(counts[first:end])]
        start += len(rows)
        for part in rows.split(_together(sizes[first], len(rows), program)):
            n = int(extents[part[0]])
            real = mask[part, :n]
            groups.append(Group(part, n, None if bool(real.all()) else real))
    return groups


def _together(nodes: int, graphs: int, program: Program) -> int:
    """Graphs of one call: equal shares under `cells`. A few large graphs are faster one by one than side by side."""
    most = program.cells // nodes**2
    if program.takes_mask and most < FEW_GRAPHS:
        return 1
    return -(-graphs // -(-graphs // max(1, most)))


def _merge(sizes: list[int], counts: list[int], program: Program) -> list[tuple[int, int]]:
    """Ranges of sizes (descending) that share calls, at least total cost: shortest path over the cuts."""
    if not program.takes_mask:
        return [(i, i + 1) for i in range(len(sizes))]
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, len(sizes) + 1):
        graphs, choices = 0, []
        for first in range(end - 1, -1, -1):
            graphs += counts[first]
            cells = graphs * sizes[first] ** 2
            choices.append((best[first][0] + cells + program.overhead * -(-cells // program.cells), first))
        best.append(min(choices))
    ranges, end = [], len(sizes)
    while end:
        ranges.append((best[end][1], end))
        end = best[end][1]
    return ranges[::-1]
