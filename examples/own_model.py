"""A model of your own, two components of different size: node features X (B, N, 3) and edge weights A (B, N, N).

python examples/own_model.py
"""

import torch

from isostep import GraphState, integrate
from isostep.control import Dvs, uniform
from isostep.noise import PhiloxNoise, standard_normal
from isostep.solver import Euler


class Rewire:
    """Nodes drift towards their neighbours' mean; edges tighten between similar nodes."""

    def drift(self, state, t):
        x, a = state["X"], state["A"]
        degree = a.abs().sum(2, keepdim=True) + 1
        likeness = torch.tanh(x @ x.mT)
        return {"X": a @ x / degree - x, "A": (likeness - a) / (1.05 - t)[:, None, None]}

    def diffusion(self, t):
        return {"X": 0.5, "A": 1.0 - 0.8 * t}


def start(graphs: int, nodes: int, seed: int = 0) -> GraphState:
    """Standard normal noise; half of the graphs have two nodes less (the rest is padding)."""
    mask = torch.ones(graphs, nodes)
    mask[::2, nodes - 2 :] = 0
    state = GraphState.of(mask, X=torch.zeros(graphs, nodes, 3), A=torch.zeros(graphs, nodes, nodes))
    return standard_normal(state, seed)


def main() -> None:
    for schedule in (uniform(100), Dvs(kappa=5.0, dt_base=0.01, reduction="graph")):
        solution = integrate(Rewire(), start(8, 6), schedule, Euler(), PhiloxNoise(1)).raise_failures()
        print(f"{type(schedule).__name__:8s} steps per graph: {solution.steps.tolist()}")
    print(solution.mean["A"][0].round(decimals=2))


if __name__ == "__main__":
    main()
