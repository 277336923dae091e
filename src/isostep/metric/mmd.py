"""Maximum mean discrepancy of graph statistics: MMD^2 = mean k(a, a') + mean k(b, b') - 2 mean k(a, b).

All pairs count, the diagonal included (biased form). k = exp(-D^2 / (2 sigma^2)) with one of two distances:
emd: earth mover's distance of histograms on a line, exactly the L1 distance of their cumulative sums times the bin
     width; for the orbit vector, which is no histogram, the L2 distance;
tv:  half the L1 distance. This kernel is not positive definite: a slightly negative MMD^2 is possible, and not clipped.

The reported value is MMD^2, as in the field's tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from isostep.base.errors import InputError
from isostep.item.graph import Graph
from isostep.metric.base import Measure
from isostep.metric.graph_reference import GraphReference, as_reference
from isostep.metric.graph_statistics import CLUSTERING_BINS, Statistic, describe

Kernel = Literal["emd", "tv"]
Normalisation = Literal["mass", "epsilon"]


class Scale(NamedTuple):
    """`sigma` of the kernel, the distance between neighbouring bins, and whether the vector is a histogram."""

    sigma: float
    width: float = 1.0
    histogram: bool = True


FLOOR_ROWS = 512

SCALES: dict[Statistic, Scale] = {
    "degree": Scale(1.0),
    "clustering": Scale(0.1, width=1 / CLUSTERING_BINS),
    "orbit": Scale(30.0, histogram=False),
    "spectral": Scale(1.0),
    "spectral_clipped": Scale(1.0),
}


@dataclass(frozen=True)
class GraphMMD:
    """MMD^2 of one statistic between generated graphs and the reference's test graphs.

    `normalisation`: histograms divided by their sum ("mass") or by their sum + 1e-6 ("epsilon", GruM and DVS).
    `first_only`: generated graphs beyond the number of reference graphs are left out. GruM's and DVS' programs do so
    for the spectral statistic, unannounced; this option repeats their numbers.
    """

    statistic: Statistic
    kernel: Kernel = "tv"
    normalisation: Normalisation = "mass"
    first_only: bool = False

    better: ClassVar[Literal["lower"]] = "lower"

    def __post_init__(self) -> None:
        for value, known in (
            (self.statistic, tuple(SCALES)),
            (self.kernel, ("emd", "tv")),
            (self.normalisation, ("mass", "epsilon")),
        ):
            if value not in known:
                raise InputError(f"unknown choice {value!r} for a graph MMD; choose one of {', '.join(known)}")

    @property
    def name(self) -> str:
        return self.statistic.removesuffix("_clipped")

    @property
    def definition(self) -> str:
        sigma, width, histogram = SCALES[self.statistic]
        distance = "total variation" if self.kernel == "tv" else f"EMD of bin width {width:g}" if histogram else "L2"
        dropped = ", generated graphs beyond the number of reference graphs left out" if self.first_only else ""
        return f"biased MMD^2 of the {self.statistic} statistic, Gaussian of the {distance}, sigma {sigma:g}{dropped}"

    @property
    def equals(self) -> str:
        return "GDSS' tables" if self.kernel == "emd" else "GruM's and DVS' tables"

    def prepare(self, generated: Sequence[Graph], reference: GraphReference | Sequence[Graph]) -> Measure:
        reference = as_reference(reference)
        kept = np.array([graph.n > 0 for graph in generated], bool)
        if self.first_only:
            kept &= np.cumsum(kept) <= len(reference.test)
        if not kept.any():
            raise InputError(
                f"{self.name}: none of the {len(generated)} generated graphs has a node; nothing to compare"
            )
        ours = describe([graph for graph, keep in zip(generated, kept, strict=True) if keep], self.statistic)
        theirs = reference.table("test", self.statistic)
        among = self._kernel(ours, ours)
        across = self._kernel(ours, theirs).mean(1)
        constant = self._constant(reference)

        def measure(weights: np.ndarray) -> float:
            w = weights[kept]
            # A resample may consist of dropped graphs alone; it then says nothing and stands for the whole set.
            w = w / w.sum() if w.any() else np.full(len(w), 1 / len(w))
            return float(w @ among @ w - 2 * w @ across + constant)

        return measure

    def floor(self, reference: GraphReference | Sequence[Graph], n: int) -> float | None:
        """Expected value of n graphs drawn from the training distribution.

        The training graphs' off-diagonal kernel mean is unbiased, so the biased form at any n follows from it. Time and
        memory grow with the square of the training graphs: the first FLOOR_ROWS stand for all.
        """
        reference = as_reference(reference)
        if len(reference.train) < 2:
            return None
        n = min(n, len(reference.test)) if self.first_only else n
        apart, across = reference.remember(("mmd floor", self), lambda: self._of_training(reference))
        return float(1 / n + (1 - 1 / n) * apart - 2 * across + self._constant(reference))

    def _constant(self, reference: GraphReference) -> float:
        """Mean kernel of the test graphs."""
        theirs = reference.table("test", self.statistic)
        return reference.remember(("mmd", self), lambda: self._kernel(theirs, theirs).mean())

    def _of_training(self, reference: GraphReference) -> tuple[float, float]:
        """Mean kernel of two different training graphs, and of training with test graphs."""
        theirs, train = reference.table("test", self.statistic), reference.table("train", self.statistic)[:FLOOR_ROWS]
        among, size = self._kernel(train, train), len(train)
        return (among.sum() - size) / (size * (size - 1)), self._kernel(train, theirs).mean()  # k(x, x) = 1

    def _kernel(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        sigma, width, histogram = SCALES[self.statistic]
        a, b = _padded(a, b)
        if histogram:
            extra = 0.0 if self.normalisation == "mass" else 1e-6
            a, b = (x / (x.sum(1, keepdims=True) + extra) for x in (a, b))
        if self.kernel == "tv":
            distance = cdist(a, b, "cityblock") / 2
        elif histogram:
            distance = cdist(np.cumsum(a, 1), np.cumsum(b, 1), "cityblock") * width
        else:
            distance = cdist(a, b)
        return np.exp(-(distance**2) / (2 * sigma**2))


def _padded(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both tables with the width of the wider one."""
    width = max(a.shape[1], b.shape[1])
    return tuple(np.pad(x.astype(float), ((0, 0), (0, width - x.shape[1]))) for x in (a, b))  # type: ignore[return-value]
