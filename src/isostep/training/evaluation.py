"""Samples on the way: graphs from the averaged weights, measured. Training's random numbers are not touched."""

from __future__ import annotations

import contextlib

from torch import nn

from isostep.base.errors import InputError
from isostep.dataset import load
from isostep.dataset.examples import TrainingData
from isostep.metric.evaluate import evaluate
from isostep.model.model import Model
from isostep.sampling.run import sample
from isostep.training.config import EvaluateConfig, TrainConfig
from isostep.training.export import card

TRIED = 32  # training graphs on which a run tries its metrics before it starts


class Evaluator:
    """What `[evaluate]` of a configuration asks for; metrics that cannot be computed here are refused at once."""

    def __init__(self, config: TrainConfig, data: TrainingData, settings: EvaluateConfig) -> None:
        self.settings, self.reference = settings, settings.reference or config.data.name
        self.info = card(config, data, "in training")
        evaluate(load(config.data.name).split("train")[:TRIED], self.reference, metrics=settings.metrics, resamples=0)

    def due(self, step: int, steps: int) -> bool:
        return step % self.settings.every == 0 or step == steps

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """Values by metric; one that is not defined for these graphs (none is valid, say) is left out."""
        s = self.settings
        weights = {name: value.detach().cpu() for name, value in network.state_dict().items()}
        model, values = Model.of(self.info, weights), {}
        result = sample(model, s.graphs, schedule="uniform", solver=s.solver, steps=s.steps, seed=s.seed)
        for key in s.metrics:
            with contextlib.suppress(InputError):
                values[key] = evaluate(result, self.reference, metrics=[key], resamples=0).values[key].value
        return values
