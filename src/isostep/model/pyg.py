"""A sparse (PyTorch Geometric style) network on dense states.

All pairs of real nodes are edges; their value A_ij is the edge attribute. The network sees

    x (M, F), edge_index (2, E), edge_attr (E, 1), batch (M,), t (B,)      M nodes and E ordered pairs of all graphs

and returns node outputs (M, F) and edge outputs (E,) or (E, 1); edges are averaged over both directions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isostep.state import GraphState


class SparseNetwork(nn.Module):
    """`network(x, edge_index, edge_attr, batch, t) -> (nodes, edges)` as a network of `isostep.wrap`."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, state: GraphState, t: Tensor) -> dict[str, Tensor]:
        x, a, mask, pairs = state["X"], state["A"], state.mask, state.masks.pairs
        graph, i, j = pairs.nonzero(as_tuple=True)
        number = torch.full(mask.shape, -1, dtype=torch.int64, device=x.device)
        number[mask] = torch.arange(int(mask.sum()), device=x.device)
        edge_index = torch.stack([number[graph, i], number[graph, j]])
        batch = mask.nonzero()[:, 0]
        nodes, edges = self.network(x[mask], edge_index, a[pairs][:, None], batch, t)
        out_x, out_a = torch.zeros_like(x), torch.zeros_like(a)
        out_x[mask] = nodes
        out_a[pairs] = edges.reshape(-1)
        return {"X": out_x, "A": (out_a + out_a.mT) / 2}
