"""DVS for a loop of your own: drifts and g in, dt out; the clock and the average are kept inside.

    stepper = DvsStepper(steps=1000, kappa=1.0, gamma=0.22)
    while not stepper.done:
        dt = stepper({"X": drift_x, "A": drift_a}, {"X": g_x, "A": g_a})    # evaluated at stepper.t
        ...                                                                 # one step of length dt

The same arithmetic as in the library's own loop (`control/dvs.py`), so the same drifts give the same steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.control.base import Measured
from isostep.control.dvs import DvsMemory, dvs
from isostep.geometry import drift_variation


class DvsStepper:
    """Step sizes of one batch of graphs. Construct a new one for every batch.

    Options are those of the schedule `dvs` (kappa, gamma, active, ema_start, ...), stated at 1000 base steps. With
    `reduction="batch"` the batch has one clock, `t` and dt are scalars; with `"graph"` each graph has its own, shape
    (B,), and the dt of a finished graph is 0. `t_end` is where the run ends: 1 for bridges, 1 - 1e-4 for GDSS.

    Example:
        >>> import torch, isostep
        >>> stepper, x = isostep.DvsStepper(steps=50), torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
        >>> while not stepper.done:                              # a loop of your own
        ...     drift = 1 - x                                    # one network call
        ...     x = x + drift * stepper({"X": drift}, {"X": 0.5})
        >>> float(stepper.t)
        1.0
    """

    def __init__(self, steps: int = 1000, t_end: float = 1.0, **options: Any) -> None:
        self.settings = dvs(steps, **options)
        self.t_end = t_end
        self._t = torch.zeros(1, dtype=torch.float64)
        self._step = 0
        self._memory: DvsMemory | None = None
        self._drifts: Mapping[str, Tensor] = {}

    @property
    def t(self) -> Tensor:
        """Where the next drift is to be evaluated."""
        return self._t[0] if self.settings.couples_graphs else self._t

    @property
    def done(self) -> bool:
        """Whether every graph has reached the end."""
        return bool((self._t >= self.t_end - self.settings.eps_bound).all())

    def __call__(
        self,
        drifts: Mapping[str, Tensor],
        diffusions: Mapping[str, Tensor | float],
        entries: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """The step to take from `t`, which moves to its end.

        `drifts`: by component, (B, ...), masked, at `t`. `diffusions`: g by component, a number or one per graph.
        `entries`: free entries by component, (B,), for `normalize="entries"`.
        """
        g = self._checked(drifts, diffusions, entries)
        first = next(iter(drifts.values()))
        if self._memory is None:
            self._t = torch.zeros(len(first), dtype=torch.float64, device=first.device)
            self._memory = self.settings.start(self._t, len(drifts), self.t_end)
        variation = torch.zeros(len(first), len(drifts), dtype=torch.float64, device=first.device)
        if self._step:
            variation = drift_variation(drifts, self._drifts, g)
        running = self._t < self.t_end - self.settings.eps_bound
        count = torch.full_like(self._t, self._step)
        free = torch.ones_like(variation) if entries is None else torch.stack([entries[n] for n in drifts], 1)
        t1, dt, memory = self.settings.propose(self._memory, Measured(self._t, count, variation, running, free))
        self._drifts = {name: drift.detach().clone() for name, drift in drifts.items()}
        self._memory, self._step = memory, self._step + 1
        self._t = torch.where(running, t1, self._t)
        dt = torch.where(running, dt, torch.zeros_like(dt))
        return dt[0] if self.settings.couples_graphs else dt

    def _checked(self, drifts: Mapping[str, Tensor], diffusions: Mapping[str, Any], entries: Any) -> dict[str, Tensor]:
        """g by component as (B,) in double precision."""
        sizes = {len(drift) for drift in drifts.values()}
        if len(sizes) != 1:
            raise InputError(f"drifts need one row per graph, the same number in all, got {sorted(sizes)} rows")
        before = {name: drift.shape for name, drift in self._drifts.items()}
        if before and before != {name: drift.shape for name, drift in drifts.items()}:
            raise InputError("the drifts changed their names or shapes; construct a new DvsStepper for every batch")
        if diffusions.keys() != drifts.keys():
            raise InputError(f"drifts are of {sorted(drifts)} but g of {sorted(diffusions)}; give both by component")
        if self.settings.normalize == "entries" and entries is None:
            raise InputError('normalize="entries" needs entries, the number of free entries by component')
        rows = sizes.pop()
        return {
            name: torch.as_tensor(g, dtype=torch.float64, device=drifts[name].device).expand(rows)
            for name, g in diffusions.items()
        }
