"""A graph on its way from noise to an item, as plain data with its node numbers kept."""

from __future__ import annotations

from pydantic import Field, model_validator

from isostep.base.schema import Frozen


class Sketch(Frozen):
    """Edges i, j, order; elements where nodes have one ("" for none)."""

    n: int = Field(ge=0, le=10_000)
    edges: tuple[tuple[int, int, int], ...]
    atoms: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Sketch:
        if any(not (0 <= i < self.n and 0 <= j < self.n and 1 <= order <= 3) for i, j, order in self.edges):
            raise ValueError(f"an edge leads outside of the {self.n} nodes, or has no order from 1 to 3")
        if self.atoms is not None and len(self.atoms) != self.n:
            raise ValueError(f"{len(self.atoms)} atoms for {self.n} nodes")
        return self
