"""One call from generated items and a reference to every metric, each with interval, floor and definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from isostep.base.errors import InputError, require
from isostep.base.files import sha256
from isostep.base.progress import progress
from isostep.metric.base import Better, Bounds, Metric, Value, bounds_of, evaluate_metric
from isostep.metric.items import Items, Skipped, gather
from isostep.metric.kept import Kept, digest, home_of
from isostep.metric.mmd import Kernel
from isostep.metric.reference import Reference, Shipped, reference_file, shipped
from isostep.metric.suite import fit_reference, load_reference, suite_of


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
    titles: dict[str, str] = field(default_factory=dict)  # of metrics that have another name in tables
    bounds: dict[str, Bounds] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        """One row per metric."""
        kept = ("value", "low", "high", "floor", "n")
        return [
            {"metric": self.title(key), "better": self.better[key], **{name: getattr(value, name) for name in kept}}
            for key, value in self.values.items()
        ]

    def title(self, key: str) -> str:
        return self.titles.get(key, key)

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
    reference: str | Path | Reference | Sequence[Any],
    kernel: Kernel | None = None,
    metrics: Iterable[str] | None = None,
    resamples: int = 200,
    seed: int = 0,
    strict: bool = False,
    workers: int = 1,
    rule: str | None = None,
    partial: bool = False,
) -> Report:
    """Measure generated graphs or molecules: a result of `sample`, a file, a run folder, or a sequence of graphs,
    molecules or SMILES. Bare SMILES do not tell which were invalid before correction; give the result itself for that.

    `reference`: a name that comes with the package ("planar"), a file of graphs (`.jsonl`), of molecules (`.smi`,
    `.csv`, `.sdf`) or of `isostep reference build`, or graphs or SMILES in memory, all of them test graphs.
    `kernel` of the graph MMDs: the reference's customary one where None. `metrics`: keys; all that apply where None,
    and then, or if `partial`, one that cannot be computed is listed as undefined instead of raising. `rule`: what makes
    a graph valid ("planar", "sbm"), where the reference is not one that says it by its name.

    Example:
        >>> import networkx, isostep
        >>> report = isostep.evaluate([networkx.cycle_graph(8)] * 4, [networkx.cycle_graph(8)] * 4, metrics=["degree"])
        >>> float(report.values["degree"].value)
        0.0
    """
    if workers < 1 or resamples < 0 or seed < 0:
        raise InputError(f"need workers >= 1, resamples >= 0, seed >= 0, got {workers}, {resamples}, {seed}")
    entry, fitted, name = resolve_reference(reference)
    entry = entry if rule is None else entry._replace(valid=rule)
    items = gather(source, strict)
    suite, kind = suite_of(items.item.kind), items.item.kind
    if suite.against != fitted.kind:
        raise InputError(f"the generated set holds {kind}s, but the reference {name} holds {fitted.kind}s")
    customary = suite.kernel(entry)
    if kernel and not customary:
        raise InputError(f"kernel {kernel!r} is for graph MMDs; {name} holds {fitted.kind}s, leave it out")
    kernel = kernel or customary
    chosen = choose({metric.name: metric for metric in suite.metrics(items.corrected, kernel, entry)}, metrics)
    fitted = fitted.among(items.members)
    home = home_of(source) if isinstance(reference, str | Path) else None  # a study keeps its cells itself
    generated = suite.generated(items, workers, home)
    earlier = _kept(home, items, reference, kernel, entry.valid, resamples, seed)
    values, undefined = {}, {}
    with progress(f"measuring {len(items)} {kind}s", len(chosen), "metrics") as task:
        for key, metric in chosen.items():
            task(0, note=key)
            value = earlier.get(key) or _value_or_reason(metric, generated(key), fitted, resamples, seed)
            if isinstance(value, Value):
                values[key] = value
                earlier.put(key, value)
            elif metrics is None or partial:
                undefined[key] = str(value)
            else:
                raise value
            task()
    earlier.save()
    return Report(
        values,
        kind,
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
        {key: metric.title for key, metric in chosen.items() if hasattr(metric, "title")},  # type: ignore[attr-defined]
        {key: bounds_of(metric) for key, metric in chosen.items()},
    )


def _kept(home: Path | None, items: Items, reference: Any, *how: Any) -> Kept:
    """Earlier values of these items against this reference, by content and how they were measured."""
    if home is None:
        return Kept(None)
    content = digest([str(items.corrected), *(item.to_line(k) for k, item in enumerate(items.members))])
    return Kept.at(home, content, sha256(reference_file(reference)), *how)


def _value_or_reason(metric: Metric, *arguments: Any) -> Value | InputError:
    try:
        return evaluate_metric(metric, *arguments)
    except InputError as error:
        return error


def resolve_reference(reference: Any) -> tuple[Shipped, Reference, str]:
    """What is known about a reference, the reference, and its name."""
    if not isinstance(reference, str | Path):
        fitted = reference if isinstance(reference, Reference) else fit_reference(reference)
        return Shipped(fitted.kind), fitted, "given in memory"
    fitted = load_reference(reference)
    name = str(reference).lower().replace("_", "-")
    return shipped().get(name, Shipped(fitted.kind)), fitted, str(reference)


def metric_names(reference: Reference, rule: str | None = None) -> list[str]:
    """What `evaluate` can measure against a reference; `rule`: its rule of validity, for graphs."""
    suite, entry = suite_of(reference.kind), Shipped(reference.kind, valid=rule)
    return [metric.name for metric in suite.metrics(True, suite.kernel(entry), entry) if _has(reference, metric)]


def _has(reference: Reference, metric: Metric) -> bool:
    try:
        reference.check(metric)
    except InputError:
        return False
    return True


def choose(known: Mapping[str, Metric], wanted: Iterable[str] | None) -> dict[str, Metric]:
    """The metrics of these keys, or all."""
    if wanted is None:
        return dict(known)
    wanted = [key.strip().lower() for key in wanted]
    for key in wanted:
        if key not in known:
            raise InputError(f"unknown metric {key!r}; those for this kind are {', '.join(known)}")
    if not wanted:
        raise InputError("no metric was named; leave out --metrics for all")
    return {key: known[key] for key in wanted}
