"""Training examples: clean graphs as states, padded to one size.

Generic graphs: A is the adjacency; X holds the two Laplacian eigenvectors after the zero eigenvalues, times 10 (their
signs are drawn anew each time), or the one-hot degree. Molecules: one-hot atoms and bond order / scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from isostep.base.errors import InputError
from isostep.base.schema import Frozen
from isostep.dataset import Dataset, load
from isostep.item.encoding import Molecules, MoleculeSpec
from isostep.item.graph import Graph
from isostep.state import GraphState

EIGENVECTOR_SCALE = 10.0
Normal: TypeAlias = Callable[[GraphState], Mapping[str, Tensor]]  # standard normals shaped like a state


@dataclass(frozen=True, eq=False)
class Examples:
    """`count` clean graphs; `take(rows)` makes their state."""

    count: int
    take: Callable[[Tensor], GraphState]

    @staticmethod
    def of(state: GraphState) -> Examples:
        return Examples(state.batch, state.take)


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Training and validation graphs, padded size, features of each component that has some, and h[n] = training graphs
    with n nodes. `spec` says what the tensors of molecules mean. `vary(state, normal)`: the same graphs seen anew.
    """

    train: Examples
    validation: Examples
    max_nodes: int
    widths: Mapping[str, int]
    node_counts: Sequence[int]
    spec: MoleculeSpec | None = None
    vary: Callable[[GraphState, Normal], GraphState] | None = None


class DataConfig(Frozen):
    """`name` as in `isostep data list`; `holdout` is the share of training graphs kept for validation where the
    dataset has no validation split of its own."""

    name: str
    features: Literal["atoms", "eigenvectors", "degree"]
    max_nodes: int | None = Field(default=None, gt=1)
    degree_classes: int = Field(default=10, gt=0)
    holdout: float = Field(default=0.02, gt=0, lt=1)


def load_examples(config: DataConfig) -> TrainingData:
    """X and A of the named dataset."""
    dataset = load(config.name)
    if config.features not in dataset.features:
        choices = " or ".join(f'"{name}"' for name in dataset.features)
        raise InputError(
            f'{config.name} holds {dataset.kind}s: data.features must be {choices}, got "{config.features}"'
        )
    return {"atoms": _molecules}.get(config.features, _graphs)(dataset, config)


def _molecules(dataset: Dataset, config: DataConfig) -> TrainingData:
    molecules, spec = dataset.encoded("all"), dataset.spec
    assert spec is not None
    rows = training_rows(dataset, config.holdout)
    train, validation = (_molecule_states(molecules.take(part), spec) for part in rows)
    return TrainingData(
        train, validation, spec.max_nodes, {"X": len(spec.atoms)}, dataset.node_counts("train").tolist(), spec
    )


def _molecule_states(molecules: Molecules, spec: MoleculeSpec) -> Examples:
    def take(rows: Tensor) -> GraphState:
        x, a, mask = molecules.tensors(spec, rows.numpy())
        return GraphState.of(mask, X=x, A=a)

    return Examples(len(molecules), take)


def _graphs(dataset: Dataset, config: DataConfig) -> TrainingData:
    graphs = dataset.split("all")
    train, validation = ([graphs[row] for row in rows] for rows in training_rows(dataset, config.holdout))
    return graph_examples(train, validation, config, dataset.node_counts("train").tolist())


def graph_examples(
    train: Sequence[Graph], validation: Sequence[Graph], config: DataConfig, counts: Sequence[int]
) -> TrainingData:
    """Generic graphs, padded to the largest or to `config.max_nodes`."""
    largest = max(graph.n for graph in (*train, *validation))
    nodes = config.max_nodes or largest
    if nodes < largest:
        raise InputError(f"data.max_nodes is {nodes}, but a graph of {config.name} has {largest} nodes")
    first, second = (encode_graphs(part, nodes, config) for part in (train, validation))
    vary = flip_signs if config.features == "eigenvectors" else None
    width = first["X"].shape[-1]
    return TrainingData(Examples.of(first), Examples.of(second), nodes, {"X": width}, counts, vary=vary)


def training_rows(dataset: Dataset, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train and to validate on; without a validation split, a fixed `share` of training is held out."""
    train, validation = dataset.rows("train"), dataset.rows("val")
    if len(validation):
        return train, validation
    order = np.random.default_rng(0).permutation(len(train))
    cut = max(1, round(len(train) * share))
    return train[np.sort(order[cut:])], train[np.sort(order[:cut])]


def encode_graphs(graphs: Sequence[Graph], nodes: int, config: DataConfig) -> GraphState:
    """Generic graphs, padded to `nodes`."""
    adj = np.zeros((len(graphs), nodes, nodes), np.float32)
    mask = np.zeros((len(graphs), nodes), bool)
    width = 2 if config.features == "eigenvectors" else config.degree_classes
    x = np.zeros((len(graphs), nodes, width), np.float32)
    for k, graph in enumerate(graphs):
        adj[k, : graph.n, : graph.n] = dense = graph.adjacency()
        mask[k, : graph.n] = True
        x[k, : graph.n] = (
            eigenvectors(dense) if config.features == "eigenvectors" else degree_classes(dense, config.degree_classes)
        )
    return GraphState.of(torch.from_numpy(mask), X=torch.from_numpy(x), A=torch.from_numpy(adj))


def eigenvectors(adjacency: np.ndarray) -> np.ndarray:
    """(n, 2): the first two Laplacian eigenvectors whose eigenvalue is not zero, times 10; zero columns if too few."""
    laplacian = np.diag(adjacency.sum(1)) - adjacency
    values, vectors = np.linalg.eigh(laplacian.astype(np.float64))
    first = int((values < 1e-6).sum())
    found = vectors[:, first : first + 2] * EIGENVECTOR_SCALE
    return np.pad(found, ((0, 0), (0, 2 - found.shape[1])))


def flip_signs(state: GraphState, normal: Normal) -> GraphState:
    """An eigenvector's sign is a convention: draw it for every column of X."""
    x = state["X"]
    like = GraphState.of(state.mask, {"sign": "graph"}, sign=torch.zeros(len(x), x.shape[-1]))
    signs = torch.where(normal(like)["sign"] < 0, -1.0, 1.0)
    return state.replace({**state.components, "X": x * signs[:, None]})


def degree_classes(adjacency: np.ndarray, classes: int) -> np.ndarray:
    """(n, classes): one-hot degree."""
    degree = adjacency.sum(1).astype(int)
    if degree.max(initial=0) >= classes:
        raise InputError(f"a node has degree {degree.max()}, but data.degree_classes is {classes}; raise it")
    return np.eye(classes, dtype=np.float32)[degree]
