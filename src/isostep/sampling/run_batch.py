"""One batch of graphs: prior, loop, settings."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from isostep.model.model import Model
from isostep.noise import BrownianTree, Noise, PhiloxNoise
from isostep.sampler import SamplerSettings
from isostep.sampling.loop import integrate
from isostep.sampling.solution import Solution


def sample_batch(
    model: Model,
    settings: SamplerSettings,
    index: Tensor,
    seed: int,
    *,
    noise: Noise | None = None,
    **options: Any,
) -> Solution:
    """Integrate the graphs `index` as one batch. `options` go to the loop."""
    controller = settings.controller()
    if noise is None:
        # A rejected step must meet the same Brownian path again.
        noise = BrownianTree(seed) if controller.reviews else PhiloxNoise(seed)
    return integrate(
        model,
        model.prior(index, seed),
        controller,
        settings.make_solver(),
        noise,
        index,
        max_steps=settings.max_steps,
        **options,
    )
