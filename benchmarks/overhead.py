"""What the library adds to a sampling step, as a share of the network's time.

    python benchmarks/overhead.py [--graphs 1000] [--steps 20] [--json]

The network has the size of GDSS on QM9 (9 nodes, 4 atom types) with random weights. Medians over steps of processor
time: the network; one draw of noise; one step of 1/1000 on common Brownian paths, as studies take them; a whole step
with a network that returns at once and no noise, that is loop, controller, process and solver. Shares, because seconds
depend on the machine. Fails (exit 1) when noise, or loop and controller, exceed 2 % of the reference network's time;
the share of the inference program, several times faster, is printed beside it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch

from isostep.control import Controller, Dvs, uniform
from isostep.family.gdss import FAMILY
from isostep.loop import integrate
from isostep.network.gdss.reference import GdssNetwork
from isostep.noise import PREDICTOR, BrownianTree, Draw, PhiloxNoise, ZeroNoise, standard_normal
from isostep.process import VE, ProcessSde
from isostep.solver import Euler
from isostep.state import GraphState

NODES, FEATURES = 9, 4
NODE_NETWORK = {"model_type": "ScoreNetworkX", "max_feat_num": FEATURES, "depth": 2, "nhid": 16}
EDGE_NETWORK = {
    "model_type": "ScoreNetworkA",
    "max_feat_num": FEATURES,
    "max_node_num": NODES,
    "nhid": 16,
    "num_layers": 3,
    "num_linears": 3,
    "c_init": 2,
    "c_hid": 8,
    "c_final": 4,
    "adim": 16,
    "num_heads": 4,
    "conv": "GCN",
}
LIMITS = {"noise": 0.02, "loop and DVS per graph": 0.02, "loop and DVS per batch": 0.02, "loop and grid": 0.02}


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """Median processor time of one call; the first one does not count."""
    work()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def start(graphs: int) -> GraphState:
    x, adj = torch.zeros(graphs, NODES, FEATURES), torch.zeros(graphs, NODES, NODES)
    return standard_normal(GraphState.of(torch.ones(graphs, NODES), X=x, A=adj))


def draw(graphs: int) -> Draw:
    zeros = torch.zeros(graphs, dtype=torch.float64)
    return Draw(torch.arange(graphs), torch.zeros(graphs, dtype=torch.int64), zeros, zeros)


def path_seconds(state: GraphState, steps: int) -> float:
    """Median time of consecutive steps of 1/1000 on common Brownian paths."""
    noise, graphs = BrownianTree(1), state.mask.shape[0]
    t, times = torch.full((graphs,), 0.3, dtype=torch.float64), []
    for k in range(steps):
        at = Draw(torch.arange(graphs), torch.full((graphs,), k), t, t + 1 / 1000)
        times.append(time.process_time())
        noise.normal(state, at, PREDICTOR)
        times[-1] = time.process_time() - times[-1]
        t = at.t1
    return statistics.median(times[1:])


def step_seconds(sde: ProcessSde, state: GraphState, controller: Controller, steps: int) -> float:
    """Median time between the ends of consecutive steps."""
    ends: list[float] = []
    integrate(
        sde,
        state,
        controller,
        Euler(),
        ZeroNoise(),
        hooks=(lambda _: ends.append(time.process_time()),),
        max_steps=steps,
    )
    return statistics.median(b - a for a, b in itertools.pairwise(ends))


def measure(graphs: int, steps: int) -> dict[str, float]:
    torch.manual_seed(0)
    network = GdssNetwork(NODE_NETWORK, EDGE_NETWORK).eval()
    state, noise, here = start(graphs), PhiloxNoise(1), draw(graphs)
    output = {name: torch.zeros_like(x) for name, x in state.components.items()}
    quick = ProcessSde(lambda *_: output, {"X": VE(), "A": VE()})
    fast, t = FAMILY.fast_network(network), torch.zeros(graphs, dtype=torch.float64)
    base = 1 / (2 * steps)
    with torch.no_grad():
        return {
            "network": median_seconds(lambda: network(state["X"], state["A"], state.mask), max(5, steps // 2)),
            "fast network": median_seconds(lambda: fast(state["X"], state["A"], state.mask, t), steps),
            "noise": median_seconds(lambda: noise.normal(state, here, PREDICTOR), steps),
            "common paths": path_seconds(state, steps),
            "loop and DVS per graph": step_seconds(quick, state, Dvs(dt_base=base, reduction="graph"), steps),
            "loop and DVS per batch": step_seconds(quick, state, Dvs(dt_base=base), steps),
            "loop and grid": step_seconds(quick, state, uniform(2 * steps), steps),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=1000, help="batch size")
    parser.add_argument("--steps", type=int, default=20, help="steps to take the median over")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seconds = measure(options.graphs, options.steps)
    shares = {name: seconds[name] / seconds["network"] for name in LIMITS}
    if options.json:
        print(json.dumps({"graphs": options.graphs, "seconds": seconds, "shares": shares, "limits": LIMITS}))
    else:
        print(f"one step of {options.graphs} graphs            share of network   limit   of fast network")
        for name, value in seconds.items():
            row = f"{name:24s} {value * 1e3:8.2f} ms"
            if name in LIMITS:
                row += f" {shares[name]:13.2%} {LIMITS[name]:9.0%} {value / seconds['fast network']:13.2%}"
            elif name == "common paths":
                row += f" {value / seconds['network']:13.2%} {'':9} {value / seconds['fast network']:13.2%}"
            print(row)
    return int(any(shares[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
