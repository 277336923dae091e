"""One batch of graphs: prior, loop, settings."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from isostep.loop import integrate
from isostep.model.model import Model
from isostep.noise import Noise
from isostep.settings.resolve import build
from isostep.settings.schema import SamplerSettings
from isostep.solution import Solution
from isostep.state import GraphState


def sample_batch(
    model: Model,
    settings: SamplerSettings,
    index: Tensor,
    seed: int,
    *,
    slots: int | None = None,
    noise: Noise | None = None,
    **options: Any,
) -> Solution:
    """Integrate the graphs `index`, at most `slots` at a time (default: all); `options` go to the loop.

    Beyond `slots`, graphs wait in a queue and take the places of finished ones.
    """
    slots = len(index) if slots is None else slots
    waiting = slots

    def refill(count: int) -> tuple[GraphState, Tensor] | None:
        nonlocal waiting
        rows = index[waiting : waiting + count]
        waiting += len(rows)
        return (model.prior(rows, seed), rows.to(model.device)) if len(rows) else None

    sampler = build(settings)
    return integrate(
        model,
        model.prior(index[:slots], seed),
        sampler.controller,
        sampler.solver,
        noise or sampler.noise(seed),
        index[:slots],
        max_steps=settings.max_steps,
        refill=refill if slots < len(index) else None,
        **options,
    )
