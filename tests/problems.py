"""SDEs with known answers, and the exact law of what a solver makes of them.

Data law of every component: each free entry is N(mu, s^2), independent. With a process x_t = m D + v^(1/2) z the exact
marginal is N(m mu, m^2 s^2 + v), so a run that starts from the marginal at t = 0 must end in the one at T.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from isostep.control import Controller
from isostep.loop import integrate
from isostep.network.analytic import Mixture
from isostep.noise import Draw, RecordedNoise, standard_normal
from isostep.process import VE, VP, Bridge, Process, ProcessSde, SubVP
from isostep.solver import Solver
from isostep.state import GraphState, Kind, expand

PROCESSES: dict[str, Process] = {
    "VP": VP(),
    "VE": VE(sigma_min=0.1),
    "subVP": SubVP(),
    "OU": Bridge(drift_coeff=-1.5),
    "BB": Bridge(),
}
SCORE = ("VP", "VE", "subVP")
# One component per process, so that one run tests all of them; the kinds vary on purpose.
KINDS: dict[str, Kind] = {"VP": "node", "VE": "edge", "subVP": "graph", "OU": "edge", "BB": "node"}
MEAN, STD = 0.7, 0.5


def seconds(*values: float) -> Tensor:
    """Times, float64."""
    return torch.tensor(values, dtype=torch.float64)


def draw(count: int, step: int = 0, first: int = 0, t0: float = 0.0, t1: float = 0.0) -> Draw:
    """Noise addresses of graphs first..first+count-1 at one step."""
    index = torch.arange(first, first + count)
    t = seconds(t0, t1)[:, None].expand(2, count)
    return Draw(index, torch.full_like(index, step), t[0], t[1])


def gaussians(names: Sequence[str] = tuple(PROCESSES), nodes: int = 3) -> Mixture:
    """A Gaussian law N(MEAN, STD^2) per free entry; one component for each named process, of the kind in KINDS."""
    shapes = {"node": (1, nodes, 2), "edge": (1, nodes, nodes), "graph": (1, 2 * nodes)}
    means = {n: torch.full(shapes[KINDS[n]], MEAN, dtype=torch.float64) for n in names}
    stds = {n: torch.full((1,), STD, dtype=torch.float64) for n in names}
    return Mixture(means, stds, torch.ones(1), {n: PROCESSES[n] for n in names}, {n: KINDS[n] for n in names})


def law(process: Process, t: float) -> tuple[float, float]:
    """Mean and standard deviation of an entry at time t."""
    m, std = process.marginal(seconds(t))
    return float(m * MEAN), float(((m * STD).square() + std.square()).sqrt())


def blank(model: Mixture, count: int, dtype=torch.float64) -> GraphState:
    """A state of zeros that fits the model."""
    nodes = max((mean.shape[1] for name, mean in model.means.items() if model.kinds[name] != "graph"), default=1)
    zeros = {n: torch.zeros(count, *mean.shape[1:], dtype=dtype) for n, mean in model.means.items()}
    return GraphState.of(torch.ones(count, nodes), model.kinds, **zeros)


def exact_start(model: Mixture, count: int, seed: int, dtype=torch.float64) -> GraphState:
    """Graphs drawn from the exact law at t = 0 (the VE prior N(0, 1) is not quite that)."""
    z = standard_normal(blank(model, count, dtype=dtype), seed)
    out = {}
    for name, process in model.processes.items():
        mean, std = law(process, 0.0)
        out[name] = z.project(name, mean + std * z[name])
    return z.replace(out)


def free(state: GraphState, name: str) -> Tensor:
    """(B, D) the independent entries of a component of graphs without padding: an edge once."""
    value = state[name]
    if state.kinds[name] != "edge":
        return value.flatten(1)
    i, j = torch.triu_indices(value.shape[1], value.shape[2], 1)
    return value[:, i, j].flatten(1)


def response(
    names: Sequence[str], solver: Solver, controller: Controller, steps: int
) -> dict[str, tuple[float, float]]:
    """Mean and variance of a solver's result on a fixed grid, exactly: no Monte Carlo.

    The Gaussian model is linear, so the result is an affine function of the start and of each step's noise. Graph 0
    starts from the mean and sees no noise; graph 1 starts one standard deviation higher; graph 2 + k gets the noise 1
    in step k. The differences to graph 0 are the coefficients, and their squares add up to the variance.
    """
    model = gaussians(names)
    state = blank(model, steps + 2)
    start = {}
    for name, process in model.processes.items():
        mean, std = law(process, 0.0)
        level = torch.full((steps + 2,), mean, dtype=torch.float64)
        level[1] += std
        start[name] = state.project(name, expand(level, state[name]).expand(state[name].shape))

    def impulse(like: GraphState, at: Draw, stream: int) -> dict[str, Tensor]:
        hit = (at.index - 2 == at.step).double()
        return {n: expand(hit, x).expand(x.shape) for n, x in like.components.items()}

    solution = integrate(model, state.replace(start), controller, solver, RecordedNoise(impulse))
    out = {}
    for name in names:
        x = free(solution.state, name)[:, 0]
        out[name] = float(x[0]), float((x[1:] - x[0]).square().sum())
    return out


class Chatter:
    """A deterministic 'network' whose nodes talk to their neighbours; works at any padding.

    Predicts the clean graph (bridges) or the score that belongs to that prediction (VP, VE, subVP).
    """

    def __init__(self, processes: Mapping[str, Process]) -> None:
        self.processes = processes

    def __call__(self, state: GraphState, t: Tensor) -> dict[str, Tensor]:
        x, a = state["X"], state["A"]
        pooled = (a @ x) / (1 + state.masks.sizes.to(x.dtype))[:, None, None]
        clean = {"X": (x + pooled).sin(), "A": torch.tanh(x @ x.mT + a)}
        clean["A"] = (clean["A"] + clean["A"].mT) / 2
        out = {}
        for name, process in self.processes.items():
            value = clean[name]
            if process.estimates == "score":
                m, std = process.marginal(t)
                value = (expand(m, value) * value - state[name]) / expand(std.square(), value)
            out[name] = state.project(name, value)
        return out

    @property
    def sde(self) -> ProcessSde:
        return ProcessSde(self, self.processes, raw=False)


def chatter(process: Process | None = None) -> Chatter:
    process = process or Bridge()
    return Chatter({"X": process, "A": process})


def noisy_graphs(sizes: Sequence[int], nodes: int | None = None, features: int = 2, seed: int = 0, first: int = 0):
    """Start states of graphs first, first + 1, ... of the given sizes; a graph's numbers do not depend on the rest."""
    nodes = nodes or max(sizes)
    mask = torch.arange(nodes)[None, :] < torch.tensor(sizes)[:, None]
    state = GraphState.of(mask, X=torch.zeros(len(sizes), nodes, features), A=torch.zeros(len(sizes), nodes, nodes))
    return standard_normal(state, seed, torch.arange(first, first + len(sizes)))
