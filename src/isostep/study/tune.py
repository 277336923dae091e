"""Find the best sampler for a budget of calls by measuring: many candidates with few graphs, the best with more.

    long run    the model's own sampler, on YARDSTICK search seeds: what a loss is measured against (objective.py)
    wide        the starts of the space on one seed; the best on three, the best of those on six (common random numbers)
    local       generations: moves from the leaders, through the same levels
    confirm     the winner against the long run and today's `auto`, on seeds that the search never saw

Every decision follows from stored cells, the time that was spent included; so the same command goes on where it was
interrupted, and comes to the same result.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from isostep.base.errors import InputError
from isostep.base.files import write_json, write_text
from isostep.base.progress import progress
from isostep.base.text import duration
from isostep.metric.base import Better
from isostep.metric.evaluate import metric_names
from isostep.metric.suite import suite_of
from isostep.model.folder import store_choices
from isostep.model.lookup import load_model
from isostep.model.model import Model
from isostep.model.presets import TunedPreset
from isostep.sampling.calibrate import prepare
from isostep.settings.resolve import CAREFUL, auto_choice, resolve, whole_schedule
from isostep.settings.schema import AutoChoice
from isostep.study.compute import run_study
from isostep.study.objective import Objective, means
from isostep.study.plan import Arm, StudyPlan
from isostep.study.record import Cell, Study, Values
from isostep.study.reference import find_reference, self_reference
from isostep.study.significance import judge, paired
from isostep.study.space import Space, chosen, fits, label
from isostep.study.tune_record import (
    APART,
    AUTO,
    LEVELS,
    LONG,
    LOSS,
    MOST_GENERATIONS,
    TUNE,
    TUNED,
    Candidate,
    TunePlan,
    TuneRecord,
    TuneTest,
)

Tell = Callable[[str], None]
PROMOTED = (6, 2)  # how many rise to the second and third level, in each generation; twice as many in the first
YARDSTICK = 3  # search seeds of the long run
LEADERS, NEWCOMERS = 3, 12
SHOWN = ("valid", "unique", "novel")
ALIASES = {"novelty": "novel", "validity": "valid", "uniqueness": "unique"}


def tune(
    plan: TunePlan, out: str | Path, model: Model | None = None, store: bool = False, tell: Tell | None = None,
    **how: Any,
) -> TuneRecord:  # fmt: skip
    """Search, confirm, and write the preset `out` and the folder beside it. `how`: as for `run_study`."""
    model = load_model(plan.model) if model is None else model
    if store:
        store_choices(model, ())
    folder = folder_of(out)
    with progress(
        f"tuning {model.info.name} at {plan.calls} calls", kept=f"{folder} keeps it; the same command goes on"
    ) as task:
        search = Search.begin(plan, folder, model, tell or task.say, how)
        search.run()
        record = search.confirm()
    preset = TunedPreset(model=model.info.name, fingerprint=record.fingerprint, auto=(signed(record),))
    write_text(out, f"# {record.reason}\n{preset.toml()}")
    if store and record.kept:
        store_choices(model, preset.auto)
    return record


def folder_of(out: str | Path) -> Path:
    """Where the cells and the record of a preset are."""
    out = Path(out)
    if out.suffix != ".toml":
        raise InputError(f"--out names the preset to write, such as tuned.toml, got {str(out)!r}")
    return out.with_suffix("")


def signed(record: TuneRecord) -> AutoChoice:
    """The result with its origin."""
    seeds = record.plan.confirm_seeds
    origin = record.plan.command or f"isostep tune {record.plan.model} --calls {record.plan.calls}"
    confirmed = f"; confirmed on seeds {seeds[0]}-{seeds[-1]}" if record.kept else "; the baseline is kept"
    return record.result.model_copy(update={"origin": origin + confirmed})


@dataclass
class Search:
    """A search under way: what was measured so far."""

    plan: TunePlan
    folder: Path
    model: Model
    tell: Tell
    how: dict[str, Any]
    space: Space
    baseline: AutoChoice
    reference: str
    metrics: tuple[str, ...]
    counted: tuple[str, ...]
    keep: tuple[str, ...]
    cells: dict[str, dict[int, Cell]] = field(default_factory=dict)
    choices: dict[str, AutoChoice] = field(default_factory=dict)
    better: dict[str, Better] = field(default_factory=dict)
    long_run: list[Cell] = field(default_factory=list)
    objective: Objective | None = None
    rounds: int = 0  # generations to go, without a time limit

    @staticmethod
    def begin(plan: TunePlan, folder: Path, model: Model, tell: Tell, how: dict[str, Any]) -> Search:
        """Everything that can be refused is refused here."""
        space = Space(model, plan.calls, plan.only)
        found = auto_choice(model.info.sampler, plan.calls) or CAREFUL
        baseline = space.normal(found.model_copy(update={"calls": plan.calls, "origin": ""}))
        if not fits(model, baseline):
            baseline = next(iter(space.starts(baseline, random.Random(0))), baseline)
        if not fits(model, baseline):
            raise InputError(f"no sampler of {model.info.name} takes {plan.calls} calls; give more with --calls")
        reference = plan.reference or model.info.dataset
        if plan.own:
            _metrics(plan, model, None)
            reference = str(
                self_reference(folder, model, _long(plan, model), plan.n, plan.batch_size, APART * plan.seed, tell)
            )
        against = find_reference(reference, plan.kernel)
        counted, metrics, keep = _metrics(plan, model, metric_names(against.reference, against.rule))
        return Search(
            plan, folder, model, tell, how, space, baseline, reference, metrics, counted, keep,
        )  # fmt: skip

    def run(self) -> None:
        """All generations."""
        plan, rng = self.plan, random.Random(self.plan.seed)
        self.tell(f"the long run, {YARDSTICK} seeds")
        study = self._study([_long(plan, self.model)], plan.search_seeds[:YARDSTICK])
        self.long_run = list(study.cells[0].values())
        self._measure([self.baseline], len(LEVELS) - 1)
        self.better = {**study.better}
        self.objective = Objective.of(
            self.counted, self.better, _rows(self.long_run), _rows(self.cells[label(self.baseline)].values())
        )
        if not self.objective.metrics:
            raise InputError("none of the metrics is defined for the long run; check --reference and --metrics")
        self.rounds = plan.generations
        starts = self.space.starts(self.baseline, rng)
        self.rounds += len(starts) // NEWCOMERS
        self._climb(starts, 2, "wide")
        most = MOST_GENERATIONS if plan.minutes else plan.generations
        for generation in range(1, most + 1):
            new = self._propose(rng)
            if not new or self._spent_all():
                break
            self.rounds = max(0, plan.generations - generation + 1)
            self._climb(new, 1, f"generation {generation}")
        self._measure([self.choices[name] for name in self._ranked(2)[:LEADERS]], 2)
        self._write()

    def _climb(self, new: list[AutoChoice], times: int, what: str) -> None:
        """New candidates to the first level, the best of all to the next ones."""
        self.tell(f"{what}: {len(new)} candidates, {self._left()}")
        size = 4 * max(1, self.how.get("workers", 1))
        for k in range(0, len(new), size):
            if k and self._spent_all():
                break
            self._measure(new[k : k + size], 0)
        for level, count in enumerate(PROMOTED, start=1):
            ready = [name for name in self._ranked(level) if len(self.cells[name]) < LEVELS[level]]
            best = set(self._ranked(level)[: times * (LEADERS + count)])
            self._measure([self.choices[name] for name in ready if name in best][: times * count], level)
        self._write()

    def _propose(self, rng: random.Random) -> list[AutoChoice]:
        """One move from a leader, or two; none that was measured before."""
        new: dict[str, AutoChoice] = {}
        leaders = [self.choices[name] for name in self._ranked(2)[:LEADERS]]
        pools = [self.space.moves(leader) for leader in leaders]
        for _ in range(20 * NEWCOMERS):
            pool = pools[min(int(rng.expovariate(1.0)), len(pools) - 1)]
            if not pool or len(new) == NEWCOMERS:
                break
            choice = rng.choice(pool)
            if rng.random() < 0.4:
                choice = rng.choice(self.space.moves(choice) or [choice])
            if label(choice) not in self.cells:
                new.setdefault(label(choice), choice)
        return list(new.values())

    def _measure(self, choices: Sequence[AutoChoice], level: int) -> None:
        """The cells of these candidates up to a level, of those that this model's pilot allows."""
        choices = [choice for choice in choices if label(choice) in self.cells or self._prepared(choice)]
        if not choices:
            return
        arms = [Arm(name=label(choice), chosen=chosen(choice), calls=self.plan.calls) for choice in choices]
        study = self._study(arms, self.plan.search_seeds[: LEVELS[level]])
        for choice, cells in zip(choices, study.cells, strict=True):
            self.choices[label(choice)] = choice
            self.cells.setdefault(label(choice), {}).update(cells)

    def _prepared(self, choice: AutoChoice) -> bool:
        try:
            prepare(self.model, resolve(self.model.info.sampler, **chosen(choice)), self.plan.calls)
        except InputError:
            return False
        return True

    def _study(self, arms: list[Arm], seeds: tuple[int, ...], record: bool = False) -> Study:
        plan = self.plan
        study = StudyPlan(
            title=f"Tuning of {self.model.info.name} at {plan.calls} calls", model=plan.model, arms=tuple(arms),
            seeds=seeds, n=plan.n, batch_size=plan.batch_size, reference=self.reference, kernel=plan.kernel,
            metrics=self.metrics, record=record, command=plan.command,
        )  # fmt: skip
        return run_study(study, self.folder, self.model, **self.how)

    def _ranked(self, level: int) -> list[str]:
        """Candidates that passed the level below, by their loss on that level's seeds; forbidden ones last."""
        seeds = self.plan.search_seeds[: LEVELS[level - 1]]
        able = [name for name, cells in self.cells.items() if all(seed in cells for seed in seeds)]
        return sorted(able, key=lambda name: (*self._loss(name, seeds), name))

    def _loss(self, name: str, seeds: Sequence[int] | None = None) -> tuple[bool, float]:
        """Whether it loses what is to be kept, and its loss, on some of its seeds or all."""
        assert self.objective is not None
        cells = self.cells[name]
        values = means([cells[seed].metrics for seed in seeds or cells])
        return self.objective.loses(self.keep, values, len(seeds or cells)), self.objective(values)

    @property
    def _spent(self) -> float:
        """Seconds by the stored cells, so that a resumed search decides as the first one did."""
        cells = [*self.long_run, *(cell for row in self.cells.values() for cell in row.values())]
        return sum(cell.seconds + cell.evaluating for cell in cells) / max(1, self.how.get("workers", 1))

    def _reserve(self) -> float:
        """Seconds that the confirmation will take."""
        long = sum(cell.seconds + cell.evaluating for cell in self.long_run) / len(self.long_run)
        return self.plan.confirm * 1.2 * long / max(1, self.how.get("workers", 1))

    def _spent_all(self) -> bool:
        minutes = self.plan.minutes
        return minutes is not None and self._spent + self._reserve() > 60 * minutes

    def _left(self) -> str:
        """In words: the time that is left, of the limit or by the time that a candidate takes."""
        if self.plan.minutes is not None:
            left = max(0.0, 60 * self.plan.minutes - self._spent - self._reserve())
            return f"{duration(left)} left for the search, {duration(self._reserve())} for the confirmation"
        cells = [cell.seconds + cell.evaluating for row in self.cells.values() for cell in row.values()]
        round_of = NEWCOMERS + sum(count * (LEVELS[k + 1] - LEVELS[k]) for k, count in enumerate(PROMOTED))
        left = self.rounds * round_of * sum(cells) / len(cells) / max(1, self.how.get("workers", 1))
        return f"about {duration(left + self._reserve())} left"

    def confirm(self) -> TuneRecord:
        """The winner on fresh seeds."""
        plan = self.plan
        winner = self.choices[self._ranked(3)[0]]
        self.tell(f"confirming {label(winner)} on {plan.confirm} fresh seeds")
        arms = [_long(plan, self.model), Arm(name=AUTO, chosen=chosen(self.baseline), calls=plan.calls)]
        if winner != self.baseline:
            arms.append(Arm(name=TUNED, chosen=chosen(winner), calls=plan.calls))
        cells = self._study(arms, plan.confirm_seeds, record=True).cells
        assert self.objective is not None
        tests = compare(self.objective, dict(zip([LONG, AUTO, TUNED], cells, strict=False)), tuple(self.better))
        kept, reason = decide(self.keep, tests, winner == self.baseline)
        return self._write(label(winner), kept, reason, tests)

    def _write(
        self, winner: str | None = None, kept: bool = False, reason: str = "", tests: tuple[TuneTest, ...] = ()
    ) -> TuneRecord:
        assert self.objective is not None
        rows = []
        for name, cells in self.cells.items():
            forbidden, loss = self._loss(name)
            calls = sum(cell.calls for cell in cells.values()) / len(cells)
            rows.append(
                Candidate(
                    name=name, choice=self.choices[name], seeds=len(cells), calls=calls,
                    values=means([cell.metrics for cell in cells.values()]), loss=loss, forbidden=forbidden,
                )
            )  # fmt: skip
        record = TuneRecord(
            plan=self.plan, fingerprint=self.model.fingerprint(), kind=self.model.info.kind, reference=self.reference,
            objective=self.objective, yardstick_calls=self.long_run[0].calls,
            yardstick={name: tuple(cell.metrics.get(name) for cell in self.long_run) for name in self.metrics},
            candidates=tuple(sorted(rows, key=lambda row: (-row.seeds, row.forbidden, row.loss))),
            baseline=label(self.baseline), winner=winner, kept=kept, reason=reason, tests=tests, seconds=self._spent,
        )  # fmt: skip
        write_json(self.folder / TUNE, record.model_dump(mode="json"))
        return record


