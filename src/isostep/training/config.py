"""What a training run is: one TOML file, checked key by key before anything starts."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from isostep.base.errors import InputError
from isostep.process import PROCESSES, Process
from isostep.settings.schema import SamplerPreset

Positive = Field(gt=0)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DataConfig(Section):
    """`name` as in `isostep data list`; `holdout` is the share of training graphs kept for validation where the
    dataset has no validation split of its own."""

    name: str
    features: Literal["atoms", "eigenvectors", "degree"]
    max_nodes: int | None = Field(default=None, gt=1)
    degree_classes: int = Field(default=10, gt=0)
    holdout: float = Field(default=0.02, gt=0, lt=1)


class ProcessConfig(Section):
    """One component's process: the name and its numbers, such as sigma_0 or beta_max."""

    model_config = ConfigDict(frozen=True, extra="allow")
    type: str
    weight: Literal["default", "const"] = "default"
    cap: float | None = Field(default=None, gt=0)

    @property
    def numbers(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def build(self) -> Process:
        if self.type not in PROCESSES:
            raise InputError(f"unknown process type {self.type!r}; choose one of {', '.join(PROCESSES)}")
        try:
            return PROCESSES[self.type](**self.numbers)
        except TypeError as error:
            raise InputError(f"process {self.type} does not take {sorted(self.numbers)}: {error}") from error


class ProcessesConfig(Section):
    X: ProcessConfig
    A: ProcessConfig


class GrumConfig(Section):
    """Widths of the graph transformer; `mlp` and `ff` are the hidden widths of the input/output and inner blocks."""

    layers: int = Positive
    dx: int = Positive
    de: int = Positive
    dy: int = Positive
    heads: int = Positive
    ff_x: int = Positive
    ff_e: int = Positive
    ff_y: int = Field(default=2048, gt=0)
    mlp_x: int = Positive
    mlp_e: int = Positive
    mlp_y: int = Positive
    dropout: float = Field(default=0.1, ge=0, lt=1)


class GdssConfig(Section):
    """Settings of the two score networks, named as in the released files."""

    node_network: Literal["ScoreNetworkX", "ScoreNetworkX_GMH"] = "ScoreNetworkX"
    depth: int = Positive
    nhid: int = Positive
    adim: int = Positive
    num_heads: int = Positive
    num_layers: int = Positive
    num_linears: int = Positive
    c_init: int = Positive
    c_hid: int = Positive
    c_final: int = Positive


class LossConfig(Section):
    """`eps`: times are drawn from (0, 1 - eps); `edges`: factor of the adjacency's loss; `strata`: one time from each
    of `batch` equal parts of that interval, which is the same mean with less noise."""

    eps: float = Field(default=2e-3, gt=0, lt=1)
    edges: float = Field(default=5.0, gt=0)
    strata: bool = False


class OptimizerConfig(Section):
    """Learning rate: linear warm-up, level, then linear decay to `lr_end` over the last `decay_steps`.

    `lr_factor` multiplies it once per epoch besides (GDSS' exponential schedule).
    """

    kind: Literal["adamw", "adam"] = "adamw"
    lr: float = Field(gt=0)
    lr_end: float = Field(default=0.0, ge=0)
    warmup_steps: int = Field(default=0, ge=0)
    decay_steps: int = Field(default=0, ge=0)
    lr_factor: float = Field(default=1.0, gt=0, le=1)
    weight_decay: float = Field(default=1e-12, ge=0)
    amsgrad: bool = True
    grad_clip: float = Field(default=1.0, gt=0)
    ema: float = Field(default=0.999, ge=0, lt=1)


class RunConfig(Section):
    """Lengths in steps. `validation_graphs` is rounded to whole batches; `compile` fuses the network's operations: a
    slow start, then a multiple of the speed."""

    steps: int = Positive
    batch: int = Positive
    validate_every: int = Field(default=500, gt=0)
    validation_graphs: int = Field(default=512, gt=0)
    checkpoint_every: int = Field(default=200, gt=0)
    log_every: int = Field(default=20, gt=0)
    compile: bool = False


class EvaluateConfig(Section):
    """Every `every` steps, and after the last, `graphs` graphs are sampled from the averaged weights with `steps` steps
    of `solver` and measured against `reference` (the dataset's, unless named); the values go into the log."""

    every: int = Positive
    graphs: int = Field(default=1000, gt=1)
    steps: int = Field(default=100, gt=0)
    solver: str = "exponential-2"
    seed: int = Field(default=1, ge=0)
    metrics: tuple[str, ...] = Field(min_length=1)
    reference: str | None = None


class TrainConfig(Section):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    family: Literal["grum", "gdss"]
    seed: int = Field(default=0, ge=0)
    data: DataConfig
    process: ProcessesConfig
    grum: GrumConfig | None = None
    gdss: GdssConfig | None = None
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig
    run: RunConfig
    evaluate: EvaluateConfig | None = None
    sampler: SamplerPreset = SamplerPreset()  # goes into the model's card; training does not look at it

    @model_validator(mode="after")
    def _network_of_the_family(self) -> TrainConfig:
        other = "gdss" if self.family == "grum" else "grum"
        if getattr(self, self.family) is None or getattr(self, other) is not None:
            raise ValueError(f"family {self.family!r} needs the table [{self.family}] and no [{other}]")
        return self


def load_config(path: str | Path) -> TrainConfig:
    """Read and check a TOML file; the error names the key."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from error
    return check_config(values, str(path))


def check_config(values: dict[str, Any], origin: str) -> TrainConfig:
    """A checked configuration; the first problem becomes one line with its key."""
    try:
        return TrainConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "file"
        seen = "" if first["type"] == "missing" or isinstance(first["input"], dict) else f", got {first['input']!r}"
        raise InputError(f"{origin}: {key}: {first['msg']}{seen}") from None
