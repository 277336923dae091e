"""A PyTorch Geometric network as a score model of dense states: all pairs of nodes are edges, A their attribute."""

import torch
from torch import nn
from torch_geometric.nn import GINEConv

import isostep
from isostep.model.pyg import SparseNetwork
from isostep.process import VP


class Layers(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.start = nn.Linear(3, width)
        self.conv = GINEConv(nn.Linear(width, width), edge_dim=1)
        self.node, self.edge = nn.Linear(width, 2), nn.Linear(2 * width + 1, 1)

    def forward(self, x, edge_index, edge_attr, batch, t):  # (M, 2), (2, E), (E, 1), (M,), (B,)
        h = self.start(torch.cat([x, t[batch][:, None]], 1))
        h = self.conv(h, edge_index, edge_attr).relu()
        return self.node(h), self.edge(torch.cat([h[edge_index[0]], h[edge_index[1]], edge_attr], 1))


network = SparseNetwork(Layers())
model = isostep.wrap(network, {"X": VP(), "A": VP()}, predicts="noise", noise_at_one=True, nodes=[5, 7], features=2)
print(isostep.sample(model, 4, calls=10).to_pyg()[0])
