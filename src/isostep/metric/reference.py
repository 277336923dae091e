"""Reference statistics, fitted once: the arrays each metric needs of a test set, and the training set's own values.

The floor of a metric is what n training molecules score against the same test set. It is stored for a few n and read
between them linearly in 1/n, the form of the bias of FCD and of a biased MMD.

Stored as `.npz` without pickles. What comes with the package, with each set's customary kernel, is in `reference_data`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from isostep.base.errors import InputError
from isostep.base.files import read_json
from isostep.base.progress import progress
from isostep.dataset.data import Dataset
from isostep.metric.archive import Shapes, check_shapes, opened, store
from isostep.metric.conformers import CONFORMER_METRICS, QUANTILES
from isostep.metric.fcd import FrechetDistance
from isostep.metric.graph_reference import GraphReference
from isostep.metric.molecules import (
    Arrays,
    FittedMetric,
    FragmentSimilarity,
    MoleculeMetric,
    MoleculeSet,
    NearestNeighbour,
    Novelty,
    ScaffoldSimilarity,
    Uniqueness,
)
from isostep.metric.nspdk import SLOTS, MoleculeNspdk
from isostep.metric.vun import BlockModel, Planar

MOLECULE_METRICS: tuple[MoleculeMetric, ...] = (
    Uniqueness(),
    Novelty(),
    FrechetDistance(),
    MoleculeNspdk(),
    ScaffoldSimilarity(),
    FragmentSimilarity(),
    NearestNeighbour(),
)
VALIDITY = {"planar": Planar(), "sbm": BlockModel()}
FLOOR_SIZES = (100, 300, 1000, 3000, 10_000)
FOLDER = Path(__file__).with_name("reference_data")
VERSION = 1
# What a stored reference must hold of each metric, before `compare` reads it.
SHAPES: Mapping[str, Shapes] = {
    "novel": {"gaps": ("n",)},
    "fcd": {"mean": (512,), "covariance": (512 * 513 // 2,)},
    "nspdk": {"mean": (SLOTS,)},
    "scaffold": {"hashes": ("n",), "counts": ("n",)},
    "fragment": {"hashes": ("n",), "counts": ("n",)},
    "snn": {"fingerprints": ("n", 128)},
    "bond_length": {"types": ("n",), "share": ("n",), "laws": ("n", len(QUANTILES))},
    "bond_angle": {"types": ("n",), "share": ("n",), "laws": ("n", len(QUANTILES))},
}


@dataclass(frozen=True, eq=False)
class MoleculeReference:
    """Statistics of a test set (`sizes["test"]` molecules) and, for novelty and floors, of a training set."""

    kind: ClassVar[str] = "molecule"

    statistics: Mapping[str, Arrays]
    floors: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    rdkit: str = ""
    extends: str = ""  # the reference of the package that it adds to

    @staticmethod
    def fit(
        test: Iterable[str],
        train: Iterable[str] | None = None,
        metrics: Iterable[MoleculeMetric] = MOLECULE_METRICS,
        floor_sizes: Sequence[int] = FLOOR_SIZES,
        seed: int = 0,
    ) -> MoleculeReference:
        """Fit the metrics to SMILES; those that need a training set are left out where there is none."""
        from rdkit import rdBase

        sets = {"test": MoleculeSet.of(test)}
        if train is not None:
            sets["train"] = MoleculeSet.of(train)
        if not all(map(len, sets.values())):
            raise InputError(f"the reference is empty: { {k: len(v) for k, v in sets.items()} }; give molecules")
        metrics = [metric for metric in metrics if metric.against in sets]
        statistics = {}
        with progress("reference statistics", len(metrics), "metrics") as advance:
            for metric in metrics:
                statistics[metric.name] = metric.fit(sets[metric.against])
                advance(note=metric.name)
        sizes = {split: len(molecules) for split, molecules in sets.items()}
        floors = {}
        if train is not None:
            order = np.random.default_rng(seed).permutation(len(sets["train"]))[: max(floor_sizes)]
            floors = _floors(metrics, statistics, MoleculeSet([sets["train"][i] for i in order]), floor_sizes)
        return MoleculeReference(statistics, floors, sizes, rdBase.rdkitVersion)

    def among(self, generated: object) -> MoleculeReference:
        """Statistics are enough: there is nothing to look up among generated items."""
        return self

    def check(self, metric: Any) -> None:
        """Refuse a metric that there is nothing for."""
        if isinstance(metric, FittedMetric):
            self.arrays_of(metric)

    def arrays_of(self, metric: FittedMetric) -> Arrays:
        if metric.name not in self.statistics:
            needed = metric.needs.format(against=metric.against)
            raise InputError(f"{metric.name}: this reference has no statistics of {needed}; fit it with one")
        return self.statistics[metric.name]

    def floor_of(self, metric: FittedMetric, n: int) -> float | None:
        """Read between the stored sizes; for more than the largest, its value; for fewer than the smallest, None."""
        if metric.name not in self.floors or n < self.floors[metric.name][0][0]:
            return None
        sizes, values = np.array(self.floors[metric.name]).T
        return float(np.interp(-1 / n, -1 / sizes, values))

    def joined(self, other: Reference) -> MoleculeReference:
        """With the statistics that `other` has besides."""
        assert isinstance(other, MoleculeReference)
        statistics, floors = {**other.statistics, **self.statistics}, {**other.floors, **self.floors}
        return MoleculeReference(statistics, floors, self.sizes, self.rdkit)

    def save(self, path: str | Path) -> None:
        """Write an `.npz` archive, atomically."""
        arrays = {f"{name}/{key}": value for name, part in self.statistics.items() for key, value in part.items()}
        meta = {
            "version": VERSION,
            "metrics": list(self.statistics),
            "floors": dict(self.floors),
            "sizes": dict(self.sizes),
            "rdkit": self.rdkit,
            "extends": self.extends,
        }
        store(path, {"molecule_reference": np.array(json.dumps(meta)), **arrays})

    @staticmethod
    def load(path: str | Path) -> MoleculeReference:
        """Read what `save` wrote."""
        with opened(path) as arrays:
            meta = json.loads(str(arrays["molecule_reference"]))
            if meta["version"] != VERSION:
                raise InputError(f"{path} has version {meta['version']}, expected {VERSION}; build it again")
            statistics: dict[str, dict[str, np.ndarray]] = {name: {} for name in meta["metrics"]}
            for file in arrays.files:
                name, _, key = file.partition("/")
                if key:
                    statistics[name][key] = arrays[file]
            for name in statistics.keys() & SHAPES.keys():
                check_shapes(path, statistics[name], SHAPES[name])
            floors = {name: [(int(n), float(value)) for n, value in rows] for name, rows in meta["floors"].items()}
            sizes = {str(split): int(size) for split, size in meta["sizes"].items()}
            return MoleculeReference(statistics, floors, sizes, str(meta["rdkit"]), str(meta.get("extends", "")))


Reference = MoleculeReference | GraphReference


def geometry_reference(data: Dataset) -> MoleculeReference:
    """Statistics of the test molecules' geometry, and what training molecules get."""
    from rdkit import rdBase

    from isostep.dataset.conformers import conformers

    test, train = conformers(data, "test"), conformers(data, "train", FLOOR_SIZES[2])
    statistics = {metric.name: metric.fit(test) for metric in CONFORMER_METRICS}
    floors = _floors(CONFORMER_METRICS, statistics, train, FLOOR_SIZES[:3])
    return MoleculeReference(statistics, floors, {"test": len(test), "train": len(train)}, rdBase.rdkitVersion)


