"""What a pilot run has measured: rates at times t in [0, 1], means over its graphs, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isostep.base.errors import InputError
from isostep.trace import Trace

Rates = dict[str, tuple[float, ...]]  # by component


@dataclass(frozen=True)
class Pilot:
    """`rate` is j_c, the information rate of the path; `decisions` that of the predicted entries, and `undecided` how
    many of these are open (`sampling/watch.py`). The last two are empty where a model decides nothing."""

    t: tuple[float, ...]
    rate: Rates
    graphs: int
    calls: int
    decisions: Rates = field(default_factory=dict[str, tuple[float, ...]])
    undecided: tuple[float, ...] = ()

    @staticmethod
    def from_trace(trace: Trace, t_end: float, graphs: int, calls: int, **seen: Any) -> Pilot:
        """From the trace of a batch on one clock."""
        t, dt = trace["t"].double().numpy() / t_end, trace["dt"].double().numpy()
        names = [name[2:] for name in trace.columns if name.startswith("V_") and not name.startswith("V_g_")]
        rate = {n: tuple((trace[f"V_{n}"].double().numpy()[1:] / dt[:-1]).tolist()) for n in names}
        # df between steps k-1 and k speaks of the time between them.
        return Pilot(tuple(((t[1:] + t[:-1]) / 2).tolist()), rate, graphs, calls, **seen)

    def to_dict(self) -> dict[str, Any]:
        return {
            "t": self.t, "rate": self.rate, "graphs": self.graphs, "calls": self.calls, "decisions": self.decisions,
            "undecided": self.undecided,
        }  # fmt: skip

    @staticmethod
    def from_dict(record: Any) -> Pilot:
        try:
            t, open_entries = (tuple(float(x) for x in record[name]) for name in ("t", "undecided"))
            rate, decisions = _rates(record["rate"]), _rates(record["decisions"])
            pilot = Pilot(t, rate, int(record["graphs"]), int(record["calls"]), decisions, open_entries)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise InputError(f"not a calibration: {error}; delete the file and calibrate again") from error
        columns = [t, *rate.values(), *decisions.values(), *([open_entries] if open_entries else [])]
        if not rate or {len(t)} != {len(c) for c in columns} or len(t) < 2 or not np.isfinite(np.array(columns)).all():
            raise InputError("not a calibration: times and rates do not match; delete the file and calibrate again")
        return pilot


def _rates(record: Mapping[str, Any]) -> Rates:
    return {str(name): tuple(float(x) for x in values) for name, values in record.items()}
