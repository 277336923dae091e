"""Drift Variation Score: every step covers the same information.

    Vbar_c <- (1 - alpha) Vbar_c + alpha V_c
    dt_c    = clip(dt_base (kappa / (Vbar_c + eps_num))^beta, dt_min, dt_max)
    dt      = min_c dt_c,  and at most T - t
    Vbar_c <- gamma sum_c Vbar_c                 shared state after the step

The first step, and steps outside the active ranges, have dt_base; outside, the EMA returns to its start.
Defaults are the paper's. The authors' program differs: `ema_start="first"` on generic graphs, `eps_bound=2e-3`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from isostep.base.errors import InputError
from isostep.control.base import AcceptAll, Measured, Proposal

PAPER_STEPS = 1000
COUNTED = ("adapted", "at_dt_min", "at_dt_max")
SCALED = ("kappa", "dt_min", "dt_max")  # stated at PAPER_STEPS, proportional to the base step


class DvsMemory(NamedTuple):
    ema: Tensor  # (B, C) Vbar
    begun: Tensor  # (B,) bool: the EMA holds a value
    t_end: Tensor  # (B,)
    counts: Tensor  # (B, 3) steps that adapted, those of them at dt_min and at dt_max


@dataclass(frozen=True)
class Dvs(AcceptAll):
    """The controller's settings.

    `reduction="batch"` averages V over the running, finite graphs, as the paper does: one clock, but a graph then
    depends on its batch mates. `"graph"` gives every graph its own. `normalize="entries"` divides V by the graph's free
    entries.
    An active range (a, b) holds for a < t <= b.
    """

    kappa: float = 1.0
    gamma: float = 0.22
    alpha: float = 0.2
    beta: float = 0.5
    dt_base: float = 1e-3
    dt_min: float | None = None  # default dt_base / 5
    dt_max: float | None = None  # default dt_base * 5
    eps_num: float = 1e-12
    eps_bound: float = 1e-6
    active: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    ema_start: Literal["zero", "first"] = "zero"
    reduction: Literal["batch", "graph"] = "batch"
    normalize: Literal["none", "entries"] = "none"
    needs_variation: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        for name in ("kappa", "beta", "dt_base", "eps_num"):
            _need(name, getattr(self, name), lambda v: v > 0, "positive")
        _need("gamma", self.gamma, lambda v: v >= 0, "zero or more")
        _need("alpha", self.alpha, lambda v: 0 < v <= 1, "in (0, 1]")
        _need("eps_bound", self.eps_bound, lambda v: 0 <= v < 1, "in [0, 1)")
        low, high = self.bounds
        if not 0 < low <= high:
            raise InputError(f"need 0 < dt_min <= dt_max, got dt_min={low} and dt_max={high}")
        if not self.active or any(not 0 <= a < b <= 1 for a, b in self.active):
            raise InputError(f"active ranges must be intervals a < b inside [0, 1], got {self.active}")
        for name, choices in (
            ("ema_start", ("zero", "first")),
            ("reduction", ("batch", "graph")),
            ("normalize", ("none", "entries")),
        ):
            if getattr(self, name) not in choices:
                raise InputError(f"{name} must be one of {choices}, got {getattr(self, name)!r}")

    @property
    def bounds(self) -> tuple[float, float]:
        """dt_min and dt_max."""
        low = self.dt_base / 5 if self.dt_min is None else self.dt_min
        return low, self.dt_base * 5 if self.dt_max is None else self.dt_max

    @property
    def couples_graphs(self) -> bool:
        return self.reduction == "batch"

    def start(self, t: Tensor, components: int, t_end: float) -> DvsMemory:
        return DvsMemory(
            ema=torch.zeros(len(t), components, dtype=t.dtype, device=t.device),
            begun=torch.zeros(len(t), dtype=torch.bool, device=t.device),
            t_end=torch.full_like(t, t_end),
            counts=torch.zeros(len(t), len(COUNTED), dtype=torch.int64, device=t.device),
        )

    def propose(self, memory: DvsMemory, now: Measured) -> Proposal:
        assert now.variation is not None
        adapting = self._active(now.t) & (now.step > 0)
        ema = self._average(memory, self._reduce(now))
        low, high = self.bounds
        per_component = (self.dt_base * (self.kappa / (ema + self.eps_num)) ** self.beta).clamp(low, high)
        wanted = per_component.amin(1)
        pinned = torch.stack([torch.ones_like(adapting), wanted <= low, wanted >= high], 1)
        counts = memory.counts + (pinned & (adapting & now.running)[:, None])
        dt = torch.where(adapting, wanted, torch.full_like(now.t, self.dt_base))
        dt = torch.minimum(dt, memory.t_end - now.t)
        # A step that reaches the end lands on it exactly; adding up could miss it by one bit.
        t1 = torch.where(dt >= memory.t_end - now.t, memory.t_end, now.t + dt)
        shared = (self.gamma * ema.sum(1, keepdim=True)).expand_as(ema)
        kept = torch.where(adapting[:, None], shared, torch.zeros_like(ema))
        return Proposal(t1, dt, memory._replace(ema=kept, begun=adapting, counts=counts))

    def counted(self, memory: DvsMemory) -> Mapping[str, Tensor]:
        return dict(zip(COUNTED, memory.counts.unbind(1), strict=True))

    def warnings(self, components: int) -> list[str]:
        """The average is shared among C components; where that multiplies it by 1 or more, it forgets nothing."""
        growth = (1 - self.alpha) * self.gamma * components
        if growth < 1:
            return []
        return [
            f"gamma {self.gamma:g} makes DVS' average grow without bound: (1 - alpha) gamma C = {growth:.3f} "
            f"with C = {components} components; a gamma below {self.gamma / growth:.3f} does not"
        ]

    def remarks(self, graphs: int, counts: Mapping[str, int]) -> list[str]:
        """Where it had nothing to decide: its step at a bound for most of the active time."""
        length, out = sum(b - a for a, b in self.active) * graphs, list[str]()
        ways = zip(("dt_min", "dt_max"), self.bounds, COUNTED[1:], ("larger", "smaller"), strict=True)
        for bound, dt, name, way in ways:
            if (share := counts.get(name, 0) * dt / length) > 0.5:
                out.append(
                    f"DVS sat at {bound} for {100 * min(share, 1):.0f} % of its active range: there it is fixed steps "
                    f"of {dt:g}; a {way} kappa frees it"
                )
        return out

    def _active(self, t: Tensor) -> Tensor:
        inside = torch.zeros_like(t, dtype=torch.bool)
        for a, b in self.active:
            inside |= (t > a) & (t <= b)
        return inside

    def _reduce(self, now: Measured) -> Tensor:
        """V as the controller uses it, (B, C)."""
        v = now.variation
        assert v is not None
        if self.normalize == "entries":
            v = v / now.entries.clamp_min(1)
        if self.reduction == "graph":
            return v
        # A graph that has just become non-finite must not take the others with it.
        counted = (now.running & v.isfinite().all(1))[:, None]
        return (torch.where(counted, v, 0.0).sum(0) / counted.sum().clamp_min(1)).expand_as(v)

    def _average(self, memory: DvsMemory, v: Tensor) -> Tensor:
        smoothed = (1 - self.alpha) * memory.ema + self.alpha * v
        if self.ema_start == "zero":
            return smoothed
        return torch.where(memory.begun[:, None], smoothed, v)

    def finished(self, memory: DvsMemory, t: Tensor, step: Tensor) -> Tensor:
        return t >= memory.t_end - self.eps_bound

    def least_left(self, memory: DvsMemory, t: Tensor, step: Tensor) -> Tensor:
        longest = max(self.bounds[1], self.dt_base)
        return ((memory.t_end - self.eps_bound - t) / longest).ceil().clamp_min(1).long()


def dvs(steps: int, **options: Any) -> Dvs:
    """DVS whose base step is 1/steps, with constants as the paper states them: at PAPER_STEPS.

    V grows with the step before it (docs/theory.md), so kappa follows the base step, and so do dt_min and dt_max: the
    same constants then take the same share of the base steps, whatever their number.
    """
    if "active" in options:
        options["active"] = tuple((float(a), float(b)) for a, b in options["active"])
    given: dict[str, Any] = {"kappa": Dvs.kappa, **options}
    scaled = {name: given[name] * PAPER_STEPS / steps for name in SCALED if isinstance(given.get(name), int | float)}
    return Dvs(dt_base=1 / steps, **{**given, **scaled})


def _need(name: str, value: Any, holds: Callable[[float], bool], words: str) -> None:
    if not (isinstance(value, int | float) and math.isfinite(value) and holds(value)):
        raise InputError(f"{name} must be {words}, got {value!r}")
