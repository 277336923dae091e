"""One graph on its way from noise to an item: a sketch of a moment, and a film of all of them.

A film is compact: what can be an edge at any time, and one character per edge and frame.

A level is 0 .. 63 and stands for level / 63 of `most`: the chance of an edge, or (molecules, `most` = 3) the expected
order of a bond. It is written as a character of DIGITS. A node of a molecule has two: its likeliest element, and the
chance of that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from isostep.base.schema import Frozen

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-"
TOP = len(DIGITS) - 1
CUTS = (0.5, 1.5, 2.5)  # of a bond's order; an edge has the first alone
LIKELY = 0.5  # above it an element counts as there

Levels = Annotated[str, Field(pattern=re.compile(r"^[0-9A-Za-z+-]*$"))]


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


class Film(Frozen):
    """`edges[frame]` has a level per pair; `nodes[frame]` an element's number and a level per node."""

    n: int = Field(ge=0, le=10_000)
    most: Literal[1, 3] = 1
    pairs: tuple[tuple[int, int], ...]
    edges: tuple[Levels, ...] = Field(min_length=1)
    elements: tuple[str, ...] | None = None
    nodes: tuple[Levels, ...] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Film:
        if any(not 0 <= i < j < self.n for i, j in self.pairs):
            raise ValueError(f"a pair leads outside of the {self.n} nodes")
        if any(len(frame) != len(self.pairs) for frame in self.edges):
            raise ValueError(f"a frame has not one level for each of {len(self.pairs)} pairs")
        if (self.elements is None) != (self.nodes is None):
            raise ValueError("elements and nodes come together")
        if self.elements is not None and self.nodes is not None:
            if len(self.nodes) != len(self.edges) or any(len(frame) != 2 * self.n for frame in self.nodes):
                raise ValueError(f"a frame has not two characters for each of {self.n} nodes")
            if any(DIGITS.index(c) >= len(self.elements) for frame in self.nodes for c in frame[::2]):
                raise ValueError(f"an element's number is beyond the {len(self.elements)} named")
        return self

    @staticmethod
    def of(sketches: Sequence[Sketch]) -> Film:
        """From sketches of the same graph, frame by frame."""
        names = dict.fromkeys(atom for s in sketches for atom in s.atoms or ())
        elements = None if sketches[0].atoms is None else tuple(names)
        most = 1 if elements is None else 3
        frames = [{(min(i, j), max(i, j)): w for (i, j), w in _weighted(s)} for s in sketches]
        pairs = sorted(set[tuple[int, int]]().union(*frames))
        edges = tuple("".join(_digit(frame.get(pair, 0.0) / most) for pair in pairs) for frame in frames)
        nodes = elements and tuple(
            "".join(
                DIGITS[elements.index(atom)] + _digit(chance)
                for atom, chance in zip(s.atoms or (), s.chances or [1.0] * s.n, strict=True)
            )
            for s in sketches
        )
        return Film(n=sketches[0].n, most=most, pairs=tuple(pairs), edges=edges, elements=elements, nodes=nodes)

    def sketch(self, frame: int) -> Sketch:
        """The frame as a sketch; an edge at level 0 is left out."""
        levels = [_value(c) * self.most for c in self.edges[frame]]
        kept = [(pair, value) for pair, value in zip(self.pairs, levels, strict=True) if value]
        cuts = CUTS if self.most == 3 else CUTS[:1]
        atoms = chances = None
        if self.elements is not None and self.nodes is not None:
            row = self.nodes[frame]
            atoms = tuple(self.elements[DIGITS.index(c)] for c in row[::2])
            chances = tuple(_value(c) for c in row[1::2])
        return Sketch(
            n=self.n,
            edges=tuple((i, j, sum(value >= cut for cut in cuts)) for (i, j), value in kept),
            atoms=atoms,
            weights=tuple(value for _, value in kept),
            chances=chances,
        )


def _weighted(sketch: Sketch) -> list[tuple[tuple[int, int], float]]:
    weights = sketch.weights or [float(order) for _, _, order in sketch.edges]
    return [((i, j), weight) for (i, j, _), weight in zip(sketch.edges, weights, strict=True)]


def _digit(share: float) -> str:
    return DIGITS[round(TOP * min(max(share, 0.0), 1.0))]


def _value(digit: str) -> float:
    return DIGITS.index(digit) / TOP
