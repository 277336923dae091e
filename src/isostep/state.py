"""A batch of graphs: named components over one node mask.

    X  node kind   (B, N, F)      one vector per node
    A  edge kind   (B, N, N[, C]) symmetric, zero diagonal
    y  graph kind  (B, F)         one vector per graph
    P  position kind (B, N, F)    one point per node, the mean over a graph's nodes zero

Entries of padded nodes are zero. A component's kind is given, or read off its name and shape: `A` and `E` (or four
axes) are edges, two axes a graph vector, anything else nodes. Where name and shape leave both open, the kind is asked
for: a wrong guess would give noise of the wrong symmetry without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor

from isostep.base.checks import is_mapping
from isostep.base.errors import InputError

Kind = Literal["node", "edge", "graph", "position"]
Tree = TypeVar("Tree")
NODE_NAMES, EDGE_NAMES = ("X",), ("A", "E")


class Mask:
    """Which nodes are real, (B, N) bool, with the component masks that follow from it."""

    def __init__(self, nodes: Tensor) -> None:
        self.nodes = nodes

    @cached_property
    def pairs(self) -> Tensor:
        """(B, N, N) bool: pairs of two different real nodes."""
        off_diagonal = ~torch.eye(self.nodes.shape[1], dtype=torch.bool, device=self.nodes.device)
        return self.nodes[:, :, None] & self.nodes[:, None, :] & off_diagonal

    @cached_property
    def sizes(self) -> Tensor:
        """(B,) number of real nodes."""
        return self.nodes.sum(1)

    def of(self, kind: Kind, ndim: int) -> Tensor | None:
        """Mask that broadcasts over a component, or None where nothing is masked."""
        if kind == "graph":
            return None
        mask = self.pairs if kind == "edge" else self.nodes
        return mask[(...,) + (None,) * (ndim - mask.ndim)]

    def free_entries(self, kind: Kind, shape: torch.Size) -> Tensor:
        """(B,) number of independent entries of a component: an edge counts once."""
        n = self.sizes
        if kind == "graph":
            return torch.full_like(n, shape[1:].numel())
        if kind in ("node", "position"):
            return (n - int(kind == "position")) * shape[2:].numel()
        return n * (n - 1) // 2 * shape[3:].numel()


@dataclass(frozen=True, eq=False)
class GraphState:
    """Named components of a batch of graphs. Build with `GraphState.of`, which checks; `replace` does not.

    Example:
        >>> import torch, isostep
        >>> mask = torch.tensor([[1, 1, 1], [1, 1, 0]])              # two graphs, of three and two nodes
        >>> state = isostep.GraphState.of(mask, X=torch.zeros(2, 3, 4), A=torch.zeros(2, 3, 3))
        >>> state.batch, state["X"].shape, state.kinds["A"]
        (2, torch.Size([2, 3, 4]), 'edge')
    """

    components: Mapping[str, Tensor]
    masks: Mask
    kinds: Mapping[str, Kind]

    @staticmethod
    def of(mask: Tensor, kinds: Mapping[str, Kind] | None = None, **components: Tensor) -> GraphState:
        """Check shapes, mask and symmetry; `mask` is (B, N), true for real nodes."""
        if mask.ndim != 2 or 0 in mask.shape:
            raise InputError(f"mask must have shape (B, N) with at least one graph and node, got {tuple(mask.shape)}")
        if not components:
            raise InputError("a graph state needs at least one component, such as X=... or A=...")
        if not bool(((mask == 0) | (mask == 1)).all()):
            raise InputError("mask must hold only 0 and 1 (or booleans)")
        masks = Mask(mask.bool())
        if not bool(masks.nodes.any(1).all()):
            row = int((~masks.nodes.any(1)).nonzero()[0])
            raise InputError(f"graph {row} of the batch has no nodes; every row of the mask needs a 1")
        known: dict[str, Kind] = dict(kinds or {})
        for name, value in components.items():
            if name not in known:
                known[name] = _infer_kind(name, value)
            _check(name, value, known[name], masks)
        return GraphState(dict(components), masks, {name: known[name] for name in components})

    @staticmethod
    def zeros(mask: Tensor, kinds: Mapping[str, Kind], widths: Mapping[str, int]) -> GraphState:
        """Graphs with zeros in every component; one that `widths` does not name has no feature axis."""
        shapes = {
            name: (*_leading(kind, mask), *((widths[name],) if name in widths else ())) for name, kind in kinds.items()
        }
        return GraphState.of(mask, kinds, **{n: torch.zeros(shape, device=mask.device) for n, shape in shapes.items()})

    @property
    def mask(self) -> Tensor:
        """(B, N) bool."""
        return self.masks.nodes

    @property
    def batch(self) -> int:
        return self.mask.shape[0]

    @property
    def nodes(self) -> int:
        """Padded node count N."""
        return self.mask.shape[1]

    @property
    def device(self) -> torch.device:
        return self.mask.device

    @property
    def dtype(self) -> torch.dtype:
        """The components' floating type."""
        return next(iter(self.components.values())).dtype

    def __getitem__(self, name: str) -> Tensor:
        return self.components[name]

    def replace(self, components: Mapping[str, Tensor]) -> GraphState:
        """The same graphs with other values (trusted: masked and symmetric)."""
        return GraphState(components, self.masks, self.kinds)

    def project(self, name: str, value: Tensor) -> Tensor:
        """Zero a component's padded entries and diagonal; take positions' mean away."""
        mask = self.masks.of(self.kinds[name], value.ndim)
        # Not a product: a drift may be undefined (NaN) where there is no node.
        return self.centre(name, value if mask is None else torch.where(mask, value, 0.0))

    def centre(self, name: str, value: Tensor) -> Tensor:
        """A masked component: positions without their graph's mean, any other as it is."""
        if self.kinds[name] != "position":
            return value
        mean = value.sum(1, keepdim=True) / self.masks.sizes[:, None, None]
        return torch.where(self.mask[..., None], value - mean, 0.0)

    def free_entries(self, name: str) -> Tensor:
        """(B,) number of independent entries of a component."""
        return self.masks.free_entries(self.kinds[name], self.components[name].shape)

    def take(self, rows: Tensor | slice) -> GraphState:
        """The graphs at `rows`: indices, a boolean mask or a slice."""
        picked = {name: value[rows] for name, value in self.components.items()}
        return GraphState(picked, Mask(self.mask[rows]), self.kinds)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> GraphState:
        """Move to a device and/or change the floating type of the components."""
        moved = {name: value.to(device=device, dtype=dtype) for name, value in self.components.items()}
        return GraphState(moved, Mask(self.mask.to(device=device)), self.kinds)

    def reorder(self, order: Tensor) -> GraphState:
        """The same graphs with their node slots in another order, (B, N)."""
        rows = torch.arange(self.batch, device=self.device)[:, None]
        node, edge = (rows, order), (rows[..., None], order[:, :, None], order[:, None])
        places = {"graph": (), "node": node, "position": node, "edge": edge}
        components = {name: value[places[self.kinds[name]]] for name, value in self.components.items()}
        return GraphState(components, Mask(self.mask[rows, order]), self.kinds)

    def pad(self, nodes: int) -> GraphState:
        """The same graphs with `nodes` node slots: grow with padding, or cut slots that no graph uses."""
        largest = int(self.mask.any(0).nonzero().max()) + 1
        if nodes < largest:
            raise InputError(f"cannot cut to {nodes} nodes: a graph of the batch uses slot {largest - 1}")
        components = {name: _resize(value, self.kinds[name], nodes) for name, value in self.components.items()}
        return GraphState(components, Mask(_resize_axis(self.mask, 1, nodes)), self.kinds)

    @staticmethod
    def cat(states: list[GraphState]) -> GraphState:
        """Join batches with the same components, padding to the largest."""
        if not states:
            raise InputError("cannot join an empty list of graph states")
        first = states[0]
        if any(dict(state.kinds) != dict(first.kinds) for state in states):
            raise InputError(f"cannot join states with different components: {[dict(s.kinds) for s in states]}")
        nodes = max(state.nodes for state in states)
        states = [state if state.nodes == nodes else state.pad(nodes) for state in states]
        joined = {name: torch.cat([state[name] for state in states]) for name in first.components}
        return GraphState(joined, Mask(torch.cat([state.mask for state in states])), first.kinds)


