"""GDSS for inference: the outputs of `GdssNetwork` with less work and fewer passes over memory.

Everything a node pair carries is symmetric (powers of A, symmetrised scores, MLPs of those), and nobody reads the
diagonal. So unordered pairs are all there is:

    M + M^T  = 2 M,           V_j is read by one linear map only:  W1 concat_j V_j = sum_j (W1_j Wv_j) (A_j x) + const
    A_j x W  = (A_j x) W,     one small product for Q, K and V together

Graphs come last in every array, (rows, nodes or pairs, graphs), so that each operation runs along many graphs of
(nearly) one size whatever their node count. A row of ones carries the biases through the matrix products. What the last
layer computes for nobody is left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from isostep.network.gdss.reference import MLP, AttentionLayer, GdssNetwork, ScoreNetworkX


class Ops(Protocol):
    """What a network is made of. C channels, F features, N nodes, P pairs, B graphs."""

    cells: int  # most B N^2 of one call
    threads: int  # most that pay; 0: as many as torch has

    def aggregate(self, channels: Tensor, x: Tensor, square: Tensor, out: Tensor) -> None:
        """out[:, :F] (C, F + 1, N, B) = d A_c d x for every channel c; channels (C, P, B), x (F, N, B)."""
        ...

    def scores(self, query_key: Tensor, around: Tensor, heads: int, out: Tensor) -> None:
        """out (C, P, B) = sum over heads of sigmoid(q_i k_j) + sigmoid(q_j k_i); all q, then all k of a channel are
        query_key (C, 2 heads width, F + 1) times around (C, F + 1, N, B)."""
        ...

    def mlp(self, weights: tuple[Tensor, ...], h: Tensor, out: Tensor) -> None:
        """out (rows, columns): linear maps with ELU between them; h has a row of ones at its end for the biases."""
        ...

    def tanh_(self, h: Tensor) -> Tensor: ...


class TorchOps:
    cells = 16_000
    threads = 0

    def aggregate(self, channels: Tensor, x: Tensor, square: Tensor, out: Tensor) -> None:
        n = x.shape[1]
        a = channels.index_select(1, square).view(len(channels), n, n, -1)
        a.diagonal(dim1=1, dim2=2).fill_(1)
        d = a.sum(2).clamp_(min=1).rsqrt_().unsqueeze(1)  # (C, 1, N, B)
        scaled = x * d
        columns, rows = a.unsqueeze(1).unbind(3), scaled.unsqueeze(3).unbind(2)
        inner = out[:, :-1]
        torch.mul(columns[0], rows[0], out=inner)
        for column, row in zip(columns[1:], rows[1:], strict=True):
            inner.addcmul_(column, row)
        inner.mul_(d)

    def scores(self, query_key: Tensor, around: Tensor, heads: int, out: Tensor) -> None:
        channels, _, nodes, graphs = around.shape
        both = torch.bmm(query_key, around.flatten(2)).view(channels, 2, heads, -1, nodes, graphs)
        query, key = both.unbind(1)
        queries, keys = query.unsqueeze(4).unbind(2), key.unsqueeze(3).unbind(2)
        product = queries[0] * keys[0]  # (C, heads, N, N, B)
        for q, k in zip(queries[1:], keys[1:], strict=True):
            product.addcmul_(q, k)
        total = product.sigmoid_().sum(1).flatten(1, 2)
        up, low, _ = pair_places(nodes, out.device)
        torch.add(total.index_select(1, up), total.index_select(1, low), out=out)

    def mlp(self, weights: tuple[Tensor, ...], h: Tensor, out: Tensor) -> None:
        for weight in weights[:-1]:
            hidden = _buffer(h, len(weight), h.shape[1])
            functional.elu_(torch.mm(weight, h, out=hidden[:-1]))
            h = hidden
        torch.mm(weights[-1], h, out=out)

    def tanh_(self, h: Tensor) -> Tensor:
        return h.tanh_()


@dataclass(frozen=True)
class FoldedMLP:
    """Linear maps with ELU between them; each matrix has its bias as last column."""

    weights: tuple[Tensor, ...]

    def __call__(self, h: Tensor, ops: Ops) -> Tensor:
        """h (in + 1, columns), its last row ones -> (out, columns)."""
        out = h.new_empty(len(self.weights[-1]), h.shape[1])
        ops.mlp(self.weights, h, out)
        return out


@dataclass(frozen=True)
class PairMaps:
    """What makes the new pair channels of an attention layer with C channels and F features in; see `_fold_pairs`."""

    query_key: Tensor  # (C, 2 attn_dim, F + 1)
    heads: int
    mlp: FoldedMLP  # reads the scores, then the channels


@dataclass(frozen=True)
class FoldedLayer:
    """One attention layer; None where the result is not read."""

    pairs: PairMaps | None
    nodes: FoldedMLP | None  # (hidden, C (F + 1)), (nhid, hidden + 1)


@dataclass(frozen=True)
class FoldedGdss:
    """Both networks, ready to run."""

    gcn: tuple[Tensor, ...]  # node network: GCN layers (out, in + 1) ...
    node_layers: tuple[FoldedLayer, ...]  # ... or attention layers
    node_final: FoldedMLP
    edge_layers: tuple[FoldedLayer, ...]
    edge_final: FoldedMLP
    node_powers: int
    edge_powers: int
    ops: Ops
    overhead: int = 2500
    takes_mask: bool = True

    @property
    def cells(self) -> int:
        return self.ops.cells

    def __call__(
        self, x: Tensor, adj: Tensor, mask: Tensor | None, t: Tensor | None = None, padding: int = 0
    ) -> tuple[Tensor, Tensor]:
        """x (B, N, F), adj (B, N, N); `mask` (B, N) is None where all nodes are real. Time, padding: unused."""
        with at_most(self.ops.threads):
            return self._scores(x, adj, mask)

    def _scores(self, x: Tensor, adj: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        nodes, dtype = x.shape[1], self.edge_final.weights[0].dtype
        up, _, square = pair_places(nodes, x.device)
        x, adj = x.to(dtype).permute(2, 1, 0).contiguous(), adj.to(dtype)  # x: (F, N, B)
        real = None if mask is None else _pairs_of(mask[:, :, None] & mask[:, None, :], up).to(dtype)
        powers = _powers(adj, max(self.node_powers, self.edge_powers), up)
        score_x = self._nodes(x, powers, real, square).permute(2, 1, 0)
        pairs = self._layers(self.edge_layers, x, powers[: self.edge_powers], real, square, pairs_wanted=True)
        score = self.edge_final(pairs.flatten(1), self.ops).view(-1, x.shape[-1])  # (P, B)
        if real is not None:
            score *= real
        if mask is not None:
            score_x = score_x * mask.unsqueeze(-1)
        return score_x, _square_of(score, nodes, square)

    def _nodes(self, x: Tensor, powers: Tensor, real: Tensor | None, square: Tensor) -> Tensor:
        if self.gcn:
            hidden = self._gcn_stack(x, powers[:1], square)
        else:
            hidden = self._layers(self.node_layers, x, powers[: self.node_powers], real, square, pairs_wanted=False)
        return self.node_final(hidden.flatten(1), self.ops).view(-1, *x.shape[1:])

    def _gcn_stack(self, x: Tensor, adjacency: Tensor, square: Tensor) -> Tensor:
        hidden = [x]
        for weight in self.gcn:
            around = self._aggregate(adjacency, hidden[-1], square)[0]
            hidden.append(self.ops.tanh_(FoldedMLP((weight,))(around.flatten(1), self.ops)).view(-1, *x.shape[1:]))
        return _stack_with_ones(hidden)

    def _layers(
        self,
        layers: tuple[FoldedLayer, ...],
        x: Tensor,
        channels: Tensor,
        real: Tensor | None,
        square: Tensor,
        *,
        pairs_wanted: bool,
    ) -> Tensor:
        """Attention layers on x (F, N, B) and channels (C, P, B): what the final MLP reads and a row of ones.

        That is the channels (sum C + 1, P, B) of the input and all layers, or (not `pairs_wanted`) the node features
        (sum F + 1, N, B), with one more tanh as the node network has it.
        """
        widths = [len(channels), *(len(layer.pairs.mlp.weights[-1]) if layer.pairs else 0 for layer in layers)]
        pairs = _buffer(x, sum(widths), *channels.shape[1:])
        pairs[: widths[0]] = channels
        hidden, at = [x], 0
        for layer, width, wider in zip(layers, widths, widths[1:], strict=False):
            old, at = pairs[at : at + width], at + width
            around = self._aggregate(old, x, square)
            if layer.pairs is not None:
                new = pairs[at : at + wider]
                self._new_channels(layer.pairs, around, old, new)
                if real is not None:
                    new *= real
            if layer.nodes is not None:
                x = self.ops.tanh_(layer.nodes(around.flatten(0, 1).flatten(1), self.ops)).view(-1, *x.shape[1:])
                x = x if pairs_wanted else x.tanh()
                hidden.append(x)
        return pairs if pairs_wanted else _stack_with_ones(hidden)

    def _aggregate(self, channels: Tensor, x: Tensor, square: Tensor) -> Tensor:
        """(C, F + 1, N, B): the neighbourhood of every node in every channel, and a row of ones."""
        around = _buffer(x, *x.shape, lead=(len(channels),))
        if x.shape[1] == 1:
            around[:, :-1] = x
        else:
            self.ops.aggregate(channels, x, square, around)
        return around

    def _new_channels(self, maps: PairMaps, around: Tensor, old: Tensor, out: Tensor) -> None:
        """Write the layer's new pair channels (C', P, B) to `out`."""
        channels = len(old)
        both = _buffer(old, 2 * channels, *old.shape[1:])
        self.ops.scores(maps.query_key, around, maps.heads, both[:channels])
        both[channels:-1] = old
        self.ops.mlp(maps.mlp.weights, both.flatten(1), out.flatten(1))


@contextlib.contextmanager
def at_most(threads: int) -> Generator[None, None, None]:
    """Fewer threads of torch inside; 0: leave them as they are."""
    before = torch.get_num_threads()
    if not 0 < threads < before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fold(network: nn.Module, dtype: torch.dtype = torch.float32, ops: Ops | None = None) -> FoldedGdss | None:
    """Fold a network's weights (in float64, then rounded once); None where this module cannot run it."""
    if not isinstance(network, GdssNetwork) or not _convolves(network):
        return None
    node: Any = network.x
    edge: Any = network.adj
    plain = isinstance(network.x, ScoreNetworkX)
    return FoldedGdss(
        gcn=tuple(_round(_with_bias(gcn.weight.mT, gcn.bias), dtype) for gcn in node.layers) if plain else (),
        node_layers=() if plain else _fold_layers(node.layers, "nodes", dtype),
        node_final=_fold_mlp(node.final, dtype),
        edge_layers=_fold_layers(edge.layers, "pairs", dtype),
        edge_final=_fold_mlp(edge.final, dtype),
        node_powers=1 if plain else node.c_init,
        edge_powers=edge.c_init,
        ops=TorchOps() if ops is None else ops,
    )


