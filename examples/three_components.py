"""Three components: atom features X, bonds E with two channels, positions P. Any names and number will do.

python examples/three_components.py
"""

import torch

from isostep import GraphState, integrate
from isostep.control import Dvs
from isostep.noise import PhiloxNoise, standard_normal
from isostep.solver import Heun


class Molecule3d:
    """Bonded atoms are pulled to unit distance; bonds follow the distances; features follow the bonds."""

    def drift(self, state, t):
        x, e, p = state["X"], state["E"], state["P"]
        gap = p[:, :, None] - p[:, None]  # (B, N, N, 3)
        distance = gap.norm(dim=-1, keepdim=True) + 0.1
        bond = e[..., :1].sigmoid()
        pull = (bond * (1 - distance) * gap / distance).sum(2) - p
        wanted = torch.cat([2 - distance, distance - 2], -1)
        return {"X": (bond * x[:, None]).mean(2) - x, "E": wanted - e, "P": pull}

    def diffusion(self, t):
        return {"X": 0.3, "E": 0.5, "P": 1.0 - 0.9 * t}


def start(graphs: int, nodes: int) -> GraphState:
    shapes = {"X": (graphs, nodes, 4), "E": (graphs, nodes, nodes, 2), "P": (graphs, nodes, 3)}
    blank = {name: torch.zeros(shape) for name, shape in shapes.items()}
    state = GraphState.of(torch.ones(graphs, nodes), {"P": "position"}, **blank)  # P: mean zero at every step
    return standard_normal(state)


def main() -> None:
    schedule = Dvs(kappa=20.0, dt_base=0.02)
    solution = integrate(Molecule3d(), start(4, 5), schedule, Heun(), PhiloxNoise(1), trace=1).raise_failures()
    trace = solution.trace
    print(f"{len(trace)} steps, {solution.batch_calls} network calls")
    for name in ("X", "E", "P"):
        early, late = trace[f"V_{name}"].chunk(2)
        print(f"V_{name}: first half {early.mean():8.2f}, second half {late.mean():8.2f}")


if __name__ == "__main__":
    main()
