"""The paper's tables and figures, each a file in `presets/paper`: what to run, its values, what is not comparable.

A part's model is, in this order: the one the user gives, the released weights (fetched, or under
ISOSTEP_DATA), the small model embedded for that dataset. A part without a model is left out, and the output says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from isostep.base.errors import InputError
from isostep.base.files import read_toml
from isostep.base.schema import Frozen, checked
from isostep.family import find_family
from isostep.metric.mmd import Kernel
from isostep.model.lookup import embedded_names, load_model
from isostep.model.model import Model
from isostep.model.released.known import fetched, known_table
from isostep.study.compute import run_study
from isostep.study.plan import Arm, StudyPlan, parse_seeds
from isostep.study.record import Study
from isostep.study.significance import Verdict


class Quick(Frozen):
    n: int
    seeds: str
    steps: int


class PaperArm(Frozen):
    name: str
    schedule: str
    solver: str
    options: dict[str, Any] = Field(default_factory=dict)
    paper: dict[str, float] = Field(default_factory=dict)
    paper_sd: dict[str, float] = Field(default_factory=dict)


class PaperTest(Frozen):
    """A paired difference that the paper reports; p as printed."""

    arm: str
    metric: str
    difference: float
    low: float | None = None
    high: float | None = None
    p: str
    verdict: Verdict
    pairs: int


class Part(Frozen):
    family: str
    dataset: str
    metrics: tuple[str, ...]
    kernel: Kernel | None = None
    n: int
    paper_n: int | None = None
    arms: tuple[PaperArm, ...]
    paper_tests: tuple[PaperTest, ...] = ()


class Target(Frozen):
    title: str
    seeds: str
    layout: Literal["values", "timing"]
    show: tuple[str, ...] = ()
    notes: tuple[str, ...]
    quick: Quick
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Options:
    """What the user may change; None takes the target's own."""

    quick: bool = False
    model: str | None = None
    n: int | None = None
    seeds: str | None = None
    steps: int | None = None
    command: str = ""


@dataclass(frozen=True)
class Reproduced:
    """What ran: each part with its study, and why other parts did not. `stem` names the files to write in `out`."""

    name: str
    target: Target
    stem: Path
    parts: tuple[tuple[Part, Study], ...]
    left_out: tuple[str, ...]


def target_names() -> list[str]:
    return sorted(item.name.removesuffix(".toml") for item in _folder().iterdir() if item.name.endswith(".toml"))


def load_target(name: str) -> Target:
    if name not in target_names():
        raise InputError(f"unknown target {name!r}; choose one of {', '.join(target_names())}")
    with resources.as_file(_folder() / f"{name}.toml") as path:
        return checked(Target, read_toml(path), str(path))


def reproduce(name: str, out: str | Path, options: Options, **how: Any) -> Reproduced:
    """Run a target. Each model has a folder in `out`, so targets share their runs and models do not mix.

    `how`: workers, device and reuse, as for `run_study`."""
    name = name.upper()
    target = load_target(name)
    given = None if options.model is None else load_model(options.model)
    studies: list[tuple[Part, Study]] = []
    left_out: list[str] = []
    for part in target.parts:
        found = find_model(part, options.model, given, target.parts)
        if isinstance(found, str):
            left_out.append(found)
            continue
        plan = part_plan(name, target, part, found, options)
        folder = Path(out) / model_label(found.model)
        studies.append((part, run_study(plan, folder, found.model, **how)))
    if not studies:
        raise InputError(left_out[0])
    stem = Path(out) / (name if given is None else f"{name}-{model_label(given)}")
    return Reproduced(name, target, stem, tuple(studies), tuple(left_out))


class PartModel(NamedTuple):
    """A part's model, what loads it, and what to say about it."""

    source: str
    model: Model
    note: str


def find_model(part: Part, source: str | None, given: Model | None, parts: tuple[Part, ...]) -> PartModel | str:
    """Which model serves a part; or why none does."""
    if source is not None and given is not None:
        dataset = given.info.dataset
        fits = [p for p in parts if dataset in (p.dataset, f"{p.dataset}-small")]
        if part in fits or (not fits and part == parts[0]):
            return PartModel(source, given, _about(f"Model {given.info.name}, given with --model", given, part))
    title = find_family(part.family).title
    known = known_table()[1].get(f"{part.family}_{part.dataset.replace('-', '_')}")
    if known and (path := fetched(known)):
        return PartModel(str(path), load_model(path), f"Released {title} weights.")
    name = f"{part.family}-{part.dataset}-small"
    if name in embedded_names():
        model = load_model(name)
        about = _about(f"Embedded model {name}, smaller than the paper's", model, part)
        return PartModel(
            name, model, f"{about} Only the order of the arms can be compared; {title}'s own: --model FILE."
        )
    remedy = f"run `isostep fetch {known.name}`, or name" if known else "name"
    return f"{part.dataset}: {title}'s weights are needed; {remedy} the released file or a model with --model FILE"


def _about(origin: str, model: Model, part: Part) -> str:
    info, differs = model.info, []
    if info.dataset != part.dataset:
        differs.append(f"trained on {info.dataset}, the paper's on {part.dataset}")
    if info.family != part.family:
        differs.append(f"of the family {info.family}, the paper's of {part.family}")
    return f"{origin}: {'; '.join(differs)}; values are not comparable." if differs else f"{origin}."


def model_label(model: Model) -> str:
    """A file name that tells models apart, also two files of the same name."""
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '-', model.info.name)}-{model.fingerprint()[:8]}"


def part_plan(name: str, target: Target, part: Part, found: PartModel, options: Options) -> StudyPlan:
    quick, info = target.quick if options.quick else None, found.model.info
    n = options.n or (quick.n if quick else part.n)
    seeds = parse_seeds(options.seeds or (quick.seeds if quick else target.seeds))
    steps = options.steps or (quick.steps if quick else None)
    notes = [found.note]
    if quick:
        notes.append("Quick: fewer graphs, seeds and steps than the full run.")
    if steps and steps != info.sampler.steps:
        notes.append(f"{steps} base steps; the model's preset has {info.sampler.steps}.")
    if part.paper_n and n != part.paper_n:
        notes.append(f"{n} {info.kind}s per seed; the paper has {part.paper_n}.")
    molecules = "valid" in part.metrics
    fitting = molecules == (info.kind == "molecule")
    if not fitting:
        notes.append(f"The model makes {info.kind}s: other metrics than the paper's, whose values have no counterpart.")
    arms = []
    for arm in part.arms:
        chosen: dict[str, Any] = {"schedule": arm.schedule, "solver": arm.solver, "steps": steps}
        if arm.options:
            chosen["schedule_options"] = arm.options
        chosen = {key: value for key, value in chosen.items() if value is not None}
        arms.append(Arm(name=arm.name, chosen=chosen, paper=arm.paper))
    return StudyPlan(
        title=f"{name}, {info.name}", model=found.source, arms=tuple(arms), seeds=seeds, n=n, kernel=part.kernel,
        metrics=part.metrics if fitting else None, notes=(*notes, *target.notes), command=options.command,
    )  # fmt: skip


def _folder():
    return resources.files("isostep") / "presets" / "paper"
