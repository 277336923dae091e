"""Three components: elements X, bonds A and positions P, predicted clean by a network that turns with the molecule."""

import torch
from torch import nn

import isostep
from isostep.process import Bridge


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.element, self.pair = nn.Linear(4, 3), nn.Linear(2, 2)

    def forward(self, state, t):  # X (B, N, 3), A (B, N, N), P (B, N, 3)
        x, a, p = state["X"], state["A"], state["P"]
        gap = p[:, :, None] - p[:, None]
        bond, pull = self.pair(torch.stack([a, gap.square().sum(-1)], 3)).sigmoid().unbind(3)
        time = t[:, None, None].expand(*x.shape[:2], 1)
        x = (9 * self.element(torch.cat([x, time], 2))).softmax(2) * state.mask[..., None]
        near = pull * state.masks.pairs
        return {"X": x, "A": (bond + bond.mT) / 2 * state.masks.pairs, "P": (near[..., None] * gap).mean(2)}


both = {"features": {"X": 3, "P": 3}, "kinds": {"P": "position"}, "items": ("C", "N", "O")}
model = isostep.wrap(Denoiser(), {"X": Bridge(), "A": Bridge(), "P": Bridge()}, nodes=[4, 5, 6], **both)
result = isostep.sample(model, 4, calls=20)
print(result.smiles, result.tensors["P"].shape)
