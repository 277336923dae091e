"""From a training run to a model folder: averaged weights in float16, the card, the configuration and the log."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import torch

from isostep.base.errors import InputError
from isostep.base.files import replacing
from isostep.dataset.examples import TrainingData
from isostep.model.card import ModelInfo, Provenance
from isostep.model.folder import save_model
from isostep.training.checkpoint import BEST, LAST, load_checkpoint, part
from isostep.training.config import TrainConfig, load_config
from isostep.training.log import CONFIG, LOG


def export_run(
    run: str | Path, out: str | Path, checkpoint: Literal["best", "last"] = "best", data: TrainingData | None = None
) -> ModelInfo:
    """Write the model folder `out` from the run folder `run`."""
    run, out = Path(run), Path(out)
    config = load_config(run / CONFIG)
    path = run / (BEST if checkpoint == "best" else LAST)
    if not path.exists():
        raise InputError(f"{run} has no {path.name}; train for at least run.validate_every steps first")
    tensors, progress = load_checkpoint(path)
    weights = {name: value.to(torch.float16) for name, value in part(tensors, "ema.").items()}
    data = data or config.training.load(config.data)
    source = f"trained by isostep, seed {config.seed}, {progress.step} steps, {progress.seconds / 60:.0f} minutes"
    if config.begin is not None:
        source += f", from the weights of {Path(config.begin).name}"
    info = save_model(out, card(config, data, source), weights)
    for name in (CONFIG, LOG):
        if (run / name).exists():
            with replacing(out / name) as temporary:
                shutil.copyfile(run / name, temporary)
    return info


def card(config: TrainConfig, data: TrainingData, source: str) -> ModelInfo:
    """The model's card."""
    spec = data.spec
    return ModelInfo(
        name=config.name,
        family=config.family,
        dataset=config.data.name,
        network=config.training.params(config.network, config.data, data),
        process={name: one.settings for name, one in config.process.items()},
        max_nodes=data.max_nodes,
        features=dict(data.widths),
        node_counts=tuple((n, count) for n, count in enumerate(data.node_counts) if n and count),
        atoms=None if spec is None else spec.atoms,
        scale=1.0 if spec is None else spec.scale,
        sampler=config.sampler,
        weights="ema",
        provenance=Provenance(source=source, licence="Apache-2.0", command=f"isostep train {config.name}"),
    )