def take_rows(tree: Tree, rows: Tensor) -> Tree:
    """Rows of everything in a tree of tensors, states, dicts and named tuples."""
    return _take(tree, rows)


def _take(tree: Any, rows: Tensor) -> Any:
    if tree is None or isinstance(tree, str | int | float):
        return tree
    if isinstance(tree, Tensor):
        return tree[rows]
    if isinstance(tree, GraphState):
        return tree.take(rows)
    if is_mapping(tree):
        return {key: _take(value, rows) for key, value in tree.items()}
    return type(tree)(*(_take(value, rows) for value in tree))


def cat_rows(trees: list[Tree]) -> Tree:
    """Join trees of the same shape row-wise; node slots are padded to the largest by `GraphState.cat`."""
    return _cat(trees)


def _cat(trees: list[Any]) -> Any:
    first = trees[0]
    if first is None or isinstance(first, str | int | float):
        return first
    if isinstance(first, Tensor):
        return torch.cat(trees)
    if isinstance(first, GraphState):
        return GraphState.cat(trees)
    if is_mapping(first):
        return {key: _cat([tree[key] for tree in trees]) for key in first}
    return type(first)(*(_cat(list(values)) for values in zip(*trees, strict=True)))


def expand(coefficient: Tensor, like: Tensor) -> Tensor:
    """A per-graph number (B,), in the type of `like` and with axes to broadcast over it."""
    return coefficient.to(like.dtype).view(-1, *(1,) * (like.ndim - 1))