def _convolves(network: GdssNetwork) -> bool:
    """Whether Q and K are graph convolutions, as in every released file."""
    layers: list[Any] = [*network.adj.layers, *([] if isinstance(network.x, ScoreNetworkX) else network.x.layers)]
    return all(attention.conv == "GCN" for layer in layers for attention in layer.attn)


def _fold_layers(layers: Any, wanted: str, dtype: torch.dtype) -> tuple[FoldedLayer, ...]:
    """The last layer computes what the network reads of it: "nodes" or "pairs"."""
    last = len(layers) - 1
    return tuple(
        FoldedLayer(
            pairs=_fold_pairs(layer, dtype) if i < last or wanted == "pairs" else None,
            nodes=_fold_nodes(layer, dtype) if i < last or wanted == "nodes" else None,
        )
        for i, layer in enumerate(layers)
    )


def _fold_pairs(layer: AttentionLayer, dtype: torch.dtype) -> PairMaps:
    attentions: list[Any] = list(layer.attn)
    channels, heads = len(attentions), attentions[0].heads
    first, *others = _linears(layer.mlp)
    # Scores arrive as sums of sigmoid(2 s) over heads and both directions. Mean, symmetrisation and
    # tanh(s) = 2 sigmoid(2 s) - 1 are in the weights; torch's sigmoid is three times as fast as its tanh.
    bias = first[:, -1:] - first[:, :channels].sum(1, keepdim=True)
    maps = [torch.cat((first[:, :channels] / heads, first[:, channels:-1], bias), 1), *others]
    maps[-1] *= 2  # M + M^T = 2 M
    return PairMaps(
        query_key=_round(torch.stack([_query_key(attention) for attention in attentions]), dtype),
        heads=heads,
        mlp=FoldedMLP(tuple(_round(m, dtype) for m in maps)),
    )


