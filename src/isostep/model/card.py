"""A model's card, `model.json`: everything but the numbers of the network. Versioned and schema-checked."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from isostep.base.schema import Frozen, checked
from isostep.family import find_family
from isostep.item import Decoder
from isostep.process import Process
from isostep.settings.schema import SamplerPreset
from isostep.state import GraphState

FORMAT = 1
MAX_NODES = 4096
Width = Annotated[int, Field(ge=1, le=MAX_NODES)]


class Provenance(Frozen):
    """Where the weights come from and under which terms."""

    source: str
    licence: str
    command: str | None = None
    notes: str | None = None


class ModelInfo(Frozen):
    format: Literal[1] = FORMAT
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    family: str
    dataset: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    network: dict[str, Any]
    process: dict[str, dict[str, Any]]
    max_nodes: int = Field(ge=1, le=MAX_NODES)
    features: Width | dict[str, Width]  # of X; or of each component that has features, by name
    node_counts: tuple[tuple[int, int], ...] = Field(min_length=1, max_length=MAX_NODES)  # (nodes, how many graphs)
    atoms: tuple[str, ...] | None = None  # None: generic graphs
    scale: float = Field(default=1.0, gt=0)  # A = bond order / scale
    sampler: SamplerPreset = SamplerPreset()
    weights: Literal["raw", "ema"] = "raw"
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    provenance: Provenance

    @field_validator("features")
    @classmethod
    def _plain(cls, value: int | dict[str, int]) -> int | dict[str, int]:
        """One form for one thing."""
        return value["X"] if isinstance(value, dict) and value.keys() == {"X"} else value

    @model_validator(mode="after")
    def _consistent(self) -> ModelInfo:
        components = find_family(self.family).components
        if any(not 1 <= n <= self.max_nodes or not 1 <= count <= 2**53 for n, count in self.node_counts):
            raise ValueError(f"node_counts must be pairs (1..{self.max_nodes} nodes, 1 or more graphs)")
        if self.atoms is not None:
            if len(self.atoms) != self.widths.get("X"):
                raise ValueError(f"{len(self.atoms)} atoms for {self.widths.get('X')} features")
            if strange := [symbol for symbol in self.atoms if symbol not in _elements()]:
                raise ValueError(f"{strange[0][:20]!r} in atoms is not a chemical element")
        if strange := sorted(self.widths.keys() - components):
            raise ValueError(f"features of {strange[0][:20]!r}, but the components are {', '.join(components)}")
        # Refuse settings that nothing can be made from.
        _ = self.processes(), self.blank(torch.ones(1, 1)), self.decoder
        return self

    @property
    def kind(self) -> str:
        return self.decoder.item.kind

    @property
    def decoder(self) -> Decoder:
        return find_family(self.family).decoder(self)

    @property
    def widths(self) -> dict[str, int]:
        """Numbers per node, edge or graph; a component without an entry has one number and no axis for it."""
        return {"X": self.features} if isinstance(self.features, int) else self.features

    def blank(self, mask: Tensor) -> GraphState:
        """Graphs of these nodes with zeros in every component."""
        return GraphState.zeros(mask, find_family(self.family).components, self.widths)

    def processes(self) -> dict[str, Process]:
        return find_family(self.family).make_processes(self.process)

    @staticmethod
    def parse(record: Any, origin: str) -> ModelInfo:
        """Check a JSON record; `origin` is named in the error."""
        return checked(ModelInfo, record, origin)


@cache
def _elements() -> frozenset[str]:
    from rdkit.Chem import GetPeriodicTable

    return frozenset(GetPeriodicTable().GetElementSymbol(number) for number in range(1, 119))
