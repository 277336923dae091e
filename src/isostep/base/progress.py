"""A progress bar that is quiet where nobody looks: not a terminal, `--json`, or `ISOSTEP_QUIET=1`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator

Advance = Callable[..., None]


@contextlib.contextmanager
def progress(description: str, total: float | None = None, quiet: bool = False) -> Generator[Advance, None, None]:
    """Yield `advance(amount=1, note=...)`; draws on stderr, only where stderr is a terminal."""
    if quiet or os.environ.get("ISOSTEP_QUIET") or not sys.stderr.isatty():
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total, note="")

        def advance(amount: float = 1, note: str = "") -> None:
            bar.update(task, advance=amount, note=note)

        yield advance


def _ignore(amount: float = 1, note: str = "") -> None:
    return None
