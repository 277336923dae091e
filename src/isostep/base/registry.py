"""Tables of what can be chosen by name. An entry says where the thing is, what it is in one line, and what it takes.

A table is plain data: the code behind an entry is imported on first use, so help texts and schema checks stay quick.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

from isostep.base.errors import InputError

Value = TypeVar("Value")


@dataclass(frozen=True)
class Entry:
    """One name of a table."""

    home: str  # "package.module:name" of what makes it
    help: str = ""
    usual: Mapping[str, Any] = field(default_factory=dict[str, Any])  # options it has unless others are given
    settings: str = ""  # home of the class whose fields are the options, where `home` only passes them on
    derived: tuple[str, ...] = ()  # fields of that class that are no options: `home` or the caller sets them

    def make(self, called: str, *args: Any, options: Mapping[str, Any], **derived: Any) -> Any:
        """Call it with a user's options; one that is unknown, missing or of the wrong type is the user's error."""
        allowed = self.options(len(args))
        if unknown := sorted(options.keys() - allowed):
            raise InputError(f"{called} has no option {unknown[0]!r}; it takes: {', '.join(sorted(allowed)) or 'none'}")
        try:
            return _load(self.home)(*args, **{**self.usual, **options, **derived})
        except InputError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{called}: {str(error)[:200]}; check its options") from error

    def options(self, given: int = 0) -> set[str]:
        """Names of the options, after `given` positional arguments."""
        names = list(inspect.signature(_load(self.settings or self.home)).parameters)
        return set(names) - set(self.derived) if self.settings else set(names[given:])


def look_up(table: Mapping[str, Value], what: str, name: str) -> Value:
    """The entry called `name`, or an error that lists what there is."""
    if name not in table:
        raise InputError(f"unknown {what} {name!r}; choose one of: {', '.join(table)}")
    return table[name]


def _load(home: str) -> Callable[..., Any]:
    module, _, name = home.partition(":")
    return getattr(import_module(module), name)
