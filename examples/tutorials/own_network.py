"""Your own network, from training loop to samples: python examples/tutorials/own_network.py

A small network learns to denoise rings of eight nodes; `isostep.wrap` makes a model of it, which every verb takes.
"""

import torch
from torch import nn

import isostep
from isostep.process import VP

NODES, PROCESS = 8, VP(beta_max=8.0)


class Denoiser(nn.Module):
    """Predicts the noise in A from each pair, its row and column, and the time."""

    def __init__(self, width: int = 64):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(4, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, state, t):
        a = state["A"]
        rows, two = a.mean(2, keepdim=True).expand_as(a), a @ a / NODES
        out = self.mlp(torch.stack([a, rows + rows.mT, two, t.view(-1, 1, 1).expand_as(a)], 3))[..., 0]
        return {"A": (out + out.mT) / 2 * state.masks.pairs}


def rings(count: int, generator: torch.Generator) -> torch.Tensor:
    """Rings with shuffled node numbers."""
    ring = torch.eye(NODES).roll(1, 0)
    order = torch.rand(count, NODES, generator=generator).argsort(1)
    return (ring + ring.mT)[order[:, :, None], order[:, None, :]]


def main(steps: int = 2000) -> None:
    torch.manual_seed(0)
    generator, network = torch.Generator().manual_seed(0), Denoiser()
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    mask = torch.ones(64, NODES)
    for step in range(steps):
        clean, t = rings(64, generator), torch.rand(64, generator=generator).double() * 0.99
        noise = torch.randn(64, NODES, NODES, generator=generator).triu(1)
        noise = noise + noise.mT
        at = PROCESS.marginal(t)
        noisy = at.mean[:, None, None].float() * clean + at.std[:, None, None].float() * noise
        out = network(isostep.GraphState.of(mask, A=noisy), t.float())["A"]
        loss = ((out - noise) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 500 == 0:
            print(f"step {step}: loss {loss.item():.3f}")

    model = isostep.wrap(network.eval(), {"A": PROCESS}, predicts="noise", nodes=NODES, name="rings")
    for calls in (10, 50):
        result = isostep.sample(model, 200, schedule="cosine", solver="exponential-2", calls=calls, seed=1)
        edges = sum(len(graph.edges) for graph in result.graphs) / len(result)
        print(f"{calls} calls: {edges:.1f} edges a graph (a ring has {NODES})")


if __name__ == "__main__":
    main()
