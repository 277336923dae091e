"""Run a study: every arm with every seed; what is stored is not computed again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from isostep.base.errors import InputError, IsostepError
from isostep.base.files import read_json
from isostep.base.progress import progress
from isostep.base.versions import versions
from isostep.metric.suite import check_metrics, suite_of
from isostep.model.lookup import load_model
from isostep.model.model import Model
from isostep.noise import BrownianTree
from isostep.run.engine import Engine
from isostep.run.workers import dump_work
from isostep.sampling.calibrate import pilot_for, prepare
from isostep.sampling.run import sample
from isostep.settings.resolve import budget_knob, build, resolve
from isostep.settings.schema import SamplerSettings
from isostep.study.cell import TIMES, at_time, evaluate_run, is_complete, write_cell_run
from isostep.study.film import Camera
from isostep.study.plan import Arm, StudyPlan
from isostep.study.record import (
    ArmRecord,
    Cell,
    Decided,
    ModelRecord,
    ReferenceRecord,
    Store,
    Study,
    StudyRecord,
    key_of,
)
from isostep.study.reference import StudyReference, find_reference
from isostep.study.reuse import copy_cell, leave_word
from isostep.study.timing import warm_up


def run_study(
    plan: StudyPlan,
    out: str | Path,
    model: Model | None = None,
    *,
    workers: int = 1,
    device: str | None = None,
    reuse: bool = True,
) -> Study:
    """Compute what is missing of a plan in the folder `out`; seeds run in the outer loop, so pairs come early.

    `workers` processes compute cells at the same time; the numbers do not depend on it. `reuse`: runs and cells that
    another study of this machine has computed with the same code are copied.
    """
    model = load_model(plan.model if model is None else model, plan.weights if model is None else None, device)
    store = Store(Path(out))
    reference = find_reference(plan.reference or model.info.dataset, plan.kernel)
    metrics = plan.metrics or suite_of(model.info.kind).usual
    check_metrics(model.info.kind, reference.reference, plan.metrics or (), reference.name, reference.rule)
    identity = model.fingerprint()
    resolved = [_settings(model, arm.chosen, arm.calls) for arm in plan.arms]
    runs = [
        {
            seed: _run_inputs(
                identity, at_seed(arm, settings, seed), seed, plan, plan.record and seed == plan.seeds[0], model
            )
            for seed in plan.seeds
        }
        for arm, (settings, _) in zip(plan.arms, resolved, strict=True)
    ]
    measured = [reference.sha256, reference.kernel, list(metrics)]
    keys = [{seed: key_of([inputs, *measured]) for seed, inputs in row.items()} for row in runs]
    decided = _decided(model, resolved[-1][0]) if plan.record else Decided()
    about = {name: getattr(model.info, name) for name in ("name", "kind", "family", "dataset", "weights")}
    record = StudyRecord(
        plan=plan,
        model=ModelRecord(**about, source=model.info.provenance.source, fingerprint=identity),
        reference=ReferenceRecord(name=reference.name, sha256=reference.sha256, kernel=reference.kernel),
        metrics=metrics,
        arms=tuple(
            ArmRecord(name=arm.name, settings=settings.model_dump(mode="json"), note=note, cells=row)
            for arm, (settings, note), row in zip(plan.arms, resolved, keys, strict=True)
        ),
        versions=versions(),
        decided=decided,
    )
    store.write_study(record)
    cells = [key for row in keys for key in row.values()]

    def kept() -> str:
        there = sum(store.cell(key).is_file() for key in cells)
        return f"{store.folder} keeps {there} of {len(cells)} arms and seeds; the same command goes on"

    def todo() -> Iterator[CellTask]:
        begun: set[str] = set()  # arms of equal settings are one cell
        for seed in plan.seeds:
            for k, arm in enumerate(plan.arms):
                key, run = keys[k][seed], key_of(runs[k][seed])
                there = store.read_cell(key) is not None and is_complete(store.run(run))
                if key in begun or there or (reuse and copy_cell(store, run, key)):
                    shown.skip(plan.n)
                    continue
                begun.add(key)
                shown.say(f"{arm.name}, seed {seed}")
                yield CellTask(k, seed, plan.n, key, run, runs[k][seed]["record"])

    work = StudyWork(model, plan, tuple(settings for settings, _ in resolved), reference, metrics, store)
    failed: list[str] = []
    with (
        progress(f"study {plan.title}", plan.n * len(cells), "graphs", kept=kept) as shown,
        contextlib.closing(Engine(workers).outcomes(work, todo(), shown)) as outcomes,  # type: ignore[type-var]
    ):
        for task, cell, reason in outcomes:
            if cell is None:
                failed.append(f"{plan.arms[task.arm].name}, seed {task.seed}: {reason}")
                continue
            store.write_cell(task.key, cell)
            if reuse:
                leave_word(store, task.run)
    if failed:
        raise IsostepError(f"{len(failed)} cells failed, the first is {failed[0]}; the others are kept: try again")
    return store.study(record)  # its own record: another command may have used the folder meanwhile


@dataclass(frozen=True)
class CellTask:
    """An arm's graphs for one seed, and their metrics."""

    arm: int
    seed: int
    n: int
    key: str
    run: str
    record: bool


