"""Training graphs as tensors.

Features of generic graphs: the two Laplacian eigenvectors after the zero eigenvalues, times 10 (their signs are drawn
anew each time), or the one-hot degree. Molecules: one-hot atoms and bond order / scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.dataset import Dataset, load
from isostep.item.encoding import Molecules, MoleculeSpec
from isostep.item.graph import Graph
from isostep.training.config import DataConfig

EIGENVECTOR_SCALE = 10.0


class Batch(NamedTuple):
    """Clean graphs: x (B, N, F), adj (B, N, N), mask (B, N)."""

    x: Tensor
    adj: Tensor
    mask: Tensor

    def to(self, device: torch.device) -> Batch:
        return Batch(*(value.to(device) for value in self))

    def rows(self, rows: slice) -> Batch:
        return Batch(*(value[rows] for value in self))

    def permuted(self, generator: torch.Generator) -> Batch:
        """Real nodes of each graph in random order; padding stays last."""
        keys = torch.rand(self.mask.shape, generator=generator) + (1 - self.mask)
        order = keys.argsort(1)
        rows = torch.arange(len(order))[:, None]
        adj = self.adj[rows[..., None], order[:, :, None], order[:, None, :]]
        return Batch(self.x[rows, order], adj, self.mask[rows, order])


class GraphSource(Protocol):
    def __len__(self) -> int: ...

    def batch(self, chosen: Tensor) -> Batch: ...


@dataclass(frozen=True, eq=False)
class MoleculeSource:
    molecules: Molecules
    spec: MoleculeSpec

    def __len__(self) -> int:
        return len(self.molecules)

    def batch(self, chosen: Tensor) -> Batch:
        return Batch(*self.molecules.tensors(self.spec, chosen.numpy()))


@dataclass(frozen=True, eq=False)
class TensorSource:
    graphs: Batch

    def __len__(self) -> int:
        return len(self.graphs.mask)

    def batch(self, chosen: Tensor) -> Batch:
        return Batch(*(value[chosen] for value in self.graphs))


@dataclass(frozen=True, eq=False)
class TrainData:
    """Training and validation graphs, feature width, padded size, and h[n] = training graphs with n nodes."""

    train: GraphSource
    validation: GraphSource
    features: int
    max_nodes: int
    node_counts: list[int]
    spec: MoleculeSpec | None
    signs: bool


def load_data(config: DataConfig) -> TrainData:
    """Graphs of the named dataset; where it has no validation split, a fixed share of training is held out."""
    dataset = load(config.name)
    return _molecules(dataset, config) if dataset.kind == "molecule" else _graphs(dataset, config)


def _molecules(dataset: Dataset, config: DataConfig) -> TrainData:
    spec = dataset.spec
    if config.features != "atoms" or spec is None:
        raise InputError(f'{config.name} holds molecules: data.features must be "atoms", got "{config.features}"')
    train, validation = dataset.encoded("train"), dataset.encoded("val")
    if not len(validation):
        kept, held = holdout(len(train), config.holdout)
        train, validation = train.take(kept), train.take(held)
    counts = dataset.node_counts("train").tolist()
    sources = (MoleculeSource(train, spec), MoleculeSource(validation, spec))
    return TrainData(sources[0], sources[1], len(spec.atoms), spec.max_nodes, counts, spec, signs=False)


def _graphs(dataset: Dataset, config: DataConfig) -> TrainData:
    if config.features == "atoms":
        raise InputError(f'{config.name} holds graphs: data.features must be "eigenvectors" or "degree", got "atoms"')
    train, validation = dataset.split("train"), dataset.split("val")
    if not validation:
        kept, held = holdout(len(train), config.holdout)
        train, validation = [train[i] for i in kept], [train[i] for i in held]
    largest = max(graph.n for graph in (*train, *validation))
    nodes = config.max_nodes or largest
    if nodes < largest:
        raise InputError(f"data.max_nodes is {nodes}, but a graph of {config.name} has {largest} nodes")
    first, second = (TensorSource(encode_graphs(part, nodes, config)) for part in (train, validation))
    counts = dataset.node_counts("train").tolist()
    signs = config.features == "eigenvectors"
    return TrainData(first, second, first.graphs.x.shape[-1], nodes, counts, None, signs)


def holdout(total: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices kept and held out, the same in every run."""
    order = np.random.default_rng(0).permutation(total)
    cut = max(1, round(total * share))
    return np.sort(order[cut:]), np.sort(order[:cut])


def encode_graphs(graphs: Sequence[Graph], nodes: int, config: DataConfig) -> Batch:
    """Generic graphs, padded to `nodes`."""
    adj = np.zeros((len(graphs), nodes, nodes), np.float32)
    mask = np.zeros((len(graphs), nodes), np.float32)
    width = 2 if config.features == "eigenvectors" else config.degree_classes
    x = np.zeros((len(graphs), nodes, width), np.float32)
    for k, graph in enumerate(graphs):
        adj[k, : graph.n, : graph.n] = dense = graph.adjacency()
        mask[k, : graph.n] = 1
        x[k, : graph.n] = (
            eigenvectors(dense) if config.features == "eigenvectors" else degree_classes(dense, config.degree_classes)
        )
    return Batch(*(torch.from_numpy(value) for value in (x, adj, mask)))


def eigenvectors(adjacency: np.ndarray) -> np.ndarray:
    """(n, 2): the first two Laplacian eigenvectors whose eigenvalue is not zero, times 10; zero columns if too few."""
    laplacian = np.diag(adjacency.sum(1)) - adjacency
    values, vectors = np.linalg.eigh(laplacian.astype(np.float64))
    first = int((values < 1e-6).sum())
    found = vectors[:, first : first + 2] * EIGENVECTOR_SCALE
    return np.pad(found, ((0, 0), (0, 2 - found.shape[1])))


def degree_classes(adjacency: np.ndarray, classes: int) -> np.ndarray:
    """(n, classes): one-hot degree."""
    degree = adjacency.sum(1).astype(int)
    if degree.max(initial=0) >= classes:
        raise InputError(f"a node has degree {degree.max()}, but data.degree_classes is {classes}; raise it")
    return np.eye(classes, dtype=np.float32)[degree]
