"""Shares of the generated graphs: value = sum_i w_i v_i with a verdict v_i per graph.

valid      planar and connected, or a stochastic block model of the expected shape
unique     not isomorphic to an earlier generated graph
novel      not isomorphic to a training graph
connected  one component (a graph without nodes has none)
vun        valid, unique and novel at once
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import rustworkx
from scipy.special import chdtr

from isostep.base.errors import InputError
from isostep.item.graph import Graph
from isostep.metric.base import Measure, Metric
from isostep.metric.graph_reference import GraphReference, Split, as_reference
from isostep.metric.isomorphism import Catalogue, to_rustworkx
from isostep.metric.sbm import Inference, Partition, choose_inference, infer

Reference = GraphReference | Sequence[Graph]


def classes_of(graphs: Sequence[Graph]) -> np.ndarray:
    """The same number for isomorphic graphs."""
    seen = Catalogue()
    return np.array([seen.add(graph) for graph in graphs], int)


def is_first(classes: np.ndarray) -> np.ndarray:
    """True where no earlier graph is of the same class."""
    first = np.zeros(len(classes), bool)
    first[np.unique(classes, return_index=True)[1]] = True
    return first


def is_new(graphs: Sequence[Graph], reference: Reference, split: Split) -> np.ndarray:
    """True where no graph of the split is isomorphic."""
    catalogue = Catalogue(as_reference(reference).known(split))
    return np.array([graph not in catalogue for graph in graphs], bool)


def is_connected(graph: Graph) -> bool:
    return graph.n > 0 and rustworkx.is_connected(to_rustworkx(graph))


class ValidityRule(Protocol):
    """A verdict per graph: `judge` returns verdicts (runs, G), several runs where a verdict is random, and facts."""

    @property
    def definition(self) -> str: ...

    @property
    def equals(self) -> str: ...

    def judge(self, graphs: Sequence[Graph]) -> tuple[np.ndarray, dict[str, Any]]: ...


@dataclass(frozen=True)
class Planar:
    """Connected and planar."""

    definition: ClassVar[str] = "connected and planar"
    equals: ClassVar[str] = "SPECTRE's, GruM's and DVS' planar validity"

    def judge(self, graphs: Sequence[Graph]) -> tuple[np.ndarray, dict[str, Any]]:
        verdicts = [is_connected(graph) and rustworkx.is_planar(to_rustworkx(graph)) for graph in graphs]
        return np.array([verdicts], bool), {}


@dataclass(frozen=True)
class BlockModel:
    """Blocks inferred by minimum description length have the expected number, sizes and edge probabilities.

    The probabilities pass if the mean over the block matrix of 1 - chi2.cdf(W, 1) exceeds `level`, where
    W = (p_est - p)^2 / (p_est (1 - p_est) + 1e-6), p = `inside` on the diagonal and `across` elsewhere. `form`: how the
    square and the product of the off-diagonal part are taken. "elementwise" is the formula as it reads; "matrix" takes
    matrix products, as the published program does, whose block matrix is a `numpy.matrix`.
    The inference is random: verdicts are averaged over `runs`, whose shares' standard deviation is the `spread`.
    """

    form: Literal["matrix", "elementwise"] = "matrix"
    inference: Inference | Literal["auto"] = "auto"
    runs: int = 3
    seed: int = 0
    blocks: tuple[int, int] = (2, 5)
    sizes: tuple[int, int] = (20, 40)
    inside: float = 0.3
    across: float = 0.005
    level: float = 0.9

    def __post_init__(self) -> None:
        if self.form not in ("matrix", "elementwise"):
            raise InputError(f"unknown form {self.form!r} of the block test; choose matrix or elementwise")
        if self.inference not in ("auto", "graph-tool", "own"):
            raise InputError(f"unknown block inference {self.inference!r}; choose auto, graph-tool or own")
        if self.runs < 1:
            raise InputError(f"runs of the block inference must be at least 1, got {self.runs}")

    @property
    def definition(self) -> str:
        return (
            f"{self.blocks[0]}-{self.blocks[1]} inferred blocks of {self.sizes[0]}-{self.sizes[1]} nodes with edge "
            f"probabilities {self.inside:g} inside and {self.across:g} across by a chi-squared test ({self.form} form)"
        )

    @property
    def equals(self) -> str:
        return "GruM's and DVS' SBM validity" if self.form == "matrix" else "none: the formula without numpy.matrix"

    def judge(self, graphs: Sequence[Graph]) -> tuple[np.ndarray, dict[str, Any]]:
        inference = choose_inference(self.inference)
        least, most = (count * size for count, size in zip(self.blocks, self.sizes, strict=True))
        possible = [place for place, graph in enumerate(graphs) if least <= graph.n <= most]
        candidates = [graphs[place] for place in possible]
        verdicts = np.zeros((self.runs, len(graphs)), bool)
        for run, row in enumerate(verdicts):
            found = infer(candidates, self.seed + run, inference)
            row[possible] = [self.fits(Partition(g, labels)) for g, labels in zip(candidates, found, strict=True)]
        spread = float(verdicts.mean(1).std())
        return verdicts, {"inference": inference, "form": self.form, "runs": self.runs, "spread": spread}

    def fits(self, partition: Partition) -> bool:
        """The verdict on given blocks."""
        n = partition.sizes
        if not self.blocks[0] <= len(n) <= self.blocks[1] or n.min() < self.sizes[0] or n.max() > self.sizes[1]:
            return False
        inside = np.diag(partition.e) / (n * (n - 1) + 1e-6)
        across = (partition.e - np.diag(np.diag(partition.e))) / (np.outer(n, n) + 1e-6)
        times = np.matmul if self.form == "matrix" else np.multiply
        w = _wald(across, self.across, times)
        np.fill_diagonal(w, _wald(inside, self.inside, np.multiply))
        return bool((1 - chdtr(1, w.clip(0))).mean() > self.level)


def _wald(estimate: np.ndarray, p: float, times: np.ufunc) -> np.ndarray:
    return times(estimate - p, estimate - p) / (times(estimate, 1 - estimate) + 1e-6)


@dataclass(frozen=True)
class Share:
    """Weighted mean of verdicts in [0, 1], with facts about them."""

    verdicts: np.ndarray
    details: dict[str, Any] = field(default_factory=dict)

    def __call__(self, weights: np.ndarray) -> float:
        return fsum(weights * self.verdicts) / fsum(weights)  # exactly 1 where all verdicts are 1


@dataclass(frozen=True)
class DistinctShare:
    """A share where of each of the `classes` only the first graph counts, so a verdict depends on the set."""

    verdicts: np.ndarray
    classes: np.ndarray
    details: dict[str, Any] = field(default_factory=dict)

    def __call__(self, weights: np.ndarray) -> float:
        return self.among(np.ones(len(weights), bool))(weights)

    def among(self, part: np.ndarray) -> Share:
        """In a set of the graphs of `part` alone."""
        counted = np.zeros(len(part))
        counted[part] = self.verdicts[part] * is_first(self.classes[part])
        return Share(counted)


class _ShareMetric:
    better: ClassVar[Literal["higher"]] = "higher"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def floor(self: Metric, reference: Reference, n: int) -> float | None:
        """The training graphs' own value, if it was kept; of novelty there is none, as they are not novel."""
        return as_reference(reference).floors.get(self.definition)


