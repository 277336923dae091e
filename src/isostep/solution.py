"""What an integration gives back: the graphs, and an exact account of how they came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from isostep.base.errors import IsostepError
from isostep.state import GraphState


class Status(IntEnum):
    """How a graph's integration ended."""

    RUNNING = 0
    DONE = 1
    MAX_STEPS = 2
    NON_FINITE = 3


class IntegrationError(IsostepError):
    """Some graphs did not reach the end; raised only on request."""


@dataclass(frozen=True, eq=False)
class Trace:
    """The steps as a table: one row per step (batch clock) or per step and graph (own clocks).

    Columns: `graph` (index, -1 for the whole batch), `step`, `t`, `dt`, `V_<component>`, `V_g_<component>`, `ds2`
    (summed over components). A graph's first step has no predecessor, so its V is zero.
    """

    columns: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(self.columns["t"])

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]

    def to_dict(self) -> dict[str, list]:
        """Plain lists, for JSON; a value that is not finite becomes None."""
        return {name: _plain(values) for name, values in self.columns.items()}


@dataclass(frozen=True, eq=False)
class Solution:
    """Finished graphs in the order of `index`."""

    state: GraphState  # with the last step's noise
    mean: GraphState  # the denoised output: mean of the last step
    index: Tensor  # (G,) graph indices
    t: Tensor  # (G,) reached time
    steps: Tensor  # (G,) steps taken
    calls: Tensor  # (G,) network calls that worked on this graph
    status: Tensor  # (G,) Status
    batch_calls: int  # network calls made, each on a batch
    trace: Trace | None = None
    snapshots: Mapping[float, GraphState] | None = None

    def counts(self) -> dict[str, int]:
        """How many graphs ended in which status."""
        return {s.name.lower(): int((self.status == s).sum()) for s in Status if s != Status.RUNNING}

    def raise_failures(self) -> Solution:
        """Raise if any graph did not reach the end; otherwise return itself."""
        bad = (self.status != Status.DONE).nonzero().flatten()
        if len(bad):
            first = bad[0]
            raise IntegrationError(
                f"{len(bad)} of {len(self.status)} graphs did not finish; graph {int(self.index[first])} stopped with "
                f"{Status(int(self.status[first])).name.lower()} at t = {float(self.t[first]):.4f}: "
                "use smaller steps, or raise max_steps"
            )
        return self


def _plain(values: Tensor) -> list[Any]:
    finite = values.isfinite() if values.is_floating_point() else torch.ones_like(values, dtype=torch.bool)
    return [v if ok else None for v, ok in zip(values.tolist(), finite.tolist(), strict=True)]
