"""A graph reference without its graphs: histograms, NSPDK moments and hashes are enough for every metric.

Novelty then rests on the Weisfeiler-Leman colours alone. Where a graph's colours are all different (as in every planar
and block-model benchmark graph) equal colours mean isomorphic graphs; elsewhere two graphs that only a finer test can
tell apart count as the same.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from isostep.base.errors import InputError
from isostep.item.graph import Graph
from isostep.metric.archive import check_shapes, opened, store
from isostep.metric.graph_reference import SPLITS, GraphReference, Split, Tables
from isostep.metric.graph_statistics import STATISTICS
from isostep.metric.isomorphism import colours
from isostep.metric.nspdk import SLOTS, Moments, moments

VERSION = 1


class PlaceholderGraphs(Sequence[Graph]):
    """Stands for `size` graphs that were not stored; iteration gives those that `find` finds, where it is given."""

    def __init__(self, size: int, find: Callable[[], list[Graph]] | None = None) -> None:
        self.size, self.find = size, find

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index):
        raise InputError("the reference keeps statistics of its graphs, not the graphs; fit one from the dataset")

    def __iter__(self) -> Iterator[Graph]:
        return super().__iter__() if self.find is None else iter(self.find())


@dataclass(frozen=True, eq=False)
class GraphSummary(GraphReference):
    """`hashes[split]`: one number per graph, equal for isomorphic graphs."""

    hashes: dict[Split, np.ndarray] = field(default_factory=dict)
    nspdk: Moments | None = None

    @staticmethod
    def of(reference: GraphReference) -> GraphSummary:
        """All that the metrics need of a reference."""
        tables = {(split, name): reference.table(split, name) for split in SPLITS for name in STATISTICS}
        hashes = {split: isomorphism_hashes(reference.graphs(split)) for split in SPLITS}
        test, train = (PlaceholderGraphs(len(reference.graphs(split))) for split in SPLITS)
        return GraphSummary(test, train, tables, hashes, moments(reference), floors=reference.floors)  # type: ignore[arg-type]

    def among(self, generated: Sequence[Graph]) -> GraphSummary:
        """For novelty: the same reference, in which those of its graphs are at hand that occur among `generated`."""
        hashes = functools.cache(lambda: isomorphism_hashes(generated))

        def find(split: Split) -> list[Graph]:
            known = np.isin(hashes(), self.hashes[split])
            return [graph for graph, is_known in zip(generated, known, strict=True) if is_known]

        test, train = (PlaceholderGraphs(len(self.graphs(split)), functools.partial(find, split)) for split in SPLITS)
        return replace(self, test=test, train=train)

    def save(self, path: str | Path) -> None:
        """Write an `.npz` archive, atomically."""
        arrays = {"graph_summary": np.array(json.dumps({"version": VERSION, "floors": self.floors}))}
        for split in SPLITS:
            arrays[f"{split}/hashes"] = self.hashes[split]
            for name in STATISTICS:
                table = self.table(split, name)
                whole = table.dtype.kind in "iu"
                arrays[f"{split}/{name}"] = table.astype(np.min_scalar_type(table.max(initial=0))) if whole else table
        if self.nspdk is not None:
            arrays |= {f"nspdk/{key}": np.asarray(value) for key, value in self.nspdk._asdict().items()}
        store(path, arrays)

    @staticmethod
    def load(path: str | Path) -> GraphSummary:
        """Read what `save` wrote."""
        with opened(path) as arrays:
            meta = json.loads(str(arrays["graph_summary"]))
            if meta["version"] != VERSION:
                raise InputError(f"{path} has version {meta['version']}, expected {VERSION}; build it again")
            tables: Tables = {(split, name): arrays[f"{split}/{name}"] for split in SPLITS for name in STATISTICS}
            hashes: dict[Split, np.ndarray] = {split: arrays[f"{split}/hashes"] for split in SPLITS}
            nspdk = Moments(*(arrays[f"nspdk/{key}"] for key in Moments._fields))
            floors = {str(key): float(value) for key, value in meta["floors"].items()}
            for split in SPLITS:
                parts = {"hashes": hashes[split], **{name: tables[split, name] for name in STATISTICS}}
                check_shapes(path, parts, {"hashes": ("graphs",), **{name: ("graphs", name) for name in STATISTICS}})
            check_shapes(path, nspdk._asdict(), {"mean": (SLOTS,), "apart": (), "across": ()})
        test, train = (PlaceholderGraphs(len(hashes[split])) for split in SPLITS)
        return GraphSummary(test, train, tables, hashes, nspdk, floors=floors)  # type: ignore[arg-type]


def isomorphism_hashes(graphs: Iterable[Graph]) -> np.ndarray:
    """64 bits of BLAKE2b of the sorted colours."""
    digests = (hashlib.blake2b(np.sort(colours(graph)).tobytes(), digest_size=8).digest() for graph in graphs)
    return np.fromiter((int.from_bytes(digest, "big") for digest in digests), np.uint64)