def compare(objective: Objective, cells: dict[str, dict[int, Cell]], names: tuple[str, ...]) -> tuple[TuneTest, ...]:
    """The last arm against each of the others: the loss, then every metric; verdicts after Holm's correction."""
    *others, last = cells
    rows: list[dict[str, Any]] = []
    for other in others:
        for name in (LOSS, *names):
            both = [
                (a, b)
                for seed in cells[last]
                if (a := _value(objective, cells[other].get(seed), name)) is not None
                and (b := _value(objective, cells[last][seed], name)) is not None
            ]
            if both:
                first, value = zip(*both, strict=True)
                means = {"first": sum(first) / len(both), "value": sum(value) / len(both)}
                rows.append({"against": other, "metric": name, **means, **asdict(paired(first, value))})
    rest = [row for row in rows if row["metric"] != LOSS]
    judge(rest, [objective.better[row["metric"]] for row in rest])
    for row in rows:
        del row["n"]
        if row["metric"] == LOSS:  # one test of its own
            judge([row], ["lower"])
    return tuple(TuneTest(**row) for row in rows)


def _value(objective: Objective, cell: Cell | None, name: str) -> float | None:
    if cell is None:
        return None
    return objective(cell.metrics) if name == LOSS else cell.metrics.get(name)


def decide(keep: Sequence[str], tests: Sequence[TuneTest], same: bool) -> tuple[bool, str]:
    """Whether the winner takes the baseline's place, and why, in one line."""
    if same:
        return False, "nothing beat the baseline in the search: it is kept"
    lost = [test.metric for test in tests if test.against == LONG and test.metric in keep and test.verdict == "worse"]
    if lost:
        return False, f"the winner of the search loses in {lost[0]}, which is to be kept: the baseline stays"
    loss = next(test for test in tests if test.against == AUTO and test.metric == LOSS)
    change = f"loss {loss.value:.3g} against {loss.first:.3g}, p {loss.p:.2g}, on fresh seeds"
    if loss.verdict != "better":
        return False, f"the winner of the search is not confirmed ({change}): the baseline is kept"
    return True, f"confirmed: {change}"