def where_rows(rows: Tensor, new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Component by component: `new` where `rows` (B,) is true, `old` elsewhere."""
    return {n: torch.where(rows.view(-1, *(1,) * (new[n].ndim - 1)), new[n], old[n]) for n in new}


def _infer_kind(name: str, value: Tensor) -> Kind:
    if value.ndim == 2:
        return "graph"
    if value.ndim == 3 and value.shape[1] == value.shape[2] and name not in NODE_NAMES + EDGE_NAMES:
        raise InputError(
            f"component {name} of shape {tuple(value.shape)} could be nodes or edges; say which: "
            f"kinds={{{name!r}: 'edge'}} or 'node'"
        )
    return "edge" if value.ndim == 4 or name in EDGE_NAMES else "node"


def _leading(kind: Kind, mask: Tensor) -> tuple[int, ...]:
    """Axes of a component before its features."""
    b, n = mask.shape
    return {"node": (b, n), "position": (b, n), "edge": (b, n, n), "graph": (b,)}[kind]


def _check(name: str, value: Tensor, kind: Kind, masks: Mask) -> None:
    if kind not in get_args(Kind):
        raise InputError(f"kind of component {name} must be one of {get_args(Kind)}, got {kind!r}")
    if not value.is_floating_point():
        raise InputError(f"component {name} must be floating point, got {value.dtype}")
    wanted = _leading(kind, masks.nodes)
    axes = {"node": (3,), "position": (3,), "edge": (3, 4), "graph": (2,)}[kind]
    if value.ndim not in axes or tuple(value.shape[: len(wanted)]) != wanted:
        raise InputError(
            f"component {name} of kind {kind} has shape {tuple(value.shape)}, which does not match the mask's "
            f"(B, N) = {tuple(masks.nodes.shape)}; expected {wanted} and {axes[0] - len(wanted)} more axis"
        )
    if not bool(value.isfinite().all()):
        raise InputError(f"component {name} has entries that are not finite; check what made it")
    mask = masks.of(kind, value.ndim)
    if mask is not None and bool((value * ~mask).ne(0).any()):
        raise InputError(f"component {name} is not zero on padded nodes or the diagonal; multiply by the mask first")
    if kind == "edge" and not torch.equal(value, value.transpose(1, 2)):
        raise InputError(f"component {name} is not symmetric; use (A + A.transpose(1, 2)) / 2")
    if kind == "position" and bool(value.sum(1).abs().gt(1e-3 * (1 + value.abs().sum(1))).any()):
        raise InputError(f"positions {name} have a mean that is not zero; subtract it over each graph's nodes")


def _resize_axis(value: Tensor, axis: int, size: int) -> Tensor:
    if value.shape[axis] >= size:
        return value.narrow(axis, 0, size)
    shape = list(value.shape)
    shape[axis] = size - value.shape[axis]
    return torch.cat([value, value.new_zeros(shape)], axis)


def _resize(value: Tensor, kind: Kind, nodes: int) -> Tensor:
    for axis in {"graph": (), "node": (1,), "position": (1,), "edge": (1, 2)}[kind]:
        value = _resize_axis(value, axis, nodes)
    return value
