"""The steps that proposed constants of DVS take on the pilot's rate, beside equal steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from isostep.reporting.plots import COLOURS, FAINT, INK, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from isostep.control.propose import DvsProposal


def figure(name: str, t: Sequence[float], rate: Mapping[str, Sequence[float]], found: DvsProposal) -> Figure:
    """dt in base steps, with its bounds and the active range; and ds2, equal steps and DVS."""
    drawn, (left, right) = panels(2, height=3.2)
    for a, b in found.active:
        for axis in (left, right):
            axis.axvspan(a, b, color=FAINT, alpha=0.4, lw=0)
    left.plot(found.t, found.dt, color=COLOURS[1], lw=1.3)
    for bound in (0.2, 1.0, 5.0):
        left.axhline(bound, color=INK, lw=0.7, ls="--" if bound != 1 else "-")
    left.set_title(f"{name}: step dt, in base steps", fontsize=10, color=INK)
    base = float(np.median(np.diff(t)))
    equal = np.sum(list(rate.values()), axis=0) * base**2
    scale = (len(found.t) / found.share * base) ** 2  # the trial's base step is another one than the pilot's
    right.plot(t, equal, color=COLOURS[0], lw=1.2, label="equal steps")
    right.plot(found.t[1:], np.array(found.ds2[1:]) * scale, color=COLOURS[1], lw=1.2, ls="--", label="DVS")
    right.set_title("information per step ds\u00b2", fontsize=10, color=INK)
    right.legend(frameon=False, fontsize=8.5)
    for axis in (left, right):
        axis.set_yscale("log")
        axis.set_xlabel("t (0 noise, 1 data)")
    return drawn
