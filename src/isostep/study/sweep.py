"""A sweep: one arm per value of a setting, beside a baseline that does not have it.

schedule.gamma=0.1:0.35:6          six evenly spaced values
schedule.kappa=1,5,10              a list
schedule.active=[[0,1]];[[.5,1]]   JSON values, separated by semicolons
steps=100,200   solver=euler,heun  settings of the sampler itself
"""

from __future__ import annotations

import itertools
import json
from typing import Any, NamedTuple

import numpy as np

from isostep.base.errors import InputError
from isostep.base.text import value_of
from isostep.settings.schema import SamplerSettings
from isostep.study.plan import Arm, words

GROUPS = {"schedule": "schedule_options", "solver": "solver_options"}


class Param(NamedTuple):
    path: str
    values: tuple[Any, ...]

    def choose(self, value: Any) -> dict[str, Any]:
        """The value as an argument of `resolve`."""
        group, dot, name = self.path.partition(".")
        return {GROUPS[group]: {name: value}} if dot else {self.path: value}


def parse_param(text: str) -> Param:
    path, equals, right = text.partition("=")
    return Param(check_path(path if equals and right else "", text), _values(right, text))


def check_path(path: str, text: str | None = None) -> str:
    """A setting that can be swept; `text` is what was given."""
    group, dot, name = path.partition(".")
    known = (dot and name and group in GROUPS) or path in SamplerSettings.model_fields
    if not known or path in GROUPS.values():
        plain = ", ".join(key for key in SamplerSettings.model_fields if not key.endswith("_options"))
        raise InputError(f"--param takes schedule.NAME=..., solver.NAME=... or one of {plain}; got {text or path!r}")
    return path


def _values(right: str, text: str) -> tuple[Any, ...]:
    if ";" in right or right.startswith("["):
        return tuple(value_of(word.strip()) for word in right.split(";") if word.strip())
    parts = right.split(":")
    if len(parts) == 3:
        try:
            low, high, count = float(parts[0]), float(parts[1]), int(parts[2])
        except ValueError:
            raise InputError(f"--param ranges are low:high:count, got {text!r}") from None
        if count < 2 or not np.isfinite([low, high]).all():
            raise InputError(f"--param ranges need finite ends and a count of at least 2, got {text!r}")
        return tuple(float(round(v, 12)) for v in np.linspace(low, high, count))
    return tuple(value_of(word) for word in words(right))


def sweep_arms(params: list[Param], schedule: str, baseline: str, **common: Any) -> tuple[Arm, ...]:
    """The baseline, then every combination of values."""
    if not params:
        raise InputError("a sweep needs at least one --param, such as --param schedule.gamma=0.1:0.35:6")
    for param in params:
        if not param.values:
            raise InputError(f"--param {param.path} has no value; give at least one, such as {param.path}=1,2")
    given = {key: value for key, value in common.items() if value is not None}
    arms = [Arm(name=baseline, chosen={**given, "schedule": baseline})]
    for values in itertools.product(*(param.values for param in params)):
        chosen: dict[str, Any] = {**given, "schedule": schedule}
        for param, value in zip(params, values, strict=True):
            for key, part in param.choose(value).items():
                chosen[key] = {**chosen.get(key, {}), **part} if isinstance(part, dict) else part
        shown = ", ".join(f"{p.path.split('.')[-1]}={_short(v)}" for p, v in zip(params, values, strict=True))
        arms.append(Arm(name=shown, chosen=chosen))
    if len({arm.name for arm in arms}) < len(arms):
        raise InputError("a sweep's values must differ from each other")
    return tuple(arms)


def _short(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list) else str(value)
