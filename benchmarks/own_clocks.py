"""What a clock per graph could gain at most: every graph on the grid of its own decisions, known in advance.

    python benchmarks/own_clocks.py grum-planar-small --calls 10 --eta 2 --temperature X=.85,A=.45 --seeds 5000-5004

A pilot follows each graph with 100 calls; its decisions give it a grid of its own, which it then takes on the same
Brownian path. `common` is the grid of the mean over the graphs, as in the schedule `decisions`; `half` lies between.
No clock that looks at the past only can know more.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev

import numpy as np
import torch
from torch import Tensor

import isostep
from isostep.control.decisions import Decisions
from isostep.control.grid import Grid, GridMemory, uniform
from isostep.control.pilot import Pilot
from isostep.geometry import decision_angle, squared_norm, undecided
from isostep.loop import integrate
from isostep.model.model import Model
from isostep.noise import BrownianTree
from isostep.sampling.watch import Watched
from isostep.settings.resolve import make_solver, resolve
from isostep.solver.base import Solver
from isostep.state import GraphState
from isostep.study.plan import parse_seeds

PILOT_STEPS = 100
SMOOTH = 8  # of the pilot's steps


@dataclass
class WatchedGraphs(Watched):
    """What `Watched` notes as a mean, of every graph: speed of its decisions and its open entries, (B,) a step."""

    speeds: list[Tensor] = field(default_factory=list[Tensor])
    open: list[Tensor] = field(default_factory=list[Tensor])

    def _note(self, clean: GraphState, t: float) -> None:
        scaled = {name: clean[name] * scale for name, scale in self.levels.items()}
        angles = {name: decision_angle(value) for name, value in scaled.items()}
        share = {name: 0.5 if clean.kinds[name] == "edge" else 1.0 for name in scaled}
        self.t.append(t)
        self.open.append(sum(share[n] * undecided(value).flatten(1).sum(1) for n, value in scaled.items()))  # type: ignore[arg-type]
        if self._angles:
            moved = sum(squared_norm(angles[name] - before) for name, before in self._angles.items())
            self.speeds.append(moved / (self.t[-1] - self.t[-2]))  # type: ignore[arg-type]
        self._angles = angles


@dataclass(frozen=True)
class GridOfEach(Grid):
    rows: tuple[tuple[float, ...], ...] = ()

    def start(self, t: Tensor, components: int, t_end: float) -> GridMemory:
        times = torch.tensor(self.rows, dtype=t.dtype) * t_end
        return GridMemory(times, times.diff(dim=1))


def grids(model: Model, solver: Solver, index: Tensor, seed: int, calls: int) -> dict[str, Grid]:
    watched = WatchedGraphs(model.sde, getattr(model.decoder, "levels", {}))
    integrate(watched, model.prior(index, seed), uniform(PILOT_STEPS), solver, BrownianTree(seed), index)
    t, speed, still = np.array(watched.t), _numpy(watched.speeds), _numpy(watched.open)
    middle, still = (t[1:] + t[:-1]) / 2, (still[:, 1:] + still[:, :-1]) / 2
    padded = np.pad(speed, ((0, 0), (SMOOTH // 2, SMOOTH - 1 - SMOOTH // 2)), mode="edge")
    own = np.lib.stride_tricks.sliding_window_view(padded, SMOOTH, axis=1).mean(-1)

    def grid(rate: np.ndarray, entries: np.ndarray) -> tuple[float, ...]:
        rates = {"all": tuple(rate.tolist())}
        return Decisions().times(Pilot(tuple(middle.tolist()), rates, 1, 1, rates, tuple(entries.tolist())), calls)

    def each(rates: np.ndarray) -> Grid:
        even = tuple(i / calls for i in range(calls + 1))
        return GridOfEach(even, rows=tuple(grid(rate, entries) for rate, entries in zip(rates, still, strict=True)))

    common = speed.mean(0)
    return {"common": Grid(grid(common, still.mean(0))), "half": each((own + common) / 2), "own": each(own)}


def _numpy(steps: Sequence[Tensor]) -> np.ndarray:
    return torch.stack(list(steps), 1).double().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--eta", type=float, default=1.0)
    parser.add_argument("--temperature", default="1")
    parser.add_argument("--metrics", default="valid,degree,clustering,orbit,spectral,novel")
    parser.add_argument("-n", "--number", type=int, default=256)
    parser.add_argument("--seeds", default="5000-5004")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = isostep.load_model(options.model)
    noise = {"eta": options.eta, "temperature": _by_name(options.temperature)}
    solver = make_solver(resolve(model.info.sampler, solver="exponential-2", solver_options=noise))
    values: dict[str, dict[str, list[float]]] = {}
    for seed in parse_seeds(options.seeds):
        index = torch.arange(options.number)
        for name, grid in grids(model, solver, index, seed, options.calls).items():
            solution = integrate(model, model.prior(index, seed), grid, solver, BrownianTree(seed), index)
            found = isostep.evaluate(
                model.decode(solution.mean), reference=model.info.dataset, metrics=options.metrics.split(",")
            )
            for metric, value in found.values.items():
                values.setdefault(metric, {}).setdefault(name, []).append(value.value)
    for metric, arms in values.items():
        print(
            f"{metric:12}" + "".join(f"  {name} {mean(each):.5f}{_against(arms, name)}" for name, each in arms.items())
        )


def _against(arms: dict[str, list[float]], name: str) -> str:
    """Paired difference to the common grid and its standard error."""
    apart = [a - b for a, b in zip(arms[name], arms["common"], strict=True)]
    return (
        "" if name == "common" or len(apart) < 2 else f" ({mean(apart):+.5f} +- {stdev(apart) / len(apart) ** 0.5:.5f})"
    )


def _by_name(text: str) -> float | dict[str, float]:
    return {k: float(v) for k, v in (p.split("=") for p in text.split(","))} if "=" in text else float(text)


if __name__ == "__main__":
    main()