def _long(plan: TunePlan, model: Model) -> Arm:
    """The model's own sampler, as its preset or its released program has it."""
    preset = model.info.sampler
    return Arm(name=LONG, chosen={"schedule": whole_schedule(preset), "steps": plan.yardstick_steps or preset.steps})


def _rows(cells: Any) -> list[Values]:
    return [cell.metrics for cell in cells]


def _metrics(
    plan: TunePlan, model: Model, known: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Those that count, those that are measured, and those that must not be lost. `known`: what there is, if known."""
    wanted = plan.metrics or tuple(dict.fromkeys(("valid", *suite_of(model.info.kind).usual)))
    keep = tuple(ALIASES.get(name.strip().lower(), name.strip().lower()) for name in plan.keep)
    untold = {"novel"} if plan.own else set[str]()  # without training data
    if lost := untold & {*keep, *(plan.metrics or ())}:
        raise InputError(f"{lost.pop()} needs training data, which --self has not; give --reference")
    if known is None:
        return wanted, wanted, keep
    if strange := [name for name in (*(plan.metrics or ()), *keep) if name not in known]:
        raise InputError(f"{strange[0]!r} is not measured against this reference; here there are {', '.join(known)}")
    counted = tuple(name for name in wanted if name in known)
    shown = [name for name in SHOWN if name in known and name not in untold]
    return counted, tuple(dict.fromkeys((*counted, *shown, *keep))), keep
