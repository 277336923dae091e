"""A graph on its way from noise to an item, as plain data with its node numbers kept."""

from __future__ import annotations

from pydantic import Field, model_validator

from isostep.base.schema import Frozen


class Sketch(Frozen):
    """Edges i, j, order (0: not decided yet); elements where nodes have one ("" for none).

    `weights` (one per edge: its chance, or the expected bond order) and `chances` (one per node, of its element) say
    how sure it is, where that is known.
    """

    n: int = Field(ge=0, le=10_000)
    edges: tuple[tuple[int, int, int], ...]
    atoms: tuple[str, ...] | None = None
    weights: tuple[float, ...] | None = None
    chances: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Sketch:
        if any(not (0 <= i < self.n and 0 <= j < self.n and 0 <= order <= 3) for i, j, order in self.edges):
            raise ValueError(f"an edge leads outside of the {self.n} nodes, or has no order from 0 to 3")
        if self.atoms is not None and len(self.atoms) != self.n:
            raise ValueError(f"{len(self.atoms)} atoms for {self.n} nodes")
        if self.weights is not None and len(self.weights) != len(self.edges):
            raise ValueError(f"{len(self.weights)} weights for {len(self.edges)} edges")
        if self.chances is not None and len(self.chances) != self.n:
            raise ValueError(f"{len(self.chances)} chances for {self.n} nodes")
        return self

    @property
    def decided(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(edge for edge in self.edges if edge[2])
