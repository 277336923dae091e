"""What tuning may choose from for a budget of calls: the candidates that schedules and solvers declare in their tables.

A candidate is a choice of `auto`. `starts` lays a wide net, `moves` changes one thing: another schedule or solver, one
rung up or down a ladder, the corrector on or off. What this model cannot take, or not within the budget, is left out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from isostep.base.errors import InputError
from isostep.model.model import Model
from isostep.settings.resolve import make_solver, resolve
from isostep.settings.schedules import SCHEDULES
from isostep.settings.schema import AutoChoice
from isostep.settings.solvers import SOLVERS, Ladder
from isostep.solver.langevin import Langevin

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Space:
    model: Model
    calls: int
    only: tuple[str, ...] = ()  # schedules and solvers to try; none named: all that are candidates

    def __post_init__(self) -> None:
        tried = [*self._all_schedules, *self._all_solvers]
        if strange := [name for name in self.only if name not in tried]:
            raise InputError(f"--only {strange[0]}: not tried on this model; choose from {', '.join(tried)}")

    def starts(self, baseline: AutoChoice, rng: random.Random) -> list[AutoChoice]:
        """The baseline, every schedule with the baseline's solver and usual noise, and twice with the rest drawn."""
        solvers = list(self._solvers)
        weights = [1 + len(self._solvers[name]) for name in solvers]  # more to turn, more to try
        plain = [self._choice(name, options, baseline.solver, {}) for name, options in self._schedules]
        drawn = [
            self._draw(name, options, rng.choices(solvers, weights)[0], rng) for name, options in 2 * self._schedules
        ]
        return self._fitting([baseline, *plain, *drawn])

    def normal(self, choice: AutoChoice) -> AutoChoice:
        """A choice from elsewhere in the form of this space, at its budget."""
        corrector = resolve(self.model.info.sampler, **chosen(choice)).corrector
        return self._choice(choice.schedule, choice.schedule_options, choice.solver, choice.solver_options, corrector)

    def moves(self, choice: AutoChoice) -> list[AutoChoice]:
        """Every candidate that differs in one thing."""
        return self._fitting([other for other in self._moves(choice) if other != choice])

    def _moves(self, choice: AutoChoice) -> Iterator[AutoChoice]:
        for name, options in self._schedules:
            yield choice.model_copy(update={"schedule": name, "schedule_options": dict(options)})
        for solver, ladders in self._solvers.items():
            shared = {key: value for key, value in choice.solver_options.items() if key in ladders}
            yield self._choice(choice.schedule, choice.schedule_options, solver, shared, choice.corrector)
        for corrector in self._correctors(choice.solver):
            yield choice.model_copy(update={"corrector": corrector})
        for name, ladder in self._solvers.get(choice.solver, {}).items():
            given = choice.solver_options.get(name, ladder.usual)
            if not ladder.by_component:
                yield from (self._turned(choice, name, value) for value in _beside(ladder, given))
                continue
            each = self._by_component(given, ladder)
            for component, value in each.items():
                yield from (self._turned(choice, name, {**each, component: new}) for new in _beside(ladder, value))

    def _turned(self, choice: AutoChoice, name: str, value: Any) -> AutoChoice:
        options = {**choice.solver_options, name: value}
        return self._choice(choice.schedule, choice.schedule_options, choice.solver, options, choice.corrector)

    def _draw(self, schedule: str, options: Mapping[str, Any], solver: str, rng: random.Random) -> AutoChoice:
        """Every ladder at random; where a ladder is climbed by component, half of the draws leave it alone."""
        found: dict[str, Any] = {}
        for name, ladder in self._solvers[solver].items():
            if not ladder.by_component:
                found[name] = rng.choice(ladder.values)
            elif rng.random() < 0.5:
                found[name] = {component: rng.choice(ladder.values) for component in self._components()}
        return self._choice(schedule, options, solver, found, rng.choice(self._correctors(solver)))

    def _choice(
        self,
        schedule: str,
        schedule_options: Mapping[str, Any],
        solver: str,
        solver_options: Mapping[str, Any],
        corrector: str | None = "none",
    ) -> AutoChoice:
        """One form for one thing: an option at its usual value is left out."""
        ladders = self._solvers.get(solver, {})
        kept = {k: v for k, v in solver_options.items() if k not in ladders or not _is_usual(v, ladders[k])}
        return AutoChoice.model_validate({
            "calls": self.calls, "schedule": schedule, "schedule_options": dict(schedule_options), "solver": solver,
            "solver_options": kept, "corrector": corrector if corrector in self._correctors(solver) else "none",
        })  # fmt: skip

    def _fitting(self, choices: list[AutoChoice]) -> list[AutoChoice]:
        """Each once, those that this model can be sampled with."""
        seen: dict[str, AutoChoice] = {label(choice): choice for choice in reversed(choices)}
        kept = {label(choice): choice for choice in choices}
        return [seen[name] for name in kept if fits(self.model, seen[name])]

    def _components(self) -> list[str]:
        return list(self.model.sde.processes)

    def _by_component(self, given: Any, ladder: Ladder) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            return dict.fromkeys(self._components(), given)
        return {component: given.get(component) or ladder.usual for component in self._components()}

    @cached_property
    def _schedules(self) -> list[tuple[str, Mapping[str, Any]]]:
        return [(name, options) for name, each in self._named(self._all_schedules).items() for options in each]

    @cached_property
    def _solvers(self) -> dict[str, Mapping[str, Ladder]]:
        return self._named(self._all_solvers)

    def _named(self, tried: dict[str, T]) -> dict[str, T]:
        """Those of `only`, where it names any of them."""
        return {name: entry for name, entry in tried.items() if name in self.only} or tried

    @cached_property
    def _all_schedules(self) -> dict[str, Sequence[Mapping[str, Any]]]:
        return {name: entry.candidates for name, entry in SCHEDULES.items() if entry.candidates}

    @cached_property
    def _all_solvers(self) -> dict[str, Mapping[str, Ladder]]:
        """Solvers that tuning tries and this model takes, with their ladders."""
        return {name: e.ladders for name, e in SOLVERS.items() if e.ladders is not None and self._takes(name)}

    def _takes(self, solver: str) -> bool:
        try:
            SOLVERS[solver].make(solver, *((Langevin(),) if SOLVERS[solver].inner_corrector else ()), options={}).check(
                self.model.sde
            )
        except InputError:
            return False
        return True

    def _correctors(self, solver: str) -> tuple[str, ...]:
        """A corrector in front, where the model's preset has one and the solver none inside."""
        inside = solver in SOLVERS and SOLVERS[solver].inner_corrector
        return ("none",) if self.model.info.sampler.corrector is None or inside else ("none", "langevin")


