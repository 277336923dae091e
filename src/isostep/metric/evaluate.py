"""One call from generated items and a reference to every metric, each with interval, floor and definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isostep.base.errors import InputError, require
from isostep.base.progress import progress
from isostep.item.graph import Graph
from isostep.metric.base import Better, Metric, Value, evaluate_metric
from isostep.metric.conformers import CONFORMER_METRICS, ConformerMetric
from isostep.metric.graph_reference import GraphReference
from isostep.metric.graph_summary import GraphSummary
from isostep.metric.items import Items, Skipped, gather
from isostep.metric.mmd import GraphMMD, Kernel
from isostep.metric.molecules import MoleculeSet, Validity
from isostep.metric.nspdk import GraphNspdk
from isostep.metric.reference import (
    MOLECULE_METRICS,
    VALIDITY,
    MoleculeReference,
    Reference,
    Shipped,
    load_reference,
    shipped,
)
from isostep.metric.vun import VUN, BlockModel, Connected, Novel, Planar, Unique, Valid

FALLBACK_KERNEL: Kernel = "tv"


@dataclass(frozen=True)
class Report:
    """Values by metric; `undefined` says why a metric has none; `skipped` names the lines that could not be used."""

    values: dict[str, Value]
    kind: str
    n: int
    reference: str
    kernel: Kernel | None
    definitions: dict[str, str]
    equals: dict[str, str]
    better: dict[str, Better]
    undefined: dict[str, str]
    skipped: list[Skipped]
    resamples: int
    seed: int
    corrected: bool = False  # validity was judged before correction

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        """One row per metric. Validity of SMILES that come without flags says what it is."""
        kept = ("value", "low", "high", "floor", "n")
        return [
            {"metric": self.title(key), "better": self.better[key], **{name: getattr(value, name) for name in kept}}
            for key, value in self.values.items()
        ]

    def title(self, key: str) -> str:
        return f"{key} (after correction)" if key == "valid" and self.as_given else key

    @property
    def as_given(self) -> bool:
        """Whether molecules came without word on their validity before correction."""
        return self.kind == "molecule" and not self.corrected

    def to_pandas(self) -> Any:
        return require("pandas", "pandas", "to_pandas()").DataFrame(self.rows()).set_index("metric")

    def to_markdown(self) -> str:
        head = f"{self.n} {self.kind}s against {self.reference}" + (f", kernel {self.kernel}" if self.kernel else "")
        lines = [head, "", "| metric | value | 95 % interval | training set |", "|---|---|---|---|"]
        for row in self.rows():
            interval = "" if row["low"] is None else f"{row['low']:.4g} to {row['high']:.4g}"
            floor = "" if row["floor"] is None else f"{row['floor']:.4g}"
            arrow = "↓" if row["better"] == "lower" else "↑"
            lines.append(f"| {row['metric']} {arrow} | {row['value']:.4g} | {interval} | {floor} |")
        return "\n".join([*lines, *(f"\n{key}: not defined ({why})" for key, why in self.undefined.items())])

    def __str__(self) -> str:
        return self.to_markdown()


def evaluate(
    source: Any,
    reference: str | Path | Reference,
    kernel: Kernel | None = None,
    metrics: Iterable[str] | None = None,
    resamples: int = 200,
    seed: int = 0,
    strict: bool = False,
    workers: int = 1,
) -> Report:
    """Measure generated graphs or molecules: a result of `sample`, a file, a run folder, or a sequence of graphs,
    molecules or SMILES. Bare SMILES do not tell which were invalid before correction; give the result itself for that.

    `reference`: a name that comes with the package ("planar"), a file of `isostep reference build`, or a fitted one.
    `kernel` of the graph MMDs: the reference's customary one where None. `metrics`: keys; all that apply where None,
    and then one that cannot be computed is listed as undefined instead of raising.
    """
    if workers < 1 or resamples < 0 or seed < 0:
        raise InputError(f"need workers >= 1, resamples >= 0, seed >= 0, got {workers}, {resamples}, {seed}")
    entry, fitted, name = _resolve(reference)
    items = gather(source, strict)
    _check_kind(items, fitted, name)
    if kernel and items.kind == "molecule":
        raise InputError(f"kernel {kernel!r} is for graph MMDs; {name} holds molecules, leave it out")
    if items.kind == "graph":
        kernel = kernel or entry.kernel or FALLBACK_KERNEL
    known = _graph_metrics(kernel, entry) if items.kind == "graph" else _molecule_metrics(items)
    chosen = _choose(known, metrics)
    if isinstance(fitted, GraphSummary):
        fitted = fitted.among(items.graphs)
    molecules = MoleculeSet(items.smiles, workers)
    values, undefined = {}, {}
    with progress(f"measuring {len(items)} {items.kind}s", len(chosen), "metrics") as task:
        for key, metric in chosen.items():
            task(0, note=key)
            generated = items.graphs if items.kind == "graph" else items.valid if key == "valid" else molecules
            generated = items.conformers if isinstance(metric, ConformerMetric) else generated
            value = _value_or_reason(metric, generated, fitted, resamples, seed)
            if isinstance(value, Value):
                values[key] = value
            elif metrics is None:
                undefined[key] = str(value)
            else:
                raise value
            task()
    return Report(
        values,
        items.kind,
        len(items),
        name,
        kernel,
        {key: metric.definition for key, metric in chosen.items()},
        {key: metric.equals for key, metric in chosen.items()},
        {key: metric.better for key, metric in chosen.items()},
        undefined,
        items.skipped,
        resamples,
        seed,
        items.corrected,
    )


def _value_or_reason(metric: Metric, *arguments: Any) -> Value | InputError:
    try:
        return evaluate_metric(metric, *arguments)
    except InputError as error:
        return error


def _resolve(reference: str | Path | Reference) -> tuple[Shipped, Reference, str]:
    if isinstance(reference, MoleculeReference | GraphReference):
        kind = "molecule" if isinstance(reference, MoleculeReference) else "graph"
        return Shipped(kind), reference, "given in memory"
    fitted = load_reference(reference)
    name = str(reference).lower().replace("_", "-")
    return shipped().get(name, Shipped("graph")), fitted, str(reference)


def _check_kind(items: Items, reference: Reference, name: str) -> None:
    wanted = "molecule" if isinstance(reference, MoleculeReference) else "graph"
    if items.kind != wanted:
        raise InputError(f"the generated set holds {items.kind}s, but the reference {name} holds {wanted}s")


def _molecule_metrics(items: Items) -> dict[str, Metric]:
    metrics: list[Any] = [Validity(items.corrected), *MOLECULE_METRICS]
    metrics += CONFORMER_METRICS if items.conformers else ()
    return {metric.name: metric for metric in metrics}


def _graph_metrics(kernel: Kernel | None, entry: Shipped) -> dict[str, Metric]:
    assert kernel is not None
    metrics: list[Any] = [GraphMMD(name, kernel) for name in ("degree", "clustering", "orbit", "spectral")]
    metrics += [GraphNspdk(), Connected(), Unique(), Novel()]
    if rule := VALIDITY.get(entry.valid or ""):
        validity = JudgedOnce(rule)
        metrics += [Valid(validity), VUN(validity)]
    return {metric.name: metric for metric in metrics}


class JudgedOnce:
    """A rule of validity whose verdicts on one set serve both `valid` and `vun`: block inference takes its time."""

    def __init__(self, rule: Planar | BlockModel) -> None:
        self.rule, self.definition, self.equals = rule, rule.definition, rule.equals
        self.verdicts: dict[int, tuple[np.ndarray, dict[str, Any]]] = {}

    def judge(self, graphs: Sequence[Graph]) -> tuple[np.ndarray, dict[str, Any]]:
        if id(graphs) not in self.verdicts:
            self.verdicts[id(graphs)] = self.rule.judge(graphs)
        return self.verdicts[id(graphs)]


def _choose(known: Mapping[str, Metric], wanted: Iterable[str] | None) -> dict[str, Metric]:
    if wanted is None:
        return dict(known)
    wanted = [key.strip().lower() for key in wanted]
    for key in wanted:
        if key not in known:
            raise InputError(f"unknown metric {key!r}; those for this kind are {', '.join(known)}")
    if not wanted:
        raise InputError("no metric was named; leave out --metrics for all")
    return {key: known[key] for key in wanted}
