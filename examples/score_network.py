"""A score model over node features X and edges A with VP noise, from a checkpoint to graphs: 20 calls a graph."""

import torch
from torch import nn

import isostep
from isostep.process import VP


class Score(nn.Module):
    def __init__(self):
        super().__init__()
        self.node, self.edge = nn.Linear(4, 3), nn.Linear(2, 1)

    def forward(self, state, t):  # X (B, N, 3), A (B, N, N), t (B,)
        x, a = state["X"], state["A"]
        t = t.view(-1, 1, 1, 1).expand(*a.shape, 1)
        x = self.node(torch.cat([x, t[:, :, 0]], 2)) * state.mask[..., None]
        a = self.edge(torch.cat([a[..., None], t], 3))[..., 0] * state.masks.pairs
        return {"X": x, "A": (a + a.mT) / 2}  # zero on padding and the diagonal, edges symmetric


network = Score()  # then network.load_state_dict(torch.load("mine.pt", weights_only=True))
processes = {"X": VP(beta_max=1.0), "A": VP(beta_max=1.0)}
model = isostep.wrap(network, processes, predicts="noise", noise_at_one=True, nodes={6: 3, 8: 1}, features=3)
print(isostep.sample(model, 16, calls=20, seed=1))
