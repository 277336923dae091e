"""One layer for what long work says of itself: bars on a terminal, log lines elsewhere, and what an interrupt leaves.

    with progress("sampling qm9", total=1000, unit="graphs", kept=lambda: "runs/qm9 keeps ...") as task:
        task(8)                        # eight more are done
        task.say("a line of its own")  # at once, above the bars

Lines are records of the logger `isostep` (INFO; starts and ends of tasks are DEBUG), so a program that uses the package
decides about them as about any other logger. The command line shows them on stderr, and draws bars with the time left
where stderr is a terminal; a function called with `progress=True` does the same for its own time (`showing`). Ctrl-C
inside a task becomes `Interrupted`, whose text says what is kept and how to go on.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

from isostep.base.text import duration, printable

log = logging.getLogger("isostep")
FIRST, LONGEST = 5.0, 600.0  # seconds until a task's first line; the gap doubles from line to line, up to this
NOTHING_KEPT = "no file is left half-written; the same command starts again"


@functools.cache
def warn_once(text: str) -> None:
    """A warning, the first time only: a study samples many times with the same settings."""
    log.warning("%s", text)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with what is kept and how to go on."""


class Task:
    """Work under way: `task(amount)` after each piece of it, `task.upto(share)` where only a share is known."""

    def __init__(self, what: str, total: float | None, unit: str, had: float) -> None:
        self.what, self.total, self.unit, self.note = what, total, unit, ""
        self.had = self.done = had  # `had` says nothing about the speed: it was there before
        self.began = self.since = time.perf_counter()
        self.started = False  # the first piece loads and compiles: it says nothing about the speed, either
        self.gap, self.due = FIRST, self.began + FIRST
        self.bar: Any = None  # its row of the display, where there is one

    def __call__(self, amount: float = 1, note: str = "") -> None:
        self.done, self.note = self.done + amount, note or self.note
        if self.bar is not None:
            _screen.update(self)
        elif (now := time.perf_counter()) >= self.due:
            self.gap = min(2 * self.gap, LONGEST) if self.started else FIRST
            self.due = now + self.gap
            log.info(str(self))
        if amount and not self.started:
            self.started, self.since, self.had = True, time.perf_counter(), self.done

    def skip(self, amount: float) -> None:
        """So much was there already; it says nothing about the speed."""
        self.had += amount
        self.done += amount
        if self.bar is not None:
            _screen.update(self)

    def upto(self, share: float) -> None:
        """A share of the total is done, from 0 to 1; one that falls back is not believed."""
        if self.total:
            self(max(0.0, share * self.total - self.done))

    def say(self, text: str) -> None:
        """A line now."""
        log.info("%s: %s", self.what, text)

    def __str__(self) -> str:
        """`sampling qm9: 512 of 1000 graphs, note, 12.3 graphs/s, 40 s left`."""
        count = f"{self.done:.0f}" if self.total is None else f"{self.done:.0f} of {self.total:.0f}"
        rate = (self.done - self.had) / max(time.perf_counter() - self.since, 1e-9) if self.started else 0.0
        unit = self.unit or "parts"
        parts = [f"{self.what}: {count} {unit}", self.note]
        if rate > 0:
            parts.append(f"{rate:.3g} {unit}/s" if rate >= 1 else f"{1 / rate:.3g} s each")
            if self.total is not None:
                parts.append(f"{duration(max(0.0, self.total - self.done) / rate)} left")
        return ", ".join(part for part in parts if part)


@contextlib.contextmanager
def progress(
    what: str,
    total: float | None = None,
    unit: str = "",
    had: float = 0,
    kept: str | Callable[[], str] = "",
) -> Generator[Task, None, None]:
    """A task, shown where somebody looks. `had`: what of the total was there before. `kept`: what an interrupt leaves,
    and how to go on; the innermost task that knows it is believed."""
    task = Task(printable(what), total, unit, had)
    log.debug("%s: begins", task.what)
    try:
        _screen.add(task)
        yield task
    except Interrupted:
        raise
    except KeyboardInterrupt as stop:
        if not kept:
            raise
        raise Interrupted(kept if isinstance(kept, str) else kept()) from stop
    finally:
        _screen.remove(task)
        log.debug("%s: %.1f s", task.what, time.perf_counter() - task.began)


@contextlib.contextmanager
def listener(
    given: bool | Callable[[float], None] | None, what: str, total: float, unit: str
) -> Generator[Callable[[float], None], None, None]:
    """Who is told the share that is done: the function a caller gave, else a task."""
    if callable(given):
        yield given
        return
    with progress(what, total, unit) as task:
        yield task.upto


@contextlib.contextmanager
def showing(wanted: bool = True, alone: bool = False) -> Generator[None, None, None]:
    """Show tasks meanwhile: bars where stderr is a terminal (or a notebook), lines elsewhere. Lines go to the handlers
    that the program has, to stderr where it has none or with `alone` (the command line). ISOSTEP_QUIET=1 leaves only
    warnings."""
    if not wanted:
        yield
        return
    before, lines = (_screen.wanted, log.level, log.propagate), _Lines()
    if alone or not log.hasHandlers():
        log.addHandler(lines)
        log.propagate = False
    _screen.wanted = True
    if os.environ.get("ISOSTEP_QUIET"):
        log.setLevel(logging.WARNING)
    elif alone or not log.isEnabledFor(logging.INFO):
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _screen.wanted, level, log.propagate = before
        log.setLevel(level)
        log.removeHandler(lines)


class _Lines(logging.Handler):
    """On stderr, whatever it is at the moment: a live display puts lines above its bars."""

    def emit(self, record: logging.LogRecord) -> None:
        text = printable(record.getMessage())
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname.lower()}: {text}"
        if log.level <= logging.DEBUG:
            text = f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {text}"
        print(text, file=sys.stderr, flush=True)


class _Screen:
    """The bars of all tasks under way in one display, since a terminal can hold one."""

    def __init__(self) -> None:
        self.wanted = False
        self.live: Any = None
        self.tasks: list[Task] = []

    def add(self, task: Task) -> None:
        if not self.wanted or not log.isEnabledFor(logging.INFO):
            return
        if self.live is None and (live := _display()) is not None:
            self.live = live
            live.start()
        if self.live is not None:
            self.tasks.append(task)
            task.bar = self.live.add_task(task.what, total=task.total, completed=task.had, note="")

    def update(self, task: Task) -> None:
        self.live.update(task.bar, completed=task.done, note=printable(task.note))

    def remove(self, task: Task) -> None:
        if task in self.tasks:
            self.tasks.remove(task)
        if task.bar is not None:
            self.live.remove_task(task.bar)
            task.bar = None
        if not self.tasks and self.live is not None:
            self.live.stop()
            self.live = None


def _display() -> Any:
    """A display on stderr, or None where nobody would see it."""
    from rich.console import Console

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        return None
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    return Progress(*columns, console=console, transient=True)


_screen = _Screen()
