"""What is measured on each kind of item, and against what. A further kind: one more class here, entered in `SUITES`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from isostep.base.errors import InputError
from isostep.dataset import load
from isostep.dataset.data import Dataset, GraphDataset
from isostep.dataset.read import all_test, read_graph_file
from isostep.item import Conformer, Graph, Molecule
from isostep.metric.archive import opened
from isostep.metric.base import Metric
from isostep.metric.conformers import CONFORMER_METRICS
from isostep.metric.graph_reference import GraphReference
from isostep.metric.graph_statistics import Statistic
from isostep.metric.graph_summary import GraphSummary
from isostep.metric.items import Items, gather, is_item_file
from isostep.metric.mmd import GraphMMD, Kernel
from isostep.metric.molecules import MoleculeSet, Validity
from isostep.metric.nspdk import GraphNspdk
from isostep.metric.reference import (
    MOLECULE_METRICS,
    VALIDITY,
    MoleculeReference,
    Reference,
    Shipped,
    geometry_reference,
    reference_file,
    shipped,
)
from isostep.metric.vun import VUN, BlockModel, Connected, Novel, Planar, Unique, Valid

MMDS: tuple[Statistic, ...] = ("degree", "clustering", "orbit", "spectral")


class Suite(ABC):
    """The metrics of one kind."""

    against: ClassVar[str]  # the kind of reference that it needs
    usual: ClassVar[tuple[str, ...]]  # of a study that names none

    def kernel(self, entry: Shipped) -> Kernel | None:
        """The customary one of the MMDs; None where there is no choice."""
        return None

    @abstractmethod
    def metrics(self, corrected: bool, kernel: Kernel | None, entry: Shipped) -> Sequence[Any]:
        """All that apply. `corrected`: validity was judged before correction."""

    @abstractmethod
    def generated(self, items: Items, workers: int, home: Path | None) -> Callable[[str], Sequence[Any]]:
        """What the metric of a name is given of the items; `home` keeps what is costly."""

    @abstractmethod
    def reference(self, items: Sequence[Any]) -> Reference:
        """Statistics of items that are all there is to compare with."""

    @abstractmethod
    def fit(self, data: Dataset) -> Reference:
        """Statistics of the test split, with the training split for novelty and floors."""


class GraphSuite(Suite):
    against = Graph.kind
    usual = MMDS

    def kernel(self, entry: Shipped) -> Kernel:
        return entry.kernel or "tv"

    def metrics(self, corrected: bool, kernel: Kernel | None, entry: Shipped) -> list[Metric]:
        metrics: list[Any] = [GraphMMD(name, kernel or self.kernel(entry)) for name in MMDS]
        metrics += [GraphNspdk(), Connected(), Unique(), Novel()]
        if rule := VALIDITY.get(entry.valid or ""):
            validity = JudgedOnce(rule)
            metrics += [Valid(validity), VUN(validity)]
        return metrics

    def generated(self, items: Items, workers: int, home: Path | None) -> Callable[[str], Sequence[Any]]:
        return lambda key: items.members

    def reference(self, items: Sequence[Graph]) -> GraphReference:
        return GraphReference.fit(items)

    def fit(self, data: Dataset) -> GraphReference:
        rule = VALIDITY.get(shipped().get(data.name, Shipped(data.kind)).valid or "")
        shares = [Connected(), Unique(), *([Valid(rule)] if rule else [])]
        return GraphSummary.of(GraphReference.fit(data.split("test"), data.split("train"), shares))


class MoleculeSuite(Suite):
    against = Molecule.kind
    usual = ("valid", "fcd", "nspdk")

    def metrics(self, corrected: bool, kernel: Kernel | None, entry: Shipped) -> list[Any]:
        return [Validity(corrected), *MOLECULE_METRICS]

    def generated(self, items: Items, workers: int, home: Path | None) -> Callable[[str], Sequence[Any]]:
        special = {metric.name: items.members for metric in CONFORMER_METRICS}
        special["valid"] = [molecule.valid for molecule in items.members]
        molecules = MoleculeSet([molecule.smiles for molecule in items.members if molecule.smiles], workers, home)
        return lambda key: special.get(key, molecules)

    def reference(self, items: Sequence[Molecule]) -> MoleculeReference:
        return MoleculeReference.fit([molecule.smiles for molecule in items if molecule.smiles])

    def fit(self, data: Dataset) -> MoleculeReference:
        fitted = MoleculeReference.fit(data.split("test"), data.split("train"))
        return geometry_reference(data).joined(fitted) if "positions" in data.arrays else fitted


class ConformerSuite(MoleculeSuite):
    """Molecules in space are measured as molecules, and by their geometry."""

    usual = (*MoleculeSuite.usual, "bond_length", "bond_angle", "no_clash")

    def metrics(self, corrected: bool, kernel: Kernel | None, entry: Shipped) -> list[Any]:
        return [*super().metrics(corrected, kernel, entry), *CONFORMER_METRICS]


SUITES: dict[str, Suite] = {
    Graph.kind: GraphSuite(),
    Molecule.kind: MoleculeSuite(),
    Conformer.kind: ConformerSuite(),
}


def suite_of(kind: str) -> Suite:
    if kind not in SUITES:
        raise InputError(f"there are no metrics for {kind}s; those with metrics are {', '.join(SUITES)}")
    return SUITES[kind]


def check_metrics(kind: str, reference: Reference, metrics: Iterable[str], name: str, rule: str | None = None) -> None:
    """Refuse, before anything is generated, a reference of another kind, and metrics that this kind or this reference
    does not have."""
    suite = suite_of(kind)
    if suite.against != reference.kind:
        raise InputError(
            f"the model makes {kind}s, but the reference {name} holds {reference.kind}s; name another with --reference"
        )
    known = {metric.name: metric for metric in suite.metrics(True, None, Shipped(reference.kind, valid=rule))}
    for key in metrics:
        if key not in known:
            raise InputError(f"unknown metric {key!r}; those of {kind}s here are {', '.join(known)}")
        reference.check(known[key])


def build_reference(name: str, folder: str | Path | None = None, split: str = "test") -> Reference:
    """Fit the statistics of a dataset: of its test split or, to choose settings by, of its validation split."""
    if split not in ("test", "val"):
        raise InputError(f"a reference is made of the test or the val split, got {split!r}")
    data = load(name, folder)
    if not data.split(split):
        raise InputError(f"dataset {data.name} has no {split} split; a reference needs one")
    return suite_of(data.kind).fit(data.with_test(split))


def load_reference(source: str | Path) -> Reference:
    """By name, if it comes with the package, else from a file: one of `reference build`, or graphs or molecules."""
    path = reference_file(source)
    if is_item_file(path):
        return fit_reference(path)
    with opened(path) as arrays:
        molecules = "molecule_reference" in arrays.files
    reference = MoleculeReference.load(path) if molecules else GraphSummary.load(path)
    if isinstance(reference, MoleculeReference) and reference.extends in shipped():
        return reference.joined(load_reference(reference.extends))
    return reference


def fit_reference(source: Any) -> Reference:
    """From graphs or molecules in memory or in a file. Lines of graphs may name a split: the test split is compared
    with, that for training is for novelty; without splits, all graphs are test graphs."""
    if isinstance(source, Path) and ".jsonl" in source.suffixes:
        data = GraphDataset(source.stem, str(source), arrays=read_graph_file(source, all_test))
        if not data.split("test"):
            raise InputError(f"{source} has no graph of the split test; a reference needs one")
        return GraphReference.fit(data.split("test"), data.split("train"))
    items = gather(source, strict=True, name="the reference")
    return suite_of(items.item.kind).reference(items.members)


class JudgedOnce:
    """A rule of validity whose verdicts on one set serve both `valid` and `vun`: block inference takes its time."""

    def __init__(self, rule: Planar | BlockModel) -> None:
        self.rule, self.definition, self.equals = rule, rule.definition, rule.equals
        self.verdicts: dict[int, tuple[np.ndarray, dict[str, Any]]] = {}

    def judge(self, graphs: Sequence[Graph]) -> tuple[np.ndarray, dict[str, Any]]:
        if id(graphs) not in self.verdicts:
            self.verdicts[id(graphs)] = self.rule.judge(graphs)
        return self.verdicts[id(graphs)]
