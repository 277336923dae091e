"""Studies as functions: what `isostep compare`, `sweep`, `tune` and `report` do, for Python and notebooks."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isostep.base.errors import InputError, require
from isostep.base.progress import showing
from isostep.base.schema import checked
from isostep.reporting.tables import Table, difference_table, long_csv, summary_table
from isostep.settings.schedules import COMPARED, PAPER, PLAIN
from isostep.study.plan import Arm, StudyPlan, product_arms
from isostep.study.record import Study

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from isostep.model.model import Model
    from isostep.study.tune_record import TuneRecord


@dataclass(frozen=True, eq=False)
class Comparison:
    """A study and the verdicts on its arms. Prints as a table; a notebook shows it as one."""

    study: Study
    record: dict[str, Any]  # comparison.json

    @property
    def folder(self) -> Path:
        return self.study.store.folder

    @property
    def tables(self) -> list[Table]:
        return [table for table in (summary_table(self.record), difference_table(self.record)) if table.rows]

    def to_markdown(self) -> str:
        return "\n".join(table.markdown() for table in self.tables)

    def __str__(self) -> str:
        return self.to_markdown()

    def __repr__(self) -> str:
        return f"Comparison({self.folder}: {', '.join(arm['name'] for arm in self.record['arms'])})"

    def to_pandas(self) -> pandas.DataFrame:
        """One row per arm and metric: mean, difference to the first arm, interval, p, verdict."""
        return require("pandas", "pandas", "to_pandas()").read_csv(io.StringIO(long_csv(self.record)))

    def plot(self) -> dict[str, Figure]:
        """The plots of the study by name, as matplotlib figures."""
        from isostep.reporting.figures import figures
        from isostep.reporting.plots import draw

        return {name: draw(figure) for name, figure in figures(self.study, self.record).items()}

    def report(self, out: str | Path | None = None) -> Path:
        """Write the page; default: report.html in the study's folder."""
        return report(self.folder, out)

    def _repr_html_(self) -> str:
        parts = []
        for table in self.tables:
            cells = ["".join(f"<th>{escape(name)}</th>" for name in table.header)]
            cells += ["".join(f"<td>{escape(text)}</td>" for text in row) for row in table.rows]
            rows = "".join(f"<tr>{row}</tr>" for row in cells)
            notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
            parts.append(f"<b>{escape(table.title)}</b><table>{rows}</table>{notes}")
        return "".join(parts)


def compare(
    model: str | Path | Model,
    schedules: Sequence[str] = COMPARED,
    *,
    out: str | Path,
    solvers: Sequence[str] = (),
    arms: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: Iterable[int] = range(5),
    n: int = 100,
    steps: int | None = None,
    calls: Sequence[int] | int = (),
    clock: str = "batch",
    corrector: str | None = None,
    workers: int = 1,
    progress: bool = False,
    **plan: Any,
) -> Comparison:
    """Compare schedules and solvers on common random numbers; the first arm is the baseline. What is in the folder
    `out` is not computed again.

    `arms`: instead of schedules, solvers, steps, calls and corrector, a name for each set of choices of `sample`, such
    as {"mine": {"schedule": "dvs", "calls": 50}}. `plan`: reference, kernel, metrics, noise, batch_size, weights,
    title.

    Example:
        >>> import tempfile, isostep
        >>> options = {"steps": 4, "seeds": [0, 1], "n": 4, "metrics": ["degree"]}
        >>> with tempfile.TemporaryDirectory() as out:
        ...     found = isostep.compare("grum-community-small", ["uniform", "cosine"], out=out, **options)
        >>> [arm["name"] for arm in found.record["arms"]]
        ['uniform', 'cosine']
    """
    if arms is None:
        budgets = [calls] if isinstance(calls, int) else list(calls)
        made = product_arms(list(schedules), list(solvers), budgets, steps, clock=clock, corrector=corrector)
    else:
        common = {"solvers": solvers, "steps": steps, "calls": calls, "corrector": corrector}
        common["schedules"] = None if schedules is COMPARED else schedules
        if ignored := [name for name, value in common.items() if value not in (None, (), [])]:
            raise InputError(f"{', '.join(ignored)} beside arms would be ignored; say it in every arm")
        made = tuple(
            checked(
                Arm,
                {
                    "name": name,
                    "chosen": {"clock": clock, **{key: value for key, value in given.items() if key != "calls"}},
                    "calls": given.get("calls"),
                },
                f"arm {name}",
            )
            for name, given in arms.items()
        )
    return _study(model, out, made, seeds, n, workers, progress, plan)


