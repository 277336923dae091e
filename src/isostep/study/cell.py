"""One cell of a study: an arm's graphs for one seed, and their metrics.

A recorded run (the first seed of every arm) also keeps its trace, the graphs at TIMES along the way, and films of a few
of them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from isostep.base.files import write_json
from isostep.item import write_items
from isostep.metric.evaluate import Report, evaluate
from isostep.run.engine import save_result
from isostep.run.format import RUN
from isostep.sampling.run import SampleResult
from isostep.solution import Trace
from isostep.study.film import Camera
from isostep.study.record import FORMAT, Values
from isostep.study.reference import StudyReference

TIMES = tuple(k / 10 for k in range(11))
FOLLOWED = 256  # graphs whose metrics are measured along the way
TRACE_ROWS = 1200


def write_cell_run(folder: Path, result: SampleResult, camera: Camera | None, model_name: str) -> None:
    """A run folder, with the graphs on the way inside; `run.json` comes last: a folder that has it is complete."""
    snapshots = result.solution.snapshots
    if camera is not None and snapshots is not None:
        for t, state in snapshots.items():
            items = result.model.decode(state.take(slice(FOLLOWED)))
            write_items(at_time(folder, t) / result.model.decoder.item.file, items)
        write_json(folder / "path.json", _path_record(result, camera), indent=None)
    save_result(replace(result, solution=replace(result.solution, trace=None)), folder, model_name)


def at_time(folder: Path, t: float) -> Path:
    return folder / f"at-{t:.2f}"


def is_complete(folder: Path) -> bool:
    return (folder / RUN).is_file()


def evaluate_run(folder: Path, against: StudyReference, metrics: tuple[str, ...]) -> tuple[Values, Report]:
    """Values by metric, None where one is not defined (such as FCD of a single molecule), and what else is known."""
    report = evaluate(folder, against.reference, against.kernel, metrics, resamples=0, rule=against.rule, partial=True)
    return {key: report.values[key].value if key in report.values else None for key in metrics}, report


def _path_record(result: SampleResult, camera: Camera) -> dict[str, Any]:
    assert result.solution.trace is not None
    films = [film.model_dump(mode="json", exclude_none=True) for film in camera.films(result)]
    return {"format": FORMAT, "trace": thin(result.solution.trace), "films": films}


def thin(trace: Trace) -> dict[str, list[float | None]]:
    """At most TRACE_ROWS rows: as they are, or, with own clocks or more steps, means over equal bins of t."""
    columns = {name: value.double().numpy() for name, value in trace.columns.items() if name != "graph"}
    if len(trace) > TRACE_ROWS or bool((trace["graph"] >= 0).any()):
        t = columns["t"]
        bins = np.clip((t / max(t.max(), 1e-9) * TRACE_ROWS / 4).astype(int), 0, TRACE_ROWS // 4 - 1)
        columns = {name: _bin_means(value, bins) for name, value in columns.items()}
    return {name: [float(v) if np.isfinite(v) else None for v in value] for name, value in columns.items()}


def _bin_means(value: np.ndarray, bins: np.ndarray) -> np.ndarray:
    """Mean of the finite values of each bin that has any row."""
    fine = np.isfinite(value)
    count = np.bincount(bins[fine], minlength=bins.max() + 1)
    total = np.bincount(bins[fine], value[fine], minlength=bins.max() + 1)
    kept = np.bincount(bins) > 0
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)[kept]
