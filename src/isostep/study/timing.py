"""The time of an arm in CPU seconds: after a warm-up, arms in turn, with the share of the noise apart.

One record per arm and seed is kept, so an interrupted measurement goes on. Seconds of different machines, or of one
machine under other load, do not compare; ratios between arms that took turns do.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from isostep.base.files import read_json, write_json
from isostep.base.schema import Frozen, checked
from isostep.base.versions import versions
from isostep.model.model import Model
from isostep.noise import Draw, Noise
from isostep.sampling.batch import sample_batch
from isostep.settings.resolve import build
from isostep.settings.schema import SamplerSettings
from isostep.state import GraphState
from isostep.study.record import key_of

WARM_UP = 5  # steps


class ArmTime(Frozen):
    """One arm and seed: a batch of `n` graphs."""

    arm: str
    seed: int
    n: int
    steps: int
    calls: int
    cpu_seconds: float
    noise_seconds: float


@dataclass
class TimedNoise:
    """A source of noise that adds up the CPU time it takes."""

    source: Noise
    seconds: float = 0.0

    def normal(self, like: GraphState, draw: Draw, stream: int) -> dict[str, torch.Tensor]:
        began = time.process_time()
        out = self.source.normal(like, draw, stream)
        self.seconds += time.process_time() - began
        return out


def time_arm(model: Model, settings: SamplerSettings, arm: str, seed: int, n: int, folder: Path) -> ArmTime:
    """The stored record, or a measurement."""
    inputs = {"model": model.fingerprint(), "settings": settings.model_dump(mode="json"), "seed": seed, "n": n}
    path = folder / "times" / f"{key_of([inputs, versions()])}.json"
    if path.is_file():
        return checked(ArmTime, {**read_json(path), "arm": arm}, str(path), "delete it, and it is measured again")
    found = _measure(model, settings, arm, seed, n)
    write_json(path, found.model_dump(mode="json"))
    return found


def warm_up(model: Model, settings: SamplerSettings, n: int, seed: int, noise: Noise | None = None) -> None:
    """A few steps of a small batch: what is compiled or loaded at the first use is there afterwards."""
    short: dict[str, Any] = {"max_steps": WARM_UP}
    sample_batch(model, settings.model_copy(update=short), torch.arange(n), seed, noise=noise)


def _measure(model: Model, settings: SamplerSettings, arm: str, seed: int, n: int) -> ArmTime:
    index = torch.arange(n)
    warm_up(model, settings, n, seed)
    noise = TimedNoise(build(settings).noise(seed))
    began = time.process_time()
    solution = sample_batch(model, settings, index, seed, noise=noise)
    spent = time.process_time() - began
    return ArmTime(
        arm=arm,
        seed=seed,
        n=n,
        steps=int(solution.steps.max()),
        calls=solution.batch_calls,
        cpu_seconds=spent,
        noise_seconds=noise.seconds,
    )