def _beside(ladder: Ladder, value: Any) -> list[Any]:
    """The next rungs above and below; of a range, with one of its ends turned."""
    if isinstance(value, list | tuple):
        first, last = value
        return [[new, last] for new in _beside(ladder, first)] + [[first, new] for new in _beside(ladder, last)]
    below = [rung for rung in ladder.values if rung < value - 1e-9]
    above = [rung for rung in ladder.values if rung > value + 1e-9]
    return [*below[-1:], *above[:1]]


def _is_usual(value: Any, ladder: Ladder) -> bool:
    values = value.values() if isinstance(value, Mapping) else [value]
    return all(part == ladder.usual for part in values)


def chosen(choice: AutoChoice) -> dict[str, Any]:
    """The choice as an argument of `resolve`; every graph on its own, so that batches do not matter."""
    given = choice.model_dump(include={"schedule", "solver", "corrector", "schedule_options", "solver_options"})
    return {"clock": "graph", **{key: value for key, value in given.items() if value not in (None, {})}}


def fits(model: Model, choice: AutoChoice) -> bool:
    """Whether this model takes it, with at least one step within the budget."""
    try:
        settings = resolve(model.info.sampler, **chosen(choice))
        solver = make_solver(settings)
        solver.check(model.sde)
        resolve(model.info.sampler, **chosen(choice), steps=choice.calls // solver.calls_per_step or None)
    except InputError:
        return False
    return solver.calls_per_step <= choice.calls


def label(choice: AutoChoice) -> str:
    """In words, the same for the same sampler."""

    def text(options: Mapping[str, Any]) -> str:
        parts = []
        for key, value in options.items():
            shown = value.items() if isinstance(value, Mapping) else None
            parts.append(f" {key} " + (f"{value}" if shown is None else " ".join(f"{k} {_shown(v)}" for k, v in shown)))
        return "".join(parts)

    corrector = f", {choice.corrector}" if choice.corrector not in (None, "none") else ""
    return f"{choice.schedule}{text(choice.schedule_options)}, {choice.solver}{text(choice.solver_options)}{corrector}"


def _shown(value: Any) -> str:
    return " to ".join(f"{part:g}" for part in value) if isinstance(value, list | tuple) else f"{value:g}"
