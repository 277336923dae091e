"""What sampling took, and its summary: the same numbers for graphs in memory and for a run folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isostep.settings.schema import SamplerSettings


@dataclass(frozen=True)
class Account:
    """Sums over `n` items: how many ended how (`counts`) and have which property (`tally`)."""

    n: int
    counts: dict[str, int]
    steps: int
    calls: int
    batch_calls: int  # network calls made, each on a batch
    seconds: float  # of all workers together
    tally: dict[str, int]

    @staticmethod
    def total(parts: Iterable[Account]) -> Account:
        parts = list(parts)
        counts, tally = Counter[str](), Counter[str]()
        for part in parts:
            counts.update(part.counts)
            tally.update(part.tally)
        return Account(
            sum(part.n for part in parts),
            dict(counts),
            sum(part.steps for part in parts),
            sum(part.calls for part in parts),
            sum(part.batch_calls for part in parts),
            sum(part.seconds for part in parts),
            dict(tally),
        )

    def summary(self, model: str, settings: SamplerSettings, seed: int) -> dict[str, Any]:
        """The numbers of the summary table, ready for JSON."""
        from isostep.settings.resolve import build  # records of a run are read without torch

        return {
            "model": model,
            "graphs": self.n,
            **self.counts,
            "schedule": settings.schedule,
            "solver": settings.solver,
            "corrector": settings.corrector,
            "clock": settings.clock,
            "coupled": build(settings).couples_graphs,
            "seed": seed,
            "steps_mean": self.steps / self.n,
            "calls_mean": self.calls / self.n,
            "batch_calls": self.batch_calls,
            "seconds": self.seconds,
            **{name: count / self.n for name, count in self.tally.items()},
        }
