"""Text from files on its way to a terminal or a table, and values from text."""

from __future__ import annotations

import contextlib
import json
import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from isostep.base.errors import InputError

if TYPE_CHECKING:
    from rich.text import Text


def printable(text: str) -> str:
    """One line without control characters: terminal escapes, line ends and reversed writing become `\\x1b` and such."""
    return "".join(_shown(c) for c in text)


def plain(text: object) -> Text:
    """For rich's tables: no markup, no control characters."""
    from rich.text import Text

    return Text(printable(str(text)))


def print_table(header: tuple[str, ...], rows: Iterable[Iterable[object]]) -> None:
    """For people at a terminal; no header where its names are empty."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=any(header))
    for name in header:
        table.add_column(name, no_wrap=name == header[0] != "", overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    Console().print(table)


def _shown(character: str) -> str:
    if character == " " or unicodedata.category(character)[0] not in "CZ" or character == "\u00a0":
        return character
    return character.encode("unicode_escape").decode()


def duration(seconds: float) -> str:
    """3 days 4 h, 2 h 5 min, 40 s."""
    seconds = round(seconds)
    parts = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))
    for place, (size, name) in enumerate(parts):
        if seconds >= size:
            rest = seconds % size // parts[place + 1][0] if place + 1 < len(parts) else 0
            return f"{seconds // size} {name}" + (f" {rest} {parts[place + 1][1]}" if rest else "")
    return "0 s"


def value_of(text: str) -> Any:
    """What an option's text says: JSON, whose numbers may begin with a point (`[[.5,1]]`), else the text itself."""
    try:
        for written in (text, re.sub(r"(?<![\w.])\.(?=\d)", "0.", text)):
            with contextlib.suppress(json.JSONDecodeError):
                return json.loads(written)
        return text
    except (ValueError, RecursionError) as error:  # thousands of digits or brackets
        raise InputError(f"{text[:60]!r} is no value: {str(error)[:200]}") from error