@dataclass(frozen=True)
class Valid(_ShareMetric):
    """Share of generated graphs that `validity` accepts."""

    validity: ValidityRule

    name: ClassVar[str] = "valid"

    @property
    def definition(self) -> str:
        return f"share of generated graphs that are valid: {self.validity.definition}"

    @property
    def equals(self) -> str:
        return self.validity.equals

    def prepare(self, generated: Sequence[Graph], reference: Reference) -> Measure:
        verdicts, details = self.validity.judge(generated)
        return Share(verdicts.mean(0), details)


@dataclass(frozen=True)
class Connected(_ShareMetric):
    """Share of generated graphs with exactly one component."""

    name: ClassVar[str] = "connected"
    definition: ClassVar[str] = "share of generated graphs that are connected"
    equals: ClassVar[str] = "no published column"

    def prepare(self, generated: Sequence[Graph], reference: Reference) -> Measure:
        return Share(np.array([is_connected(graph) for graph in generated], float))


@dataclass(frozen=True)
class Unique(_ShareMetric):
    """Share of generated graphs that are not isomorphic to an earlier one."""

    name: ClassVar[str] = "unique"
    definition: ClassVar[str] = "number of isomorphism classes among the generated graphs / number of generated graphs"
    equals: ClassVar[str] = "SPECTRE's, GruM's and DVS' uniqueness"

    def prepare(self, generated: Sequence[Graph], reference: Reference) -> Measure:
        return DistinctShare(np.ones(len(generated)), classes_of(generated))


@dataclass(frozen=True)
class Novel(_ShareMetric):
    """Share of generated graphs that are isomorphic to no graph of the split `against`."""

    against: Split = "train"

    name: ClassVar[str] = "novel"

    @property
    def definition(self) -> str:
        return f"share of generated graphs that are not isomorphic to any {self.against} graph"

    @property
    def equals(self) -> str:
        return _PUBLISHED_AGAINST[self.against].format("novelty")

    def prepare(self, generated: Sequence[Graph], reference: Reference) -> Measure:
        return Share(is_new(generated, reference, self.against).astype(float))


@dataclass(frozen=True)
class VUN(_ShareMetric):
    """Share of generated graphs that are valid, unique and novel.

    `against` is "train", or "test" for the published form: the peers' programs compare with the test graphs.
    """

    validity: ValidityRule
    against: Split = "train"

    name: ClassVar[str] = "vun"

    @property
    def definition(self) -> str:
        return (
            "share of generated graphs that are valid, unique and not isomorphic to any "
            f"{self.against} graph; valid: {self.validity.definition}"
        )

    @property
    def equals(self) -> str:
        return _PUBLISHED_AGAINST[self.against].format("V.U.N.")

    def prepare(self, generated: Sequence[Graph], reference: Reference) -> Measure:
        new, classes = is_new(generated, reference, self.against), classes_of(generated)
        verdicts, details = self.validity.judge(generated)
        counted = verdicts & new
        if "spread" in details:
            details = details | {"spread": float((counted & is_first(classes)).mean(1).std())}
        return DistinctShare(counted.mean(0), classes, details)


_PUBLISHED_AGAINST: dict[Split, str] = {
    "train": "the {} that the papers define (their programs compare with the test graphs)",
    "test": "{} as GruM's and DVS' programs compute it",
}