def _floors(
    metrics: Iterable[FittedMetric], statistics: Mapping[str, Arrays], sample: Sequence[Any], sizes: Iterable[int]
) -> dict[str, list[tuple[int, float]]]:
    """Mean value over disjoint blocks of n training items each, for every n that there are enough for."""
    sizes = sorted({min(n, len(sample)) for n in sizes if n > 1})
    floors = {}
    for metric in metrics:
        if metric.against == "test":  # training items are not novel; that says nothing
            measure = metric.compare(sample, statistics[metric.name])
            floors[metric.name] = [(n, _mean_over_blocks(measure, n, len(sample))) for n in sizes]
    return floors


def _mean_over_blocks(measure, n: int, total: int) -> float:
    blocks = [np.arange(total) // n == b for b in range(min(total // n, 10))]
    return float(np.mean([measure(block / n) for block in blocks]))


class Shipped(NamedTuple):
    """A reference that comes with the package: its kind, customary kernel, and rule of validity."""

    kind: str
    kernel: Literal["tv", "emd"] | None = None
    valid: str | None = None


def shipped() -> dict[str, Shipped]:
    """References by name, from `reference_data/index.json`."""
    return {name: Shipped(**entry) for name, entry in read_json(FOLDER / "index.json").items()}


def reference_file(source: str | Path) -> Path:
    """By name, if it comes with the package, else a file."""
    name = str(source).lower().replace("_", "-")
    path = FOLDER / f"{name}.npz" if name in shipped() else Path(source)
    if not path.is_file():
        raise InputError(
            f"no reference {str(source)!r}: neither a file nor one of {', '.join(shipped())}; "
            "name a file of graphs (.jsonl) or molecules (.smi), or build one with `isostep reference build`"
        )
    return path
