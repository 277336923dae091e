"""A model's card, `model.json`: everything but the numbers of the network. Versioned and schema-checked."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from isostep.base.errors import InputError
from isostep.item import Decoder
from isostep.item.decoding import decoder_for
from isostep.process import PROCESSES, Process
from isostep.settings.schema import SamplerPreset, one_line

FORMAT = 1
MAX_NODES = 4096
MAX_NUMBER = 1e6  # of a process setting
PROCESS_SETTINGS = {
    "VP": ("beta_min", "beta_max"),
    "subVP": ("beta_min", "beta_max"),
    "VE": ("sigma_min", "sigma_max"),
    "bridge": ("sigma_0", "sigma_1", "drift_coeff"),
}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Provenance(_Frozen):
    """Where the weights come from and under which terms."""

    source: str
    licence: str
    command: str | None = None
    notes: str | None = None


class ModelInfo(_Frozen):
    format: Literal[1] = FORMAT
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    family: Literal["gdss", "grum"]
    dataset: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    network: dict[str, Any]
    process: dict[str, dict[str, Any]]
    max_nodes: int = Field(ge=1, le=MAX_NODES)
    features: int = Field(ge=1, le=MAX_NODES)
    node_counts: tuple[tuple[int, int], ...] = Field(min_length=1, max_length=MAX_NODES)  # (nodes, how many graphs)
    atoms: tuple[str, ...] | None = None  # None: generic graphs
    scale: float = Field(default=1.0, gt=0)  # A = bond order / scale
    sampler: SamplerPreset = SamplerPreset()
    weights: Literal["raw", "ema"] = "raw"
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    provenance: Provenance

    @model_validator(mode="after")
    def _consistent(self) -> ModelInfo:
        if set(self.process) != {"X", "A"}:
            raise ValueError(f"process must name the components X and A, got {sorted(self.process)}")
        if any(not 1 <= n <= self.max_nodes or not 1 <= count <= 2**53 for n, count in self.node_counts):
            raise ValueError(f"node_counts must be pairs (1..{self.max_nodes} nodes, 1 or more graphs)")
        if self.atoms is not None:
            if len(self.atoms) != self.features:
                raise ValueError(f"{len(self.atoms)} atoms for {self.features} features")
            if strange := [symbol for symbol in self.atoms if symbol not in _elements()]:
                raise ValueError(f"{strange[0][:20]!r} in atoms is not a chemical element")
        _ = self.processes(), self.decoder  # refuse settings that nothing can be made from
        return self

    @property
    def kind(self) -> str:
        return self.decoder.item.kind

    @property
    def decoder(self) -> Decoder:
        return decoder_for(self.atoms, self.max_nodes, self.scale)

    def processes(self) -> dict[str, Process]:
        return {name: make_process(settings) for name, settings in self.process.items()}

    @staticmethod
    def parse(record: Any, origin: str) -> ModelInfo:
        """Check a JSON record; `origin` is named in the error."""
        try:
            return ModelInfo.model_validate(record)
        except ValidationError as error:
            raise InputError(one_line(error, origin)) from error


def make_process(settings: dict[str, Any]) -> Process:
    """A process from its settings, such as {"type": "VP", "beta_min": 0.1, "beta_max": 1.0}."""
    options = dict(settings)
    kind = options.pop("type", None)
    if not isinstance(kind, str) or kind not in PROCESS_SETTINGS:
        raise InputError(f"unknown process type {str(kind)[:60]!r}; choose one of: {', '.join(PROCESS_SETTINGS)}")
    if unknown := sorted(options.keys() - set(PROCESS_SETTINGS[kind])):
        raise InputError(f"process {kind} has no setting {unknown[0]!r}; it takes: {', '.join(PROCESS_SETTINGS[kind])}")
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_NUMBER:
            raise InputError(
                f"process {kind}: {name} must be a number of at most {MAX_NUMBER:g}, got {str(value)[:60]!r}"
            )
    return PROCESSES[kind](**options)


@cache
def _elements() -> frozenset[str]:
    from rdkit.Chem import GetPeriodicTable

    return frozenset(GetPeriodicTable().GetElementSymbol(number) for number in range(1, 119))