def sweep(
    model: str | Path | Model,
    params: Mapping[str, Sequence[Any]],
    *,
    out: str | Path,
    schedule: str = PAPER,
    baseline: str = PLAIN,
    solver: str | None = None,
    steps: int | None = None,
    seeds: Iterable[int] = range(5),
    n: int = 100,
    clock: str = "batch",
    workers: int = 1,
    progress: bool = False,
    **plan: Any,
) -> Comparison:
    """Compare every value of `params`, such as {"schedule.gamma": [0.1, 0.2]}, with a baseline; several multiply.

    Example:
        >>> import tempfile, isostep
        >>> options = {"schedule": "power", "steps": 4, "seeds": [0], "n": 4, "metrics": ["degree"]}
        >>> with tempfile.TemporaryDirectory() as out:
        ...     found = isostep.sweep("grum-community-small", {"schedule.rho": [1, 3]}, out=out, **options)
        >>> len(found.record["arms"])                                  # the baseline and two values
        3
    """
    from isostep.study.sweep import Param, check_path, sweep_arms

    chosen = [Param(check_path(path), tuple(values)) for path, values in params.items()]
    arms = sweep_arms(chosen, schedule, baseline, solver=solver, steps=steps, clock=clock)
    return _study(model, out, arms, seeds, n, workers, progress, plan)


def tune(
    model: str | Path | Model,
    calls: int = 20,
    reference: str | None = None,
    *,
    out: str | Path = "tuned.toml",
    store: bool = False,
    workers: int = 1,
    progress: bool = False,
    **plan: Any,
) -> TuneRecord:
    """Find the best sampler for a budget of calls by measuring, confirm it on fresh seeds, and write the preset `out`;
    the folder beside it keeps the work, so that the same call goes on. `reference` None: the model's dataset.

    `plan`: fields of `TunePlan`, such as n, minutes, generations, confirm, keep, metrics, own (the model's long run is
    the reference), only (schedules and solvers to try), yardstick_steps. The record's `result` is the choice.

    Example:
        >>> import pathlib, tempfile, isostep
        >>> options = {"n": 4, "generations": 0, "confirm": 2, "only": ["exponential-2"], "metrics": ["degree"]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     out = pathlib.Path(folder) / "tuned.toml"
        ...     record = isostep.tune("grum-community-small", 4, out=out, yardstick_steps=8, **options)
        ...     out.is_file(), record.plan.calls
        (True, 4)
    """
    from isostep.model.lookup import load_model
    from isostep.study.tune import tune as run
    from isostep.study.tune_record import TunePlan

    wanted = checked(TunePlan, {"model": _name(model), "calls": calls, "reference": reference, **plan}, "tune")
    with showing(progress):
        return run(wanted, out, load_model(model), store, workers=workers)


def report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write one self-contained HTML page of a study, a tuning or a training run; nothing is computed again.

    `out`: a file that ends in .html; report.html in the folder where None.

    Example:
        >>> import tempfile, isostep
        >>> with tempfile.TemporaryDirectory() as out:
        ...     options = {"steps": 4, "seeds": [0], "n": 4, "metrics": ["degree"]}
        ...     _ = isostep.compare("grum-community-small", ["uniform", "cosine"], out=out, **options)
        ...     isostep.report(out).name
        'report.html'
    """
    from isostep.study.tune_record import is_tuning
    from isostep.training.log import is_training_run

    folder = Path(folder)
    path = Path(out) if out is not None else folder / "report.html"
    if Path(os.path.realpath(path)).suffix.lower() not in (".html", ".htm"):  # no record has such a name
        raise InputError(f"a page is an .html file, got {path}; choose such a name")
    if is_training_run(folder):
        from isostep.reporting.training import write_training_report

        write_training_report(path, folder)
    elif is_tuning(folder):
        from isostep.reporting.tuning import write_tuning_report

        write_tuning_report(path, folder)
    else:
        from isostep.reporting.output import write_outputs
        from isostep.reporting.page import write_report
        from isostep.study.record import load_study

        study = load_study(folder)
        write_report(path, study, write_outputs(study, plots=False))  # the page has them
    return path


def _study(
    model: str | Path | Model,
    out: str | Path,
    arms: tuple[Arm, ...],
    seeds: Iterable[int],
    n: int,
    workers: int,
    progress: bool,
    plan: dict[str, Any],
) -> Comparison:
    from isostep.model.lookup import load_model
    from isostep.reporting.output import write_outputs
    from isostep.study.compute import run_study

    name = _name(model)
    fields = {"title": name, **plan, "model": name, "arms": arms, "seeds": tuple(seeds), "n": n}
    made = checked(StudyPlan, fields, "study")
    with showing(progress):
        study = run_study(made, out, load_model(model, made.weights), workers=workers)
    return Comparison(study, write_outputs(study, plots=False))


def _name(model: str | Path | Model) -> str:
    """What a plan calls it."""
    from isostep.model.model import Model

    return model.info.name if isinstance(model, Model) else str(model)
