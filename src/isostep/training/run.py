"""A run in a folder: `last.safetensors` to go on from, `best.safetensors` by validation loss, `log.csv`.

Each file is replaced whole, so a kill at any moment leaves the previous one. An interrupt (Ctrl-C) is taken after the
step: everything is saved first.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from isostep.base.errors import InputError
from isostep.base.files import write_text
from isostep.base.progress import Interrupted, Task, log, progress
from isostep.training.checkpoint import BEST, LAST, Progress, load_checkpoint, restore, save_checkpoint, state_tensors
from isostep.training.config import TrainConfig, check_config
from isostep.training.evaluation import Evaluator
from isostep.training.export import export_run
from isostep.training.log import CONFIG, LOG, TrainLog
from isostep.training.loss import Losses
from isostep.training.ranks import join_ranks
from isostep.training.trainer import Trainer


def train_run(
    config: TrainConfig,
    path: Path,
    folder: str | Path,
    device: str = "cpu",
    export: Literal["best", "last"] = "best",
) -> dict[str, Any] | None:
    """Train in `folder` by the configuration of `path`, then write `folder/model`; None but on the lead process."""
    folder = Path(folder)
    with join_ranks(device) as ranks:
        if not ranks.leads:
            log.setLevel(logging.WARNING)
        data = config.training.load(config.data)
        trainer = Trainer(config, data, ranks)
        state = run(trainer, folder, text=path.read_text(encoding="utf-8"))
        if not ranks.leads:
            return None
    export_run(folder, folder / "model", export, data)
    return {
        "name": config.name,
        "step": state.step,
        "seconds": round(state.seconds, 1),
        "best": state.best,
        "model": str(folder / "model"),
    }


def run(trainer: Trainer, folder: Path, text: str | None = None, stop_at: int | None = None) -> Progress:
    """Take all steps that are left; `stop_at` ends earlier without changing the schedule."""
    config, leads = trainer.config, trainer.ranks.leads
    state = resume(trainer, folder)
    end = min(config.run.steps, stop_at or config.run.steps)
    evaluation = None
    if config.evaluate is not None and leads and trainer.done < end:
        evaluation = Evaluator(config, trainer.data, config.evaluate)
    if text is not None and leads:
        write_text(folder / CONFIG, text)
    rows = TrainLog(folder / LOG, trainer.done) if leads else None
    if trainer.done >= config.run.steps and (state.best is None or math.isnan(state.best)):
        state = _validated(trainer, folder, state, rows)
    weights = sum(p.numel() for p in trainer.network.parameters())
    kept = f"{folder} keeps the last checkpoint, if there is one; the same command goes on from it"
    with (
        progress(f"training {config.name}", end, "steps", had=trainer.done, kept=kept) as task,
        _interrupt(trainer.ranks.size == 1) as asked,
    ):
        task.say(
            f"{weights / 1e6:.2f} million weights, {config.run.batch} graphs a step, from step {trainer.done} to {end}"
        )
        while trainer.done < end:
            state = _step(trainer, folder, state, rows, end, evaluation, task)
            if asked.is_set():
                _save(trainer, folder, state, rows)
                raise Interrupted(f"{folder} keeps all {state.step} steps; the same command goes on")
    return state


def _step(
    trainer: Trainer,
    folder: Path,
    state: Progress,
    rows: TrainLog | None,
    end: int,
    evaluation: Evaluator | None,
    task: Task,
) -> Progress:
    """One update, and what is due after it; a loss that is not finite ends the run before any of it is saved."""
    every, started, worked = trainer.config.run, time.perf_counter(), time.process_time()
    losses = trainer.step()
    k = trainer.done
    validated = trainer.validate() if k % every.validate_every == 0 or k == every.steps else None
    if rows is None:
        return replace(state, step=k)
    total = _total(trainer, losses, folder)
    value = None if validated is None else _total(trainer, validated, folder)
    measured = evaluation(trainer.ema) if evaluation is not None and evaluation.due(k, every.steps) else {}
    spent, cpu = time.perf_counter() - started, time.process_time() - worked
    state = replace(state, step=k, seconds=state.seconds + spent, cpu_seconds=state.cpu_seconds + cpu)
    numbers = {"loss": total, **_numbers(losses), **_numbers(validated or {}, "val_"), "lr": trainer.learning_rate}
    if validated is not None or measured or k % every.log_every == 0:
        rows.add(k, {**numbers, **measured}, state.seconds, state.cpu_seconds)
    if value is not None:
        state = _kept_best(trainer, folder, state, value)
    if measured:
        task.say(f"step {k}, " + ", ".join(f"{key} {value:.4g}" for key, value in measured.items()))
    if k % every.checkpoint_every == 0 or k == end or measured:
        _save(trainer, folder, state, rows)
    task(note=f"loss {total:.4g}")
    return state


def _total(trainer: Trainer, losses: Losses, folder: Path) -> float:
    total = float(trainer.objective.total(losses))
    if not math.isfinite(total):
        raise _diverged(trainer, folder, f"the loss is {total}")
    return total


def _diverged(trainer: Trainer, folder: Path, what: str) -> InputError:
    kept = f"in another --out ({folder} keeps the checkpoint before)"
    kept = kept if (folder / LAST).exists() else "again (there is no checkpoint yet)"
    lower = f"lower optimizer.lr, now {trainer.config.optimizer.lr:g}, and start {kept}"
    return InputError(f"training diverged: {what} at step {trainer.done}; {lower}")


def _validated(trainer: Trainer, folder: Path, state: Progress, rows: TrainLog | None) -> Progress:
    """A run that ends before its first validation: that of the weights it has."""
    losses = trainer.validate()
    if rows is not None:
        state = _kept_best(trainer, folder, state, _total(trainer, losses, folder))
        rows.add(state.step, _numbers(losses, "val_"), state.seconds, state.cpu_seconds)
        _save(trainer, folder, state, rows)
    return state


def _kept_best(trainer: Trainer, folder: Path, state: Progress, value: float) -> Progress:
    """Save the weights if `value`, their validation loss, is the lowest so far."""
    if state.best is not None and state.best <= value:
        return state
    state = replace(state, best=value)
    save_checkpoint(folder / BEST, state_tensors(trainer.network, trainer.ema), state)
    return state


def _numbers(losses: Losses, kind: str = "") -> dict[str, float]:
    return {f"{kind}loss_{name}": float(value) for name, value in losses.items()}


def _save(trainer: Trainer, folder: Path, state: Progress, rows: TrainLog | None) -> None:
    if rows is not None:
        # A loss says nothing of its own step's update, nor of what other processes put into it.
        if not torch.stack([weight.isfinite().all() for weight in trainer.network.parameters()]).all():
            raise _diverged(trainer, folder, "a weight is not finite")
        rows.flush()
        save_checkpoint(folder / LAST, state_tensors(trainer.network, trainer.ema, trainer.optimizers), state)


@contextlib.contextmanager
def _interrupt(possible: bool) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second one ends the process as usual."""
    asked = threading.Event()
    if not possible or threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(*_: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def resume(trainer: Trainer, folder: Path) -> Progress:
    """Put the trainer where the folder's run stopped; a fresh start if there is none."""
    path, mine = folder / LAST, _fingerprint(trainer.config)
    if not path.exists():
        trainer.begin()
        return Progress(config=mine)
    tensors, state = load_checkpoint(path)
    if _of_today(state.config, trainer.config) != mine:
        raise InputError(f"{folder} holds a run of another configuration; choose another --out or delete it")
    restore(tensors, trainer.network, trainer.ema, trainer.optimizers)
    trainer.done = state.step
    return replace(state, config=mine)


def _fingerprint(config: TrainConfig) -> str:
    """What must stay the same over a resume: all but the length of the run, its decay, and how it is watched."""
    of_run = {"steps", "validate_every", "checkpoint_every", "log_every", "compile"}
    free: Any = {"run": of_run, "optimizer": {"decay_steps"}, "sampler": True, "evaluate": True}
    return config.model_dump_json(exclude=free)


def _of_today(fingerprint: str, config: TrainConfig) -> str | None:
    """A checkpoint's fingerprint as it would be written now: settings that came later have their defaults."""
    try:
        stored = {key: value for key, value in json.loads(fingerprint).items() if value is not None}
        if stored["run"].keys() == {"batch"}:  # earlier versions stored no more of [run]: it counts as unchanged
            stored["run"] = {**config.run.model_dump(), **stored["run"]}
        stored["run"] = {**stored["run"], "steps": config.run.steps}
        return _fingerprint(check_config(stored, LAST))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return None
