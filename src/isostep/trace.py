"""What the loop noted on the way, as a table of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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

    def plot(self) -> Figure:
        """Step sizes and V of every component over time, as a matplotlib figure."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 5), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)  # pyright: ignore[reportUnknownVariableType]
        t = self["t"].cpu().numpy()
        above.plot(t, self["dt"].cpu().numpy(), ".", ms=3)  # pyright: ignore[reportUnknownMemberType]
        above.set(yscale="log", ylabel="dt")  # pyright: ignore[reportUnknownMemberType]
        for name, values in self.columns.items():
            if name.startswith("V_") and not name.startswith("V_g_"):
                known = (values > 0).cpu().numpy()  # a graph's first step has no predecessor
                below.plot(t[known], values.cpu().numpy()[known], ".", ms=3, label=name[2:])  # pyright: ignore
        below.set(yscale="log", xlabel="t", ylabel="V")  # pyright: ignore[reportUnknownMemberType]
        below.legend()  # pyright: ignore[reportUnknownMemberType]
        return figure

    def to_dict(self) -> dict[str, list[Any]]:
        """Plain lists, for JSON; a value that is not finite becomes None."""
        return {name: _plain(values) for name, values in self.columns.items()}


def _plain(values: Tensor) -> list[Any]:
    plain: list[Any] = values.tolist()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in plain]