@dataclass(frozen=True)
class StudyWork:
    """What the cells of a study share. A worker writes its run's folder itself, which nobody else writes."""

    model: Model
    plan: StudyPlan
    settings: tuple[SamplerSettings, ...]
    reference: StudyReference
    metrics: tuple[str, ...]
    store: Store

    def dumps(self) -> bytes:
        return dump_work(self)

    def run(self, task: CellTask, progress: Callable[[float], None] | None = None) -> Cell:
        folder = self.store.run(task.run)
        if not is_complete(folder):
            plan, camera = self.plan, Camera() if task.record else None
            settings = at_seed(plan.arms[task.arm], self.settings[task.arm], task.seed)
            warm_up(self.model, settings, 2, task.seed, BrownianTree(task.seed) if plan.noise == "path" else None)
            result = sample(
                self.model, plan.n, settings=settings,
                seed=task.seed, batch_size=plan.batch_size, noise=plan.noise, trace=int(task.record),
                snapshots=TIMES if camera else (), hooks=(camera,) if camera else (), progress=progress,
            )  # fmt: skip
            write_cell_run(folder, result, camera, plan.model)
        return _cell(self.store, task.run, task.seed, self.reference, self.metrics)


def _settings(model: Model, chosen: dict, calls: int | None) -> tuple[SamplerSettings, str]:
    """An arm's settings with everything measured filled in, and what a budget came to."""
    settings = prepare(model, resolve(model.info.sampler, calls, **{"clock": "batch", **chosen}), calls)
    if calls is None:
        return settings, ""
    knob = budget_knob(settings)
    if knob is None:
        each = build(settings).solver.calls_per_step
        return settings, f"{settings.steps} steps of {each} calls" if each > 1 else ""
    value = getattr(settings, knob.table)[knob.name]
    return settings, f"{knob.name} {value:.4g}, found on a pilot for {calls} calls"


def at_seed(arm: Arm, settings: SamplerSettings, seed: int) -> SamplerSettings:
    """A control's steps are those that the arm it belongs to took with this seed."""
    return settings.model_copy(update={"steps": arm.steps_by_seed.get(seed, settings.steps)})


def _run_inputs(
    identity: str, settings: SamplerSettings, seed: int, plan: StudyPlan, record: bool, model: Model
) -> dict[str, Any]:
    """Everything that decides a run's graphs."""
    elsewhere = {} if model.device.type == "cpu" else {"device": model.device.type}  # rounds otherwise
    return {
        "model": identity,
        "settings": settings.model_dump(mode="json"),
        "seed": seed,
        "n": plan.n,
        "batch_size": plan.batch_size,
        "noise": plan.noise,
        "record": record,
        "isostep": metadata.version("isostep"),
        **elsewhere,
    }


def _cell(store: Store, run: str, seed: int, reference: StudyReference, metrics: tuple[str, ...]) -> Cell:
    folder = store.run(run)
    summary = read_json(folder / "run.json")["summary"]
    began = time.perf_counter()
    values, report = evaluate_run(folder, reference, metrics)
    evaluating = time.perf_counter() - began
    along = [t for t in TIMES if at_time(folder, t).is_dir()]
    return Cell(
        run=run,
        seed=seed,
        metrics=values,
        better=report.better,
        bounds=report.bounds,
        undefined=report.undefined,
        calls=summary["calls_mean"],
        steps=summary["steps_mean"],
        seconds=summary["seconds"],
        evaluating=evaluating,
        unfinished=summary["graphs"] - summary["done"],
        path_metrics={t: evaluate_run(at_time(folder, t), reference, metrics)[0] for t in along},
    )


def _decided(model: Model, settings: SamplerSettings) -> Decided:
    """From the pilot that calibrated grids use, so it is measured once."""
    if not getattr(model.decoder, "levels", None):
        return Decided()
    try:
        pilot = pilot_for(model, settings)
    except InputError:  # a path without information rates, such as one without noise
        return Decided()
    if not pilot.decisions:  # a drift of one's own predicts no graph
        return Decided()
    rate = np.sum(list(pilot.decisions.values()), axis=0)
    t = np.array([0.0, *pilot.t, 1.0])
    rate = np.array([rate[0], *rate, rate[-1]])
    length = np.concatenate([[0.0], np.cumsum((rate[1:] + rate[:-1]) / 2 * np.diff(t))])
    return Decided(t=tuple(t.tolist()), share=tuple((length / length[-1]).tolist()))
