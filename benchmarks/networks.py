"""CPU seconds of one network call: the fast programs against the definition followed layer by layer (tests/oracles).

    python benchmarks/networks.py [--json] [--cases gdss-qm9,...] [--compile] [--plots docs/images]

Random weights in the released shapes, graphs with the datasets' node counts, one thread, least of several runs. GFLOP
are those of the matrix products each program makes; `roofline_share` compares its rate with a 1024 x 1024 matrix
product timed in the same run; `work` is its share of the definition's GFLOP. Outputs must agree to 1e-5.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # tests.oracles is not installed

import torch
from tests.oracles.gdss_plain import gdss_plain
from tests.oracles.grum_plain import grum_plain
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from isostep.family import Family, find_family
from isostep.model.presets import find_preset
from isostep.network.fast import FastSettings

Batch = tuple[Tensor, Tensor, Tensor, Tensor]


def gdss(features: int, depth: int, width: int, layers: int, linears: int) -> dict[str, Any]:
    shared = {"max_feat_num": features, "nhid": width}
    return {
        "x": {**shared, "model_type": "ScoreNetworkX", "depth": depth},
        "adj": {
            **{**shared, "model_type": "ScoreNetworkA", "num_layers": layers, "num_linears": linears, "c_init": 2},
            **{"c_hid": 8, "c_final": 4, "adim": width, "num_heads": 4, "conv": "GCN"},
        },
    }


def grum(features: int, edges_out: int, de: int, ff_e: int, mlp: tuple[int, int], **head: Any) -> dict[str, Any]:
    return {
        "n_layers": 8,
        "input_dims": {"X": features, "E": 2, "y": 1},
        "output_dims": {"X": features, "E": edges_out, "y": 0},
        "hidden_dims": {"dx": 256, "de": de, "dy": 64, "n_head": 8, "dim_ffX": 256, "dim_ffE": ff_e, "dim_ffy": 128},
        "hidden_mlp_dims": {"X": mlp[0], "E": mlp[1], "y": 128},
        **head,
    }


EIGENVECTORS = {"type": ["eig1", "eig2"], "dim": [1, 1], "scale": 10}


@dataclass(frozen=True)
class Case:
    """Released network shapes, the preset with the dataset's node counts, padding, and graphs in the batch."""

    name: str
    params: dict[str, Any]
    nodes: int
    graphs: int
    features: int

    def network(self) -> nn.Module:
        torch.manual_seed(0)
        return self.family.network(self.params).eval()

    @property
    def family(self) -> Family:
        return find_family(self.name.split("-")[0])

    def plain(self, network: nn.Module) -> Callable[..., tuple[Tensor, Tensor]]:
        weights = dict(network.state_dict())
        if self.name.startswith("gdss"):
            return lambda x, a, mask, t: gdss_plain(self.params["x"], self.params["adj"], weights, x, a, mask.float())
        return lambda x, a, mask, t: grum_plain(self.params, weights, x, a, mask.float(), t)

    def batch(self, graphs: int | None = None, size: int | None = None) -> Batch:
        """Random states of graphs with the dataset's sizes, or all of one size without padding."""
        graphs = self.graphs if graphs is None else graphs
        generator = torch.Generator().manual_seed(0)
        nodes = size or self.nodes
        if size is None:
            counts = torch.tensor(find_preset(self.name).node_counts)
            drawn = counts[:, 1].double().multinomial(graphs, replacement=True, generator=generator)
            sizes = counts[drawn, 0]
        else:
            sizes = torch.full((graphs,), size)
        mask = torch.arange(nodes) < sizes[:, None]
        x = torch.randn(graphs, nodes, self.features, generator=generator) * mask[:, :, None]
        upper = torch.randn(graphs, nodes, nodes, generator=generator).triu(1) * 0.6
        adj = (upper + upper.mT) * mask[:, :, None] * mask[:, None, :]
        return x, adj, mask, torch.rand(graphs, generator=generator)


CASES = (
    Case("gdss-qm9", gdss(4, 2, 16, 3, 3), 9, 1000, 4),
    Case("gdss-ego-small", gdss(17, 2, 32, 5, 2), 18, 256, 17),
    Case("gdss-zinc250k", gdss(9, 2, 16, 6, 3), 38, 64, 9),
    Case("grum-qm9", grum(4, 2, 128, 256, (256, 256), model_type="transformer_mol", scale=3), 9, 256, 4),
    Case("grum-planar", grum(2, 1, 64, 64, (128, 64), model_type="transformer", feat_dict=EIGENVECTORS), 64, 2, 2),
)


def cpu_seconds(work: Callable[[], Any], repeats: int = 5, budget: float = 4.0) -> float:
    """Least process time of `repeats` runs, fewer if they take longer than `budget` together."""
    best, began = float("inf"), time.process_time()
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
        if time.process_time() - began > budget:
            break
    return best


def gflop(work: Callable[[], Any]) -> float:
    """Of the matrix products `work` makes."""
    addmm_in_place = {torch.ops.aten.addmm_: lambda _, a, b, **__: 2 * a[0] * a[1] * b[1]}
    with FlopCounterMode(display=False, custom_mapping=addmm_in_place) as counter:
        work()
    return counter.get_total_flops() / 1e9


def roofline() -> float:
    """GFLOP a CPU second of a large matrix product."""
    a = torch.randn(1024, 1024)
    return 2 * 1.024**3 / cpu_seconds(lambda: a @ a, repeats=15)


