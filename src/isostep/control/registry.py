"""Schedules by name. A new one is a function of the step count and its options, and one line here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from isostep.base.errors import InputError
from isostep.control.arclength import arclength
from isostep.control.base import Controller
from isostep.control.dvs import Dvs, dvs
from isostep.control.error import ErrorControl, error_control
from isostep.control.fisher import fisher
from isostep.control.grid import Grid, cosine, gdss, karras, power, quadratic, uniform


def times(steps: int, file: str) -> Grid:
    """Explicit times from a file: whitespace- or comma-separated numbers from 0 to 1. The step count is the file's."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        values = tuple(float(word) for word in text.replace(",", " ").split())
    except OSError as error:
        raise InputError(f"cannot read the times in {file}: {error.strerror}; check the path") from error
    except ValueError as error:
        raise InputError(f"{file} must hold numbers separated by blanks or commas: {error}") from error
    return Grid(values)


SCHEDULES: dict[str, Callable[..., Controller]] = {
    "uniform": uniform,
    "quadratic": quadratic,
    "power": power,
    "karras": karras,
    "cosine": cosine,
    "fisher": fisher,
    "gdss": gdss,
    "times": times,
    "dvs": dvs,
    "arclength": arclength,
    "error": error_control,
}


def make_schedule(name: str, steps: int, options: Mapping[str, Any] | None = None) -> Controller:
    """The controller called `name`, or an error that lists what there is."""
    return make(SCHEDULES, "schedule", name, steps, options=options)


def make(registry: Mapping[str, Callable], what: str, name: str, *args: Any, options: Mapping[str, Any] | None) -> Any:
    """Call a registry's entry with options by name; unknown names and options are refused with what is allowed."""
    if name not in registry:
        raise InputError(f"unknown {what} {name!r}; choose one of: {', '.join(registry)}")
    entry = registry[name]
    given = dict(options or {})
    allowed = option_names(entry, skip=len(args))
    unknown = sorted(given.keys() - allowed)
    if unknown:
        raise InputError(
            f"{what} {name} has no option {unknown[0]!r}; it takes: {', '.join(sorted(allowed)) or 'none'}"
        )
    try:
        return entry(*args, **given)
    except TypeError as error:
        raise InputError(f"{what} {name}: {error}") from error


def option_names(entry: Callable, skip: int = 0) -> set[str]:
    """Names of the options an entry takes; a wrapper around a settings class takes that class's."""
    if entry in _WRAPPED:
        return set(inspect.signature(_WRAPPED[entry]).parameters) - {"dt_base", "dt_first"}
    return set(list(inspect.signature(entry).parameters)[skip:])


_WRAPPED: dict[Callable, type] = {dvs: Dvs, error_control: ErrorControl}
