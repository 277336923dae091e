"""The paper's tables and figures, each a file in `presets/paper`: what to run, its values, what is not comparable.

A part's model is the one the user gives, which serves the part of its dataset alone; else the released weights
(fetched, or under ISOSTEP_DATA), else the model embedded for that dataset, the larger of two. A part without a model
is left out, and the output says so.
Controls (`study/controls.py`) run last, since they take as many steps as the DVS arms took.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from isostep.base.errors import InputError
from isostep.base.files import packaged, read_toml
from isostep.base.progress import progress
from isostep.base.schema import Frozen, M, checked
from isostep.family import find_family
from isostep.metric.mmd import Kernel
from isostep.metric.suite import suite_of
from isostep.model.lookup import embedded_names, load_model
from isostep.model.model import Model
from isostep.model.released.known import fetched, known_table
from isostep.settings.resolve import resolve
from isostep.settings.schema import SamplerSettings
from isostep.study.compute import at_seed, run_study
from isostep.study.constants import ConstantTable, constants_of, departures
from isostep.study.controls import control_arm
from isostep.study.plan import Arm, StudyPlan, parse_seeds
from isostep.study.record import Study
from isostep.study.significance import Verdict
from isostep.study.timing import ArmTime, time_arm

ONE_BATCH = 1024  # up to so many graphs are one batch, so that a control's calls equal those of DVS exactly
CONSTANTS = ("T6", "T7")  # tables of constants: nothing to run


class Quick(Frozen):
    n: int
    seeds: str
    steps: int


class PaperArm(Frozen):
    """`control_of`: takes as many steps as that arm. Without `paper` values it is an arm of ours."""

    name: str
    schedule: str
    solver: str
    options: dict[str, Any] = Field(default_factory=dict)
    paper: dict[str, float] = Field(default_factory=dict)
    paper_sd: dict[str, float] = Field(default_factory=dict)
    control_of: str | None = None


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
    program_weights: Literal["raw", "ema"] | None = None  # that the authors' program takes
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
    """What the user may change; None takes the target's own. `arms`: names or their beginnings, with semicolons."""

    quick: bool = False
    model: str | None = None
    n: int | None = None
    seeds: str | None = None
    steps: int | None = None
    weights: str | None = None
    arms: str | None = None
    command: str = ""


@dataclass(frozen=True)
class PartResult:
    """A part that ran: its study or, for run times, the records of its arms; and the constants of every arm."""

    part: Part
    model: str
    notes: tuple[str, ...]
    constants: dict[str, dict[str, Any]]
    study: Study | None = None
    times: tuple[ArmTime, ...] = ()


@dataclass(frozen=True)
class Reproduced:
    """What ran: its parts, and why others did not. `stem` names the files to write in `out`."""

    name: str
    target: Target
    stem: Path
    parts: tuple[PartResult, ...]
    left_out: tuple[str, ...]


def target_names() -> list[str]:
    return sorted(packaged("paper"), key=lambda name: (name[0] != "T", int(name[1:])))


def load_target(name: str) -> Target:
    return _load(Target, name)


def load_constant_table(name: str) -> ConstantTable:
    return _load(ConstantTable, name)


def _load(kind: type[M], name: str) -> M:
    if name not in target_names():
        raise InputError(f"unknown target {name!r}; choose one of {', '.join(target_names())}")
    path = packaged("paper")[name]
    return checked(kind, read_toml(path), str(path))


def reproduce(name: str, out: str | Path, options: Options, **how: Any) -> Reproduced:
    """Run a target. Each model has a folder in `out`, so targets share their runs and models do not mix.

    `how`: workers, device and reuse, as for `run_study`."""
    name = name.upper()
    target = load_target(name)
    given = None if options.model is None else load_model(options.model, options.weights)
    results: list[PartResult] = []
    left_out: list[str] = []
    for part in target.parts:
        found = find_model(part, options, given, target.parts)
        if isinstance(found, str):
            left_out.append(found)
            continue
        part = part.model_copy(update={"arms": chosen_arms(part.arms, options.arms)})
        plan = part_plan(name, target, part, found, options)
        folder = Path(out) / model_label(found.model)
        run = time_part if target.layout == "timing" else study_part
        results.append(run(part, plan, found.model, folder, **how))
    if not results:
        raise InputError(left_out[0])
    stem = Path(out) / (name if given is None else f"{name}-{model_label(given)}")
    return Reproduced(name, target, stem, tuple(results), tuple(left_out))


def chosen_arms(arms: tuple[PaperArm, ...], beginnings: str | None) -> tuple[PaperArm, ...]:
    """Those of that name, else those whose names begin so, in the target's order. The first is what the others are
    compared with."""
    if beginnings is None:
        return arms
    names = {arm.name.lower(): arm.name for arm in arms}
    wanted: set[str] = set()
    for one in (text.strip().lower() for text in beginnings.split(";")):
        found = [one] if one in names else [name for name in names if one and name.startswith(one)]
        if not found:
            raise InputError(f"--arms: no arm begins with {one!r}; the target has: {'; '.join(names.values())}")
        wanted.update(found)
    chosen = tuple(arm for arm in arms if arm.name.lower() in wanted)
    for arm in chosen:
        if arm.control_of is not None and arm.control_of not in {one.name for one in chosen}:
            raise InputError(f"--arms: {arm.name!r} takes its steps from {arm.control_of!r}; name that one, too")
    return chosen