def backends() -> list[str]:
    try:
        import numba  # noqa: F401
    except ImportError:
        return ["torch"]
    return ["torch", "numba"]


def measure_plain(case: Case, peak: float) -> dict[str, Any]:
    plain, batch = case.plain(case.network()), case.batch()
    plain(*batch)
    seconds, done = cpu_seconds(lambda: plain(*batch), 4), gflop(lambda: plain(*batch))
    return row(case, "plain", seconds, seconds, done, done, peak, 0.0)


def measure(case: Case, plain: dict[str, Any], peak: float) -> list[dict[str, Any]]:
    """The fast programs beside the row of the plain one."""
    network, batch, rows = case.network(), case.batch(), [plain]
    expected = case.plain(network)(*batch)
    base, nominal = plain["seconds"], plain["gflops"] * plain["seconds"]
    for backend in backends():
        fast = case.family.fast_network(network, FastSettings(backend))
        error = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(fast(*batch), expected, strict=True))
        assert error <= 1e-5, f"{case.name} {backend}: outputs differ by {error}"
        seconds = cpu_seconds(lambda fast=fast: fast(*batch), 7)
        # The counter does not see GDSS' compiled products, which are those of the torch program.
        counted = case.family.fast_network(network, FastSettings("torch")) if case.name.startswith("gdss") else fast
        rows.append(row(case, backend, seconds, base, gflop(lambda f=counted: f(*batch)), nominal, peak, error))
    return rows


def row(
    case: Case, backend: str, seconds: float, base: float, done: float, nominal: float, peak: float, error: float
) -> dict[str, Any]:
    return {
        "name": f"{case.name} {backend}",
        "graphs": case.graphs,
        "seconds": seconds,
        "ratio": base / seconds,
        "gflops": done / seconds,
        "roofline_share": done / seconds / peak,
        "work": done / nominal,
        "error": error,
    }


def compiled(case: Case) -> dict[str, Any]:
    """torch.compile of the torch program on one group of equal graphs, beside the same program without it."""
    network, batch = case.network(), case.batch(128, case.nodes)
    program: Any = case.family.fast_network(network, FastSettings("torch")).program(batch[0])
    inputs = (batch[0], batch[1], None, batch[3], 0)
    eager = cpu_seconds(lambda: program(*inputs))
    start = time.perf_counter()
    faster = torch.compile(lambda *args: program(*args))
    faster(*inputs)
    took = time.perf_counter() - start
    seconds = cpu_seconds(lambda: faster(*inputs))
    return {"name": f"{case.name} torch.compile", "compile_seconds": took, "seconds": seconds, "ratio": eager / seconds}


def plots(folder: Path) -> None:
    """Cost per graph against batch size (QM9) and against graph size, as two small SVG files."""
    batches, sizes = (1, 4, 16, 64, 256, 1024), (8, 16, 32, 64, 128, 192)
    qm9, ego = CASES[0], CASES[1]
    by_batch = {b: curve(qm9, b, [qm9.batch(n) for n in batches]) for b in ["plain", *backends()]}
    draw(folder / "cost-batch.svg", batches, by_batch, "graphs in the batch (GDSS, QM9)")
    graphs = [max(1, 8192 // n**2) for n in sizes]
    by_size = {
        b: curve(ego, b, [ego.batch(g, n) for g, n in zip(graphs, sizes, strict=True)]) for b in ["plain", *backends()]
    }
    draw(folder / "cost-size.svg", sizes, by_size, "nodes (GDSS, Ego-small network, no padding)")
    print(json.dumps({"batches": batches, "by_batch": by_batch, "sizes": sizes, "by_size": by_size}))


def curve(case: Case, backend: str, batches: list[Batch]) -> list[float]:
    """Milliseconds per graph."""
    network = case.network()
    run: Any = case.plain(network) if backend == "plain" else case.family.fast_network(network, FastSettings(backend))
    run(*batches[0])
    return [cpu_seconds(lambda b=b: run(*b), 4, 1.0) * 1000 / len(b[0]) for b in batches]


def draw(path: Path, at: tuple[int, ...], curves: dict[str, list[float]], label: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(4.5, 3))
    for name, values in curves.items():
        axes.loglog(at, values, "o-", label=name, markersize=3)
    axes.set(xlabel=label, ylabel="CPU ms per graph", xticks=at, xticklabels=at)
    axes.minorticks_off()
    axes.legend(frameon=False, loc="upper left", ncols=2 if len(curves) > 3 else 1)
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cases", default=",".join(case.name for case in CASES))
    parser.add_argument("--compile", action="store_true", help="also torch.compile (minutes)")
    parser.add_argument("--plots", type=Path, help="folder for cost-batch.svg and cost-size.svg; measures these only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    if options.plots:
        plots(options.plots)
        return
    peak = roofline()
    chosen = [case for case in CASES if case.name in options.cases.split(",")]
    # The fast programs make the process keep freed memory, which would help the plain ones, too: these come first.
    plain = [measure_plain(case, peak) for case in chosen]
    rows = [result for case, each in zip(chosen, plain, strict=True) for result in measure(case, each, peak)]
    if options.compile:
        rows += [compiled(case) for case in chosen if case.name.startswith("gdss")]
    if options.json:
        print(json.dumps({"roofline_gflops": peak, "rows": rows}))
        return
    print(f"roofline {peak:.0f} GFLOP a CPU second")
    for each in rows:
        print(
            "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{v:<24}" for k, v in each.items() if k != "graphs")
        )


if __name__ == "__main__":
    main()
