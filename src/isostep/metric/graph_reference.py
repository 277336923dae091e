"""What graph metrics compare with: test graphs (distributions) and training graphs (novelty, floor), with statistics.

Statistics are computed when first asked for and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from isostep.base.errors import InputError
from isostep.item.graph import Graph
from isostep.metric.base import Metric, evaluate_metric
from isostep.metric.graph_statistics import Statistic, describe

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
    _kept: dict[Hashable, Any] = field(default_factory=dict, kw_only=True)  # what metrics found of the reference alone

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

    def known(self, split: Split) -> tuple[Graph, ...]:
        """What novelty is told by."""
        if not self.graphs(split):
            raise InputError(
                "novelty needs training graphs, but the reference has none; name a dataset, or a file whose lines "
                "name their split"
            )
        return self.graphs(split)

    def check(self, metric: Any) -> None:
        """Refuse a metric that there is nothing for."""
        if split := getattr(metric, "against", None):
            self.known(split)

    def among(self, generated: Sequence[Graph]) -> GraphReference:
        """The reference for novelty of `generated`; this one has all its graphs at hand."""
        return self

    def table(self, split: Split, statistic: Statistic) -> np.ndarray:
        """The statistic of every graph of the split, one row each."""
        key = (split, statistic)
        if key not in self._tables:
            self._tables[key] = describe(self.graphs(split), statistic)
        return self._tables[key]

    def remember(self, key: Hashable, build: Callable[[], Any]) -> Any:
        """What `build` makes, computed once per reference."""
        if key not in self._kept:
            self._kept[key] = build()
        return self._kept[key]

    def save(self, path: str | Path) -> None:
        """Statistics are stored, not the graphs."""
        from isostep.metric.graph_summary import GraphSummary

        GraphSummary.of(self).save(path)


def nonempty(graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    return tuple(graph for graph in graphs if graph.n > 0)


def as_reference(reference: GraphReference | Sequence[Graph]) -> GraphReference:
    """A bare list of graphs is a test set."""
    return reference if isinstance(reference, GraphReference) else GraphReference.fit(reference)