def study_part(part: Part, plan: StudyPlan, model: Model, folder: Path, **how: Any) -> PartResult:
    """The paper's arms, then the controls, as one study."""
    study = run_study(plan, folder, model, **how)
    arms, notes = [], []
    for paper in part.arms:
        arm = next((arm for arm in plan.arms if arm.name == paper.name), None)
        if paper.control_of is not None:
            arm = control_arm(paper.name, paper.schedule, paper.control_of, study)
        if isinstance(arm, Arm):
            arms.append(arm)
        else:
            notes.append(f"No {arm}.")
    plan = plan.model_copy(update={"arms": tuple(arms), "notes": (*plan.notes, *notes)})
    study = run_study(plan, folder, model, **how)
    constants = {arm.name: constants_of(SamplerSettings(**arm.settings)) for arm in study.record.arms}
    for arm in arms:
        if arm.steps_by_seed:
            least, most = min(arm.steps_by_seed.values()), max(arm.steps_by_seed.values())
            constants[arm.name]["base steps"] = least if least == most else f"{least} to {most}"
    info = model.info
    notes = (*plan.notes, *departures([*constants.values()], part.program_weights, info.weights))
    return PartResult(part, info.name, notes, constants, study)


def time_part(
    part: Part, plan: StudyPlan, model: Model, folder: Path, workers: int = 1, device: str | None = None, **how: Any
) -> PartResult:
    """Run times of the arms, which take turns; a control's steps are those of the arm it belongs to."""
    if workers != 1:
        raise InputError(f"run times are measured one after the other; leave out --workers {workers}")
    model = load_model(model, device=device)
    settings: dict[str, SamplerSettings] = {}
    times: list[ArmTime] = []
    cells = [(seed, paper) for seed in plan.seeds for paper in part.arms]
    kept = f"{folder} keeps the arms and seeds that are timed; the same command goes on"
    with progress(f"timing {plan.title}", len(cells), "runs", kept=kept) as shown:
        for seed, paper in cells:
            chosen = _chosen(paper, plan.arms[0].chosen.get("steps"))
            settings[paper.name] = resolve(model.info.sampler, clock="batch", **chosen)
            if paper.control_of is not None:
                steps = next(one.steps for one in times if (one.arm, one.seed) == (paper.control_of, seed))
                control = Arm(name=paper.name, chosen=chosen, steps_by_seed={seed: steps})
                settings[paper.name] = at_seed(control, settings[paper.name], seed)
            times.append(time_arm(model, settings[paper.name], paper.name, seed, plan.n, folder))
            shown(note=f"{paper.name}, seed {seed}")
    constants = {name: constants_of(one) for name, one in settings.items()}
    info = model.info
    notes = (*plan.notes, *departures([*constants.values()], part.program_weights, info.weights))
    return PartResult(part, info.name, notes, constants, times=tuple(times))


class PartModel(NamedTuple):
    """A part's model, what loads it, and what to say about it."""

    source: str
    model: Model
    note: str


def find_model(part: Part, options: Options, given: Model | None, parts: tuple[Part, ...]) -> PartModel | str:
    """Which model serves a part; or why none does."""
    source = options.model
    if source is not None and given is not None:
        dataset = given.info.dataset
        fits = [p for p in parts if dataset in (p.dataset, f"{p.dataset}-small")]
        if part in fits or (not fits and part == parts[0]):
            return PartModel(source, given, _about(f"Model {given.info.name}, given with --model", given, part))
        return f"{part.dataset}: the model given is of {dataset}; without --model this part has one of its own"
    title = find_family(part.family).title
    known = known_table()[1].get(f"{part.family}_{part.dataset.replace('-', '_')}")
    if known and (path := fetched(known)):
        return PartModel(str(path), load_model(path, options.weights), f"Released {title} weights.")
    own = f"{part.family}-{part.dataset}"
    if name := next((one for one in (own, f"{own}-small") if one in embedded_names()), None):
        model = load_model(name, options.weights)
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
    if options.arms is not None:
        notes.append(f"Only these arms, or those that begin so: {options.arms}.")
    if quick:
        notes.append("Quick: fewer graphs, seeds and steps than the full run.")
    if steps and steps != info.sampler.steps:
        notes.append(f"{steps} base steps; the model's preset has {info.sampler.steps}.")
    if part.paper_n and n != part.paper_n:
        notes.append(f"{n} {info.kind}s per seed; the paper has {part.paper_n}.")
    fitting = bool({*part.metrics} & {*suite_of(info.kind).usual})
    if not fitting:
        notes.append(f"The model makes {info.kind}s: other metrics than the paper's, whose values have no counterpart.")
    arms = [
        Arm(name=arm.name, chosen=_chosen(arm, steps), paper=arm.paper) for arm in part.arms if arm.control_of is None
    ]
    return StudyPlan(
        title=f"{name}, {info.name}", model=found.source, arms=tuple(arms), seeds=seeds, n=n, kernel=part.kernel,
        batch_size=min(n, ONE_BATCH), metrics=part.metrics if fitting else None, weights=options.weights,
        notes=(*notes, *target.notes), command=options.command,
    )  # fmt: skip


def _chosen(arm: PaperArm, steps: int | None) -> dict[str, Any]:
    chosen = {"schedule": arm.schedule, "solver": arm.solver, "steps": steps, "schedule_options": arm.options or None}
    return {key: value for key, value in chosen.items() if value is not None}