def _fold_nodes(layer: AttentionLayer, dtype: torch.dtype) -> FoldedMLP:
    first, second = _linears(layer.multi_channel)
    return FoldedMLP((_round(_through_values(first, layer), dtype), _round(second, dtype)))


def _query_key(attention: Any) -> Tensor:
    """(2 attn_dim, F + 1), the scale of the scores, times 2 for the sigmoid, in the query."""
    query, key = (_with_bias(gcn.weight.mT, gcn.bias) for gcn in (attention.gnn_q, attention.gnn_k))
    return torch.cat((query * (2 * attention.scale), key))


def _through_values(first: Tensor, layer: AttentionLayer) -> Tensor:
    """(hidden, C (F + 1)): the linear map of concat_j V_j as a map of A_j x; the map's bias goes with channel 0."""
    attentions: list[Any] = list(layer.attn)
    blocks = first[:, :-1].chunk(len(attentions), 1)
    maps = [block @ _with_bias(a.gnn_v.weight.mT, a.gnn_v.bias) for block, a in zip(blocks, attentions, strict=True)]
    maps[0][:, -1] += first[:, -1]
    return torch.cat(maps, 1)


def _fold_mlp(mlp: MLP, dtype: torch.dtype) -> FoldedMLP:
    return FoldedMLP(tuple(_round(weight, dtype) for weight in _linears(mlp)))


