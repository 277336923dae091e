"""What a run says of itself while it runs: its speed, and the hours it will take."""

from __future__ import annotations

import os
import sys
import time

FIRST, LONGEST = 5.0, 600.0  # seconds until the first line; the gap doubles from line to line, up to this


class Voice:
    """Lines on stderr, on a terminal or not; none with `quiet` or ISOSTEP_QUIET=1."""

    def __init__(self, name: str, done: int, end: int, quiet: bool = False) -> None:
        self.name, self.end = name, end
        self.quiet = quiet or bool(os.environ.get("ISOSTEP_QUIET"))
        self.gap, self.seen = FIRST, (done, time.perf_counter())
        self.due = self.seen[1] + self.gap

    def say(self, text: str) -> None:
        if not self.quiet:
            print(f"{self.name}: {text}", file=sys.stderr, flush=True)

    def after(self, step: int, note: str) -> None:
        """Called after every step; says a line when one is due, with the speed since the line before."""
        now = time.perf_counter()
        if now < self.due or step == self.seen[0]:
            return
        rate = (step - self.seen[0]) / (now - self.seen[1])
        self.say(f"step {step} of {self.end}, {note}, {pace(rate)}, {span((self.end - step) / rate)} left")
        self.gap, self.seen = min(2 * self.gap, LONGEST), (step, now)
        self.due = now + self.gap


def pace(rate: float) -> str:
    """Steps per second, or seconds per step."""
    return f"{rate:.3g} steps/s" if rate >= 1 else f"{1 / rate:.3g} s/step"


def span(seconds: float) -> str:
    """A duration in its natural unit."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
