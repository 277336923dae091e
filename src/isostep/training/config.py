"""What a training run is: one TOML file, checked key by key before anything starts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, create_model, model_validator

from isostep.base.errors import InputError, located
from isostep.base.schema import Frozen, checked
from isostep.family import Family, Training, find_family
from isostep.model.presets import read_toml
from isostep.process import Process
from isostep.settings.schema import SamplerPreset


class ProcessConfig(Frozen):
    """One component's process: the name and its numbers, such as sigma_0 or beta_max; and how its loss is weighted."""

    model_config = ConfigDict(extra="allow")
    type: str
    weight: Literal["default", "const"] = "default"
    cap: float | None = Field(default=None, gt=0)
    factor: float | None = Field(default=None, gt=0)  # of its loss; default: `loss.edges` for edges, 1 for others

    @property
    def settings(self) -> dict[str, Any]:
        """Without the loss."""
        return {"type": self.type, **(self.model_extra or {})}


class LossConfig(Frozen):
    """`eps`: times are drawn from (0, 1 - eps); `edges`: factor of the loss of edges; `strata`: one time from each of
    `batch` equal parts of that interval, which is the same mean with less noise."""

    eps: float = Field(default=2e-3, gt=0, lt=1)
    edges: float = Field(default=5.0, gt=0)
    strata: bool = False


class OptimizerConfig(Frozen):
    """Learning rate: linear warm-up, level, then linear decay to `lr_end` over the last `decay_steps`.

    `lr_factor` multiplies it once per epoch besides (GDSS' exponential schedule). `muon`: matrices of the network's
    layers are moved by orthogonal steps, all else by AdamW with the same learning rate; it learns in fewer steps.
    """

    kind: Literal["adamw", "adam", "muon"] = "adamw"
    lr: float = Field(gt=0)
    lr_end: float = Field(default=0.0, ge=0)
    warmup_steps: int = Field(default=0, ge=0)
    decay_steps: int = Field(default=0, ge=0)
    lr_factor: float = Field(default=1.0, gt=0, le=1)
    weight_decay: float = Field(default=1e-12, ge=0)
    amsgrad: bool = True
    grad_clip: float = Field(default=1.0, gt=0)
    ema: float = Field(default=0.999, ge=0, lt=1)


class RunConfig(Frozen):
    """Lengths in steps. `validation_graphs` is rounded to whole batches; `compile` fuses the network's operations: a
    slow start, then a multiple of the speed; `precision` is that of the factors in the layers' products."""

    steps: int = Field(gt=0)
    batch: int = Field(gt=0)
    validate_every: int = Field(default=500, gt=0)
    validation_graphs: int = Field(default=512, gt=0)
    checkpoint_every: int = Field(default=200, gt=0)
    log_every: int = Field(default=20, gt=0)
    compile: bool = False
    precision: Literal["float32", "bfloat16"] = "float32"


class EvaluateConfig(Frozen):
    """Every `every` steps, and after the last, `graphs` graphs are sampled from the averaged weights with `steps` steps
    of `solver` and measured against `reference` (the dataset's, unless named); the values go into the log."""

    every: int = Field(gt=0)
    graphs: int = Field(default=1000, gt=1)
    steps: int = Field(default=100, gt=0)
    solver: str = "exponential-2"
    seed: int = Field(default=1, ge=0)
    metrics: tuple[str, ...] = Field(min_length=1)
    reference: str | None = None


class TrainConfig(Frozen):
    """Of any family; `schema_of` adds the tables that the family itself defines: [data] and the one of its name."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    family: str
    seed: int = Field(default=0, ge=0)
    begin: str | None = None  # a model of the same network, whose weights a new run begins with
    data: Any
    process: dict[str, ProcessConfig]
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig
    run: RunConfig
    evaluate: EvaluateConfig | None = None
    sampler: SamplerPreset = SamplerPreset()  # goes into the model's card; training does not look at it

    @model_validator(mode="after")
    def _processes_of_the_family(self) -> TrainConfig:
        self.processes()
        return self

    @property
    def record(self) -> Family:
        return find_family(self.family)

    @property
    def training(self) -> Training:
        return training_of(self.record)

    @property
    def network(self) -> Any:
        """The table of the family's name."""
        return getattr(self, self.family)

    def processes(self) -> dict[str, Process]:
        return self.record.make_processes({name: one.settings for name, one in self.process.items()})


@cache
def schema_of(family: Family) -> type[TrainConfig]:
    """What a configuration of `family` is checked by."""
    training = training_of(family)
    tables: dict[str, Any] = {"data": (training.data, ...), family.name: (training.network, ...)}
    return create_model(f"TrainConfig of {family.name}", __base__=TrainConfig, **tables)


def training_of(family: Family) -> Training:
    if family.training is None:
        raise InputError(f"models of the family {family.name} cannot be trained: its record says nothing about it")
    return family.training


def load_config(path: str | Path) -> TrainConfig:
    """Read and check a TOML file; the error names the key."""
    return check_config(read_toml(Path(path)), str(path))


def check_config(values: dict[str, Any], origin: str) -> TrainConfig:
    """A checked configuration; the first problem becomes one line with its key."""
    if not isinstance(family := values.get("family"), str):
        raise InputError(f"{origin}: family: the name of a family is needed, got {family!r}")
    with located(origin):
        schema = schema_of(find_family(family))
    return checked(schema, values, origin)
