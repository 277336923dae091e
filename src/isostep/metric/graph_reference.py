"""What graph metrics compare with: test graphs (distributions) and training graphs (novelty, floor), with statistics.

Statistics are computed when first asked for and kept. A reference is stored as an `.npz` archive without pickles: the
edges of a graph as gaps between the ascending numbers i n + j, so that a benchmark's 168 graphs take some 100 KB.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from isostep.base.errors import InputError
from isostep.base.files import replacing
from isostep.item.graph import Graph
from isostep.metric.archive import opened
from isostep.metric.base import Metric, evaluate_metric
from isostep.metric.graph_statistics import STATISTICS, Statistic, describe

VERSION = 1
Split = Literal["test", "train"]
SPLITS: tuple[Split, ...] = ("test", "train")
Tables = dict[tuple[Split, Statistic], np.ndarray]


@dataclass(frozen=True, eq=False)
class GraphReference:
    """Test and training graphs, none without nodes; `train` may be empty, then novelty and floor are not available.

    `floors`: values of the training graphs, by the definition of the metric, where they take long or need the graphs.
    """

    kind: ClassVar[str] = "graph"

    test: tuple[Graph, ...]
    train: tuple[Graph, ...] = ()
    _tables: Tables = field(default_factory=dict)
    floors: dict[str, float] = field(default_factory=dict, kw_only=True)

    @staticmethod
    def fit(
        test: Sequence[Graph], train: Sequence[Graph] | None = None, metrics: Sequence[Metric] = ()
    ) -> GraphReference:
        """Graphs without nodes are dropped, as the generated ones are. The training graphs' values of `metrics` (shares
        of valid, unique, connected graphs) are kept as floors; those of the MMDs follow from the statistics."""
        reference = GraphReference(nonempty(test), nonempty(train or ()))
        if not reference.test:
            raise InputError(f"the reference has no graph with nodes (of {len(test)} given); give at least one")
        for metric in metrics if reference.train else ():
            value = evaluate_metric(metric, reference.train, reference, resamples=0).value
            reference.floors[metric.definition] = value
        return reference

    def graphs(self, split: Split) -> tuple[Graph, ...]:
        return self.train if split == "train" else self.test

    def among(self, generated: Sequence[Graph]) -> GraphReference:
        """The reference for novelty of `generated`; this one has all its graphs at hand."""
        return self

    def table(self, split: Split, statistic: Statistic) -> np.ndarray:
        """The statistic of every graph of the split, one row each."""
        key = (split, statistic)
        if key not in self._tables:
            self._tables[key] = describe(self.graphs(split), statistic)
        return self._tables[key]

    def save(self, path: str | Path) -> None:
        """Write graphs and all statistics to an `.npz` archive, atomically."""
        arrays: dict[str, np.ndarray] = {"version": np.array(VERSION), "floors": np.array(json.dumps(self.floors))}
        for split in SPLITS:
            arrays |= {f"{split}/{key}": value for key, value in _pack(self.graphs(split)).items()}
            arrays |= {f"{split}/{name}": _smallest(self.table(split, name)) for name in STATISTICS}
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    @staticmethod
    def load(path: str | Path) -> GraphReference:
        """Read what `save` wrote."""
        with opened(path) as arrays:
            if int(arrays["version"]) != VERSION:
                raise InputError(f"{path} has version {int(arrays['version'])}, expected {VERSION}; fit it again")
            floors = {str(key): float(value) for key, value in json.loads(str(arrays["floors"])).items()}
            test, train = (_unpack(arrays, split) for split in SPLITS)
            tables: Tables = {(split, name): arrays[f"{split}/{name}"] for split in SPLITS for name in STATISTICS}
        reference = GraphReference(test, train, tables, floors=floors)
        if any(len(table) != len(reference.graphs(split)) for (split, _), table in tables.items()):
            raise InputError(f"{path} has statistics for another number of graphs; fit it again")
        return reference


def nonempty(graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    return tuple(graph for graph in graphs if graph.n > 0)


def as_reference(reference: GraphReference | Sequence[Graph]) -> GraphReference:
    """A bare list of graphs is a test set."""
    return reference if isinstance(reference, GraphReference) else GraphReference.fit(reference)


def _smallest(table: np.ndarray) -> np.ndarray:
    """Whole numbers in the smallest type that holds them."""
    if table.dtype.kind not in "iu":
        return table
    return table.astype(np.min_scalar_type(table.max(initial=0)))


def _pack(graphs: Sequence[Graph]) -> dict[str, np.ndarray]:
    codes = [graph.edges[:, 0] * graph.n + graph.edges[:, 1] for graph in graphs]
    gaps = np.concatenate([np.diff(code, prepend=0) for code in codes]) if codes else np.zeros(0, np.int64)
    return {
        "nodes": np.array([graph.n for graph in graphs], np.int64),
        "sizes": np.array([len(code) for code in codes], np.int64),
        "gaps": _smallest(gaps),
    }


def _unpack(arrays, split: Split) -> tuple[Graph, ...]:
    nodes, sizes, gaps = (arrays[f"{split}/{key}"] for key in ("nodes", "sizes", "gaps"))
    pieces = np.split(gaps.astype(np.int64), np.cumsum(sizes)[:-1]) if len(sizes) else []
    codes = [np.cumsum(piece) for piece in pieces]
    return tuple(
        Graph.of(int(n), np.stack([code // n, code % n], axis=1)) for n, code in zip(nodes, codes, strict=True)
    )
