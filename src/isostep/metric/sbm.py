"""Blocks of a graph by minimum description length of the degree-corrected stochastic block model.

For a partition b of N nodes with degrees k into B blocks of n_r nodes, with e_rs edge ends between blocks (e_rr twice
the edges inside, e_r = sum_s e_rs) and E edges, the description length is, up to a constant of the graph,

    S = sum_r ln e_r! - sum_{r<s} ln e_rs! - sum_r ln e_rr!!          graph given k, e, b
      + sum_r [ln q(e_r, n_r) + ln n_r! - sum_k ln eta_rk!]           degrees given e, b
      + ln C(B(B+1)/2 + E - 1, E)                                     edge counts
      + ln C(N - 1, B - 1) - sum_r ln n_r!                            partition

(microcanonical form, Peixoto, Phys. Rev. E 95, 012317), with eta_rk the nodes of degree k in block r and q(m, n) the
partitions of m into at most n parts. `infer_blocks` lowers S by single-node moves and block merges, from many blocks
down to one, and keeps the best partition on the way.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.special import gammaln

from isostep.base.errors import InputError, MissingPackageError
from isostep.base.progress import progress
from isostep.item.graph import Graph

Inference = Literal["graph-tool", "own"]

FIRST_BLOCKS = 20
SWEEPS = 2  # per number of blocks; most nodes have settled by then
ISOLATED = "-I"  # else the other interpreter would import what stands in the current folder
MAX_EDGES = 30_000  # q(m, n) of more edge ends leaves the range of float64


def infer(graphs: Sequence[Graph], seed: int, inference: Inference) -> tuple[np.ndarray, ...]:
    """Block labels of every graph by the named program (see `choose_inference`); the last answers are remembered."""
    return _infer(tuple((graph.n, graph.edges.tobytes()) for graph in graphs), seed, inference)


@lru_cache(maxsize=8)
def _infer(keys: tuple[tuple[int, bytes], ...], seed: int, inference: Inference) -> tuple[np.ndarray, ...]:
    graphs = [Graph(n, np.frombuffer(edges, np.int64).reshape(-1, 2)) for n, edges in keys]
    if inference == "graph-tool":
        return _infer_by_graph_tool(graphs, seed)
    found = []
    with progress("inferring blocks", len(graphs), "graphs") as advance:
        for graph in graphs:
            found.append(infer_blocks(graph, seed))
            advance()
    return tuple(found)


def infer_blocks(graph: Graph, seed: int = 0) -> np.ndarray:
    """Block 0..B-1 of every node, by a search from a random partition."""
    if len(graph.edges) > MAX_EDGES:
        raise InputError(f"block inference takes graphs of up to {MAX_EDGES} edges, got {len(graph.edges)}")
    rng = np.random.default_rng(seed)
    partition = Partition(graph, rng.integers(FIRST_BLOCKS, size=graph.n))
    best, labels = np.inf, partition.labels
    while True:
        partition.settle(rng)
        if (length := partition.length()) < best:
            best, labels = length, partition.labels.copy()
        if partition.blocks <= 1:
            return labels
        partition.merge()


class Partition:
    """Labels and the counts that S needs, kept up to date under moves and merges; no block is empty."""

    def __init__(self, graph: Graph, labels: np.ndarray):
        self.n, self.edges = graph.n, len(graph.edges)
        self.adjacency = graph.adjacency().astype(np.int64)
        self.degrees = self.adjacency.sum(1)
        ends = np.arange(2 * max(self.edges, self.n) + 1)
        self.ln_factorial = gammaln(ends + 1)
        self.ln_double = gammaln(ends / 2 + 1) + ends / 2 * np.log(2)  # of even numbers: ln e!!
        self.ln_q = _ln_partitions(_round_up(2 * self.edges, 1024), _round_up(self.n, 64))
        self._count(labels)

    def _count(self, labels: np.ndarray) -> None:
        self.labels = np.unique(labels, return_inverse=True)[1]
        member = np.eye(self.labels.max(initial=-1) + 1, dtype=np.int64)[self.labels]
        self.toward = self.adjacency @ member  # (N, B): edges of each node to each block
        self.e = member.T @ self.toward
        self.sizes = member.sum(0)
        self.eta = np.zeros((self.blocks, self.degrees.max(initial=0) + 1), np.int64)
        np.add.at(self.eta, (self.labels, self.degrees), 1)

    @property
    def blocks(self) -> int:
        return len(self.sizes)

    def length(self) -> float:
        """S."""
        lf, e, sizes, eta, blocks = self.ln_factorial, self.e, self.sizes, self.eta, self.blocks
        ends, inside = e.sum(1), np.diag(e)
        graph = lf[ends].sum() - (lf[e].sum() - lf[inside].sum()) / 2 - self.ln_double[inside].sum()
        degrees = self.ln_q[sizes, ends].sum() - lf[eta].sum()  # ln n_r! cancels against that of the partition
        kinds = blocks * (blocks + 1) / 2
        edges = gammaln(kinds + self.edges) - gammaln(self.edges + 1) - gammaln(kinds)
        return float(graph + degrees + edges + gammaln(self.n) - gammaln(blocks) - gammaln(self.n - blocks + 1))

    def settle(self, rng: np.random.Generator) -> None:
        """Sweep over the nodes until none moves."""
        for _ in range(SWEEPS):
            if sum(self._best_move(i) for i in rng.permutation(self.n)) == 0:
                return

    def _best_move(self, i: int) -> bool:
        """Put node i where S is least; True if it moved. The last node of a block stays: leaving it is a merge."""
        r = self.labels[i]
        if self.sizes[r] == 1:
            return False
        s = int(np.argmin(self._costs(i, r)))
        if s == r:
            return False
        toward, d = self.toward[i], self.degrees[i]
        for block, sign in ((r, -1), (s, 1)):
            self.e[block] += sign * toward
            self.e[:, block] += sign * toward
            self.toward[:, block] += sign * self.adjacency[i]
            self.sizes[block] += sign
            self.eta[block, d] += sign
        self.labels[i] = s
        return True

    def _costs(self, i: int, r: int) -> np.ndarray:
        """What S grows by when node i, taken out of its block r, is put into each block."""
        lf, ld, toward, d = self.ln_factorial, self.ln_double, self.toward[i], self.degrees[i]
        rest, ends, sizes, eta = self.e.copy(), self.e.sum(1), self.sizes.copy(), self.eta[:, d].copy()
        rest[r] -= toward
        rest[:, r] -= toward
        ends[r] -= d  # e_r is the sum of the degrees in r, whatever the other nodes' blocks
        sizes[r] -= 1
        eta[r] -= 1
        inside, own = np.diag(rest), np.arange(self.blocks)
        gain = lf[rest + toward] - lf[rest]
        graph = lf[ends + d] - lf[ends] - gain.sum(1) + gain[own, own] - ld[inside + 2 * toward] + ld[inside]
        return graph + self.ln_q[sizes + 1, ends + d] - self.ln_q[sizes, ends] - np.log(eta + 1)

    def merge(self) -> None:
        """Join the two blocks whose union has the least S."""
        lf, ld, ln_q, e, eta = self.ln_factorial, self.ln_double, self.ln_q, self.e, self.eta
        ends, inside, sizes = e.sum(1), np.diag(e), self.sizes
        alone = lf[ends] + ln_q[sizes, ends] - lf[eta].sum(1) - lf[e].sum(1) + lf[inside] - ld[inside]
        r, s = np.triu_indices(self.blocks, 1)
        pair, both = np.arange(len(r)), e[r] + e[s]  # (pairs, B): edge ends between the union and each block
        across = lf[both].sum(1) - lf[both[pair, r]] - lf[both[pair, s]] + ld[inside[r] + inside[s] + 2 * e[r, s]]
        union = (
            lf[ends[r] + ends[s]] + ln_q[sizes[r] + sizes[s], ends[r] + ends[s]] - lf[eta[r] + eta[s]].sum(1) - across
        )
        growth = union - alone[r] - alone[s] - lf[e[r, s]]  # the edges between r and s stand in both of `alone`
        best = np.argmin(growth)
        self._count(np.where(self.labels == s[best], r[best], self.labels))


def _round_up(number: int, step: int) -> int:
    """Few distinct table sizes, so that graphs of similar size share one."""
    return -(-number // step) * step


@lru_cache(maxsize=8)
def _ln_partitions(ends: int, nodes: int) -> np.ndarray:
    """ln q(m, n) at [n, m]; -inf where m > 0 ends would have no node to belong to."""
    q = np.zeros((nodes + 1, ends + 1))
    q[0, 0] = 1
    for n in range(1, nodes + 1):
        rows = _round_up(ends + 1, n) // n
        # q(m, n) = q(m, n - 1) + q(m - n, n) is a running sum with stride n.
        q[n] = np.pad(q[n - 1], (0, rows * n - ends - 1)).reshape(rows, n).cumsum(0).ravel()[: ends + 1]
    with np.errstate(divide="ignore"):
        return np.log(q)


@lru_cache(maxsize=1)
def graph_tool_python() -> str | None:
    """An interpreter that can import graph-tool: $ISOSTEP_GRAPH_TOOL, this one, or the system's."""
    named = os.environ.get("ISOSTEP_GRAPH_TOOL")
    for python in [named] if named else [sys.executable, shutil.which("python3", path=os.defpath)]:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            check = [python, ISOLATED, "-c", "import graph_tool.inference"]
            if python and subprocess.run(check, capture_output=True, timeout=120).returncode == 0:
                return python
    return None


def choose_inference(wanted: Inference | Literal["auto"]) -> Inference:
    """ "auto" is graph-tool where an interpreter has it, else the search of this module."""
    if wanted == "own" or (wanted == "auto" and graph_tool_python() is None):
        return "own"
    if graph_tool_python() is None:
        raise MissingPackageError(
            "graph-tool was asked for, but no interpreter has it: install your system's package (Debian: "
            "python3-graph-tool), set ISOSTEP_GRAPH_TOOL to its python, or use the inference 'own'"
        )
    return "graph-tool"


def _infer_by_graph_tool(graphs: Sequence[Graph], seed: int) -> tuple[np.ndarray, ...]:
    request = {"seed": seed, "graphs": [{"n": graph.n, "edges": graph.edges.tolist()} for graph in graphs]}
    script = Path(__file__).with_name("graph_tool_process.py")
    command = [graph_tool_python() or sys.executable, ISOLATED, str(script)]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"graph-tool failed ({reason}); use the inference 'own'")
    return tuple(np.array(labels) for labels in json.loads(done.stdout))
