"""A run in a folder: `last.safetensors` to go on from, `best.safetensors` by validation loss, `log.csv`, `loss.png`.

Each file is replaced whole, so a kill at any moment leaves the previous one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from isostep.base.errors import InputError
from isostep.base.files import write_text
from isostep.base.progress import progress as progress_bar
from isostep.training.checkpoint import BEST, LAST, Progress, load_checkpoint, restore, save_checkpoint, state_tensors
from isostep.training.config import TrainConfig
from isostep.training.data import load_data
from isostep.training.export import CONFIG, LOG, export_run
from isostep.training.log import TrainLog
from isostep.training.team import join_team
from isostep.training.trainer import Trainer


def train_run(
    config: TrainConfig,
    path: Path,
    folder: str | Path,
    device: str = "cpu",
    export: Literal["best", "last"] = "best",
    quiet: bool = False,
) -> dict[str, Any] | None:
    """Train in `folder` by the configuration of `path`, then write `folder/model`; None but on the lead process."""
    folder = Path(folder)
    with join_team(device) as team:
        data = load_data(config.data)
        trainer = Trainer(config, data, team)
        state = run(trainer, folder, quiet, text=path.read_text(encoding="utf-8"))
        if not team.leads:
            return None
    export_run(folder, folder / "model", export, data)
    return {
        "name": config.name,
        "step": state.step,
        "seconds": round(state.seconds, 1),
        "best": state.best,
        "model": str(folder / "model"),
    }


def run(
    trainer: Trainer, folder: Path, quiet: bool = False, text: str | None = None, stop_at: int | None = None
) -> Progress:
    """Take all steps that are left; `stop_at` ends earlier without changing the schedule."""
    state = resume(trainer, folder)
    if text is not None and trainer.team.leads:
        write_text(folder / CONFIG, text)
    log = TrainLog(folder / LOG, trainer.done) if trainer.team.leads else None
    end = min(trainer.config.run.steps, stop_at or trainer.config.run.steps)
    with progress_bar(trainer.config.name, end, quiet=quiet or not trainer.team.leads) as advance:
        advance(trainer.done)
        while trainer.done < end:
            state = _step(trainer, folder, state, log, end, advance)
    if log is not None:
        log.plot(folder / "loss.png")
    return state


def _step(
    trainer: Trainer, folder: Path, state: Progress, log: TrainLog | None, end: int, advance: Callable[..., None]
) -> Progress:
    """One update, and what is due after it."""
    every, started = trainer.config.run, time.perf_counter()
    losses = trainer.step()
    k = trainer.done
    validated = trainer.validate() if k % every.validate_every == 0 or k == every.steps else None
    state = replace(state, step=k, seconds=state.seconds + time.perf_counter() - started)
    if log is None:
        return state
    total = float(trainer.objective.total(losses))
    if validated is not None or k % every.log_every == 0:
        log.add(k, total, losses, validated, trainer.learning_rate, state.seconds)
    if validated is not None:
        value = float(trainer.objective.total(validated))
        if state.best is None or value < state.best:
            state = replace(state, best=value)
            save_checkpoint(folder / BEST, state_tensors(trainer.network, trainer.ema), state)
    if k % every.checkpoint_every == 0 or k == end:
        log.flush()
        save_checkpoint(folder / LAST, state_tensors(trainer.network, trainer.ema, trainer.optimizer), state)
    advance(1, note=f"loss {total:.4g}")
    return state


def resume(trainer: Trainer, folder: Path) -> Progress:
    """Put the trainer where the folder's run stopped; a fresh start if there is none."""
    path, mine = folder / LAST, _fingerprint(trainer.config)
    if not path.exists():
        return Progress(config=json.dumps(mine))
    tensors, state = load_checkpoint(path)
    try:
        same = _same(json.loads(state.config), mine, _fingerprint(trainer.config, exclude_defaults=True))
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise InputError(f"{folder} holds a run of another configuration; choose another --out or delete it")
    restore(tensors, trainer.network, trainer.ema, trainer.optimizer)
    trainer.done = state.step
    return replace(state, config=json.dumps(mine))


def _fingerprint(config: TrainConfig, exclude_defaults: bool = False) -> dict[str, Any]:
    """What must stay the same over a resume: all but the length of the run, its decay, and how it is watched."""
    watched = set(type(config.run).model_fields) - {"batch"}
    free: Any = {"run": watched, "optimizer": {"decay_steps"}, "sampler": True}
    return config.model_dump(mode="json", exclude=free, exclude_defaults=exclude_defaults)


def _same(stored: Any, mine: Any, chosen: Any) -> bool:
    """Whether the stored fingerprint is mine; settings that came later than it must have their defaults."""
    if not isinstance(stored, dict) or not isinstance(mine, dict):
        return stored == mine
    return stored.keys() <= mine.keys() and all(
        _same(stored[key], value, chosen.get(key, {})) if key in stored else key not in chosen
        for key, value in mine.items()
    )
