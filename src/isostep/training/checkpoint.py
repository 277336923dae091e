"""A checkpoint is one safetensors file, written whole or not at all: tensors, and progress as JSON in its header."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from isostep.base.errors import InputError
from isostep.base.files import replacing

KEY = "isostep"
LAST, BEST = "last.safetensors", "best.safetensors"


@dataclass(frozen=True)
class Progress:
    """Steps done, lowest validation loss so far (None: not yet measured), seconds spent by the clock and by the
    processor, and the configuration."""

    step: int = 0
    best: float | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    config: str = ""

    def check(self) -> None:
        """A header can hold anything."""
        number = (int, float)
        if type(self.step) is not int or self.step < 0 or not isinstance(self.config, str):
            raise ValueError(f"step {self.step!r} is not a step")
        for value in (self.seconds, self.cpu_seconds, 0 if self.best is None else self.best):
            if not isinstance(value, number):
                raise ValueError(f"{value!r} is not a number")


def save_checkpoint(path: Path, tensors: dict[str, Tensor], progress: Progress) -> None:
    with replacing(path) as temporary:
        flat = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        save_file(flat, temporary, metadata={KEY: json.dumps(asdict(progress))})


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], Progress]:
    try:
        with safe_open(path, "pt") as file:
            progress = Progress(**json.loads((file.metadata() or {})[KEY]))
            progress.check()
            return {name: file.get_tensor(name) for name in file.keys()}, progress  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a training checkpoint: {error}; delete it to start anew") from error


def state_tensors(network: nn.Module, ema: nn.Module, optimizers: Sequence[Optimizer] = ()) -> dict[str, Tensor]:
    """Raw and averaged weights, and the optimizers' moments by parameter name."""
    tensors = {f"raw.{name}": value for name, value in network.state_dict().items()}
    tensors |= {f"ema.{name}": value for name, value in ema.state_dict().items()}
    for optimizer in optimizers:
        for name, parameter in network.named_parameters():
            moments = optimizer.state.get(parameter, {})
            tensors |= {f"opt.{kind}.{name}": value for kind, value in moments.items()}
    return tensors


def restore(tensors: dict[str, Tensor], network: nn.Module, ema: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    """Put a checkpoint's tensors back; the optimizers continue as if they had never stopped."""
    network.load_state_dict(part(tensors, "raw."))
    ema.load_state_dict(part(tensors, "ema."))
    parameters = dict(network.named_parameters())
    owner = {p: one for one in optimizers for group in one.param_groups for p in group["params"]}
    for key, value in part(tensors, "opt.").items():
        kind, _, name = key.partition(".")
        if (parameter := parameters.get(name)) is not None:
            owner[parameter].state[parameter][kind] = value if kind == "step" else value.to(parameter.device)


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
