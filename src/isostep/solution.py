"""What an integration gives back: the graphs, and an exact account of how they came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from torch import Tensor

from isostep.base.errors import IsostepError
from isostep.state import GraphState
from isostep.trace import Trace


class Status(IntEnum):
    """How a graph's integration ended."""

    RUNNING = 0
    DONE = 1
    MAX_STEPS = 2
    NON_FINITE = 3


class IntegrationError(IsostepError):
    """Some graphs did not reach the end; raised only on request."""


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
    counted: Mapping[str, Tensor] = field(
        default_factory=dict[str, Tensor]
    )  # (G,) what the controller counted of its steps

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
