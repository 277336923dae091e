"""One undirected simple graph as data: a node count and its edges i < j; read from and written to JSON lines.

A line of a `.jsonl` file is `{"n": 5, "edges": [[0, 1], [1, 2]]}`; other keys are ignored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from isostep.base.checks import is_mapping
from isostep.base.errors import InputError, located
from isostep.base.files import numbered_lines
from isostep.base.limits import within
from isostep.item.base import Item, Picture

if TYPE_CHECKING:
    import networkx

MAX_NODES = 100_000  # a declared size beyond this is refused, not allocated


@dataclass(frozen=True, eq=False)
class Graph(Item):
    """`n` nodes 0..n-1 and `edges` of shape (m, 2), int64, each i < j, sorted, without repeats."""

    kind = "graph"
    file = "graphs.jsonl"

    n: int
    edges: NDArray[np.int64]

    @staticmethod
    def of(n: int, edges: Any) -> Graph:
        """Build from any iterable of pairs: orders, sorts, drops repeats; refuses loops and nodes outside 0..n-1."""
        if not _whole(n) or not 0 <= n <= MAX_NODES:
            raise InputError(f"n must be a whole number from 0 to {MAX_NODES}, got {n!r}")
        try:
            pairs: NDArray[Any] = np.asarray(edges if hasattr(edges, "__array__") else list(edges))
        except (TypeError, ValueError) as error:
            raise InputError(f"edges must be a list of pairs [i, j], got {str(edges)[:60]!r}") from error
        if pairs.shape[:1] == (0,):
            return Graph(int(n), np.zeros((0, 2), np.int64))
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
            raise InputError(f"edges must be pairs of whole numbers [i, j], got {str(edges)[:60]!r}")
        low, high = np.sort(pairs.astype(np.int64), axis=1).T
        if low.min() < 0 or high.max() >= n:
            raise InputError(f"an edge names node {high.max() if high.max() >= n else low.min()}, but n is {n}")
        if (low == high).any():
            raise InputError("an edge joins a node to itself; remove self-loops")
        return Graph(int(n), np.stack(np.divmod(np.unique(low * int(n) + high), int(n)), axis=1))

    @staticmethod
    def from_adjacency(adjacency: NDArray[Any]) -> Graph:
        """Edges where the upper triangle of a (n, n) array is non-zero."""
        if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
            raise InputError(f"an adjacency matrix must have shape (n, n), got {adjacency.shape}")
        return Graph(len(adjacency), np.argwhere(np.triu(adjacency, 1)).astype(np.int64))

    @staticmethod
    def from_networkx(graph: networkx.Graph[Any]) -> Graph:
        """Nodes are renumbered in their iteration order; self-loops, directions and parallel edges are dropped."""
        place = {node: i for i, node in enumerate(graph)}
        return Graph.of(len(place), [(place[u], place[v]) for u, v in graph.edges() if u != v])

    @classmethod
    def accepts(cls, value: Any) -> bool:
        return hasattr(value, "edges") and not isinstance(value, Item)

    @classmethod
    def given(cls, value: Any) -> Graph:
        return Graph.from_networkx(value)

    def usable(self) -> Graph:
        self.check_dense()
        return self

    def adjacency(self, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Dense symmetric 0/1 matrix (n, n)."""
        self.check_dense()
        dense = np.zeros((self.n, self.n), dtype)
        dense[self.edges[:, 0], self.edges[:, 1]] = 1
        dense[self.edges[:, 1], self.edges[:, 0]] = 1
        return dense

    def check_dense(self) -> None:
        """Refuse a graph whose matrix would be too large."""
        within("matrix_entries", self.n**2, f"a graph of {self.n} nodes has a matrix of {self.n**2:,} entries")

    def to_networkx(self) -> networkx.Graph[Any]:
        import networkx

        graph: networkx.Graph[Any] = networkx.Graph()
        graph.add_nodes_from(range(self.n))
        graph.add_edges_from(self.edges.tolist())
        return graph

    def to_line(self, index: int = 0) -> str:
        return json.dumps(self.fields(), separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str, index: int | None = None) -> Graph:
        try:
            record: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not JSON: {error}") from error
        if not is_mapping(record) or not {"n", "edges"} <= record.keys():
            raise InputError('expected {"n": ..., "edges": [[i, j], ...]}')
        if type(record["edges"]) is not list:
            raise InputError(f"edges must be a list of pairs [i, j], got {str(record['edges'])[:60]!r}")
        return Graph.of(record["n"], record["edges"])

    def fields(self) -> dict[str, Any]:
        return {"n": self.n, "edges": self.edges.tolist()}

    @staticmethod
    def columns(arrow: Any) -> list[tuple[str, Any]]:
        return [("n", arrow.int32()), ("edges", arrow.list_(arrow.list_(arrow.int32(), 2)))]

    def row(self) -> dict[str, Any]:
        return {"nodes": self.n, "edges": len(self.edges)}

    def picture(self) -> Picture:
        from isostep.item.picture import plain_graph_svg

        caption = f"{self.n} nodes, {len(self.edges)} edges"
        return Picture(plain_graph_svg(self, caption), caption)


def _whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def read_graphs(path: str | Path) -> list[Graph]:
    """All graphs of a `.jsonl` file; the first bad line raises with its number."""
    graphs: list[Graph] = []
    for number, line in numbered_lines(path):
        with located(f"{path}, line {number}"):
            graphs.append(Graph.from_line(line))
    return graphs