def _linears(mlp: MLP) -> list[Tensor]:
    linears: Any = [mlp.linear] if mlp.k == 1 else mlp.linears
    return [_with_bias(linear.weight, linear.bias) for linear in linears]


def _with_bias(weight: Tensor, bias: Tensor) -> Tensor:
    return torch.cat((weight.detach().double(), bias.detach().double()[:, None]), 1)


def _round(weight: Tensor, dtype: torch.dtype) -> Tensor:
    return weight.to(dtype).contiguous()


def _stack_with_ones(parts: list[Tensor]) -> Tensor:
    return torch.cat((*parts, torch.ones_like(parts[0][:1])))


def _powers(adj: Tensor, count: int, up: Tensor) -> Tensor:
    """(count, P, B): A, A^2, ... at the pairs."""
    power, out = adj, [_pairs_of(adj, up)]
    for _ in range(count - 1):
        power = power @ adj
        out.append(_pairs_of(power, up))
    return torch.stack(out)


def _pairs_of(square: Tensor, up: Tensor) -> Tensor:
    """(B, N, N) -> (P, B)."""
    return square.flatten(1).mT.index_select(0, up)


def _square_of(pairs: Tensor, nodes: int, square: Tensor) -> Tensor:
    """(P, B) -> (B, N, N) with a zero diagonal."""
    if nodes == 1:
        return pairs.new_zeros(pairs.shape[1], 1, 1)
    out = pairs.index_select(0, square).view(nodes, nodes, -1)
    out.diagonal().zero_()
    return out.permute(2, 0, 1)


def _buffer(like: Tensor, rows: int, *shape: int, lead: tuple[int, ...] = ()) -> Tensor:
    """(*lead, rows + 1, *shape), the last row ones, the rest unset."""
    out = like.new_empty((*lead, rows + 1, *shape))
    out.select(len(lead), rows).fill_(1)
    return out


_places: dict[tuple[int, torch.device], tuple[Tensor, Tensor, Tensor]] = {}


def pair_places(nodes: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Flat places of pairs (i, j), of (j, i), and for every place of a square its pair.

    Pairs come by distance on a circle of the nodes, (i, i + 1), then (i, i + 2) and so on: what belongs to one distance
    is one run of memory, i and j alike.
    """
    key = (nodes, device)
    if key not in _places:
        i = torch.arange(nodes).repeat(nodes // 2)[: nodes * (nodes - 1) // 2]
        j = (i + torch.arange(len(i)) // nodes + 1) % nodes
        square = torch.zeros(nodes, nodes, dtype=torch.int64)
        square[i, j] = square[j, i] = torch.arange(len(i))
        _places[key] = tuple(place.to(device) for place in (i * nodes + j, j * nodes + i, square.flatten()))  # type: ignore[assignment]
    return _places[key]
