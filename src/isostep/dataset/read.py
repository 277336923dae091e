"""Benchmark files to arrays: `.jsonl` graphs, and `.csv` or `.csv.gz` molecules with columns `smiles,test`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from isostep.base.errors import InputError, located
from isostep.base.files import csv_fields, numbered_lines
from isostep.base.progress import progress
from isostep.dataset.data import SPLITS, graph_arrays, molecule_arrays
from isostep.item.encoding import Molecules, MoleculeSpec, encoder
from isostep.item.graph import Graph

SplitRule = Callable[[int], np.ndarray]


def first_fifth_is_test(count: int) -> np.ndarray:
    """Test = first 20 % (rounded down), train = the rest."""
    return np.where(np.arange(count) < count // 5, SPLITS.index("test"), SPLITS.index("train"))


def all_test(count: int) -> np.ndarray:
    return np.full(count, SPLITS.index("test"))


def in_order(train: int, val: int, test: int) -> SplitRule:
    """First `train` rows, then `val`, then `test`."""
    return lambda count: np.repeat(np.arange(3), [train, val, test])[:count]


def read_graph_file(path: Path, rule: SplitRule) -> dict[str, np.ndarray]:
    """Graphs of a `.jsonl` file; a `split` key in every line goes before the rule."""
    graphs, named = [], []
    for number, line in numbered_lines(path):
        with located(f"{path}, line {number}"):
            graphs.append(Graph.from_line(line))
            named.append(json.loads(line).get("split"))
            if named[-1] is not None and named[-1] not in SPLITS:
                raise InputError(f"split must be one of {', '.join(SPLITS)}, got {named[-1]!r}")
            if (named[-1] is None) != (named[0] is None):
                raise InputError("some lines name a split and some do not; name it in all lines or in none")
    if not graphs:
        raise InputError(f"{path} holds no graph; expected one JSON object a line")
    split = rule(len(graphs)) if named[0] is None else np.array([SPLITS.index(name) for name in named])
    return graph_arrays(graphs, split)


def read_molecule_file(path: Path, spec: MoleculeSpec) -> dict[str, np.ndarray]:
    """Molecules of a `smiles,test` file."""
    return encode_rows(str(path), csv_rows(path), spec)


def encode_rows(origin: str, rows: Iterable[tuple[int, str, bool]], spec: MoleculeSpec) -> dict[str, np.ndarray]:
    """Arrays of (line number, SMILES, is it a test row); errors name `origin` and the line."""
    encode, smiles, graphs, test = encoder(spec), [], [], []
    with progress(f"encoding molecules of {origin}", unit="molecules") as advance:
        for number, text, is_test in rows:
            with located(f"{origin}, line {number}"):
                graphs.append(encode(text))
            smiles.append(text)
            test.append(is_test)
            advance()
    if not graphs:
        raise InputError(f"{origin} holds no molecule; expected lines `smiles,test`")
    split = np.where(test, SPLITS.index("test"), SPLITS.index("train"))
    return molecule_arrays(smiles, Molecules.of(graphs), split)


def _fields(path: Path, number: int, line: str) -> list[str]:
    with located(f"{path}, line {number}"):
        return csv_fields(line)


def csv_rows(path: Path) -> Iterator[tuple[int, str, bool]]:
    """(line number, SMILES, is it a test row) of a `smiles,test` file."""
    rows = ((number, _fields(path, number, line)) for number, line in numbered_lines(path))
    _, header = next(rows, (1, []))
    if not {"smiles", "test"} <= set(header):
        raise InputError(f"{path}, line 1: expected columns smiles and test, got {','.join(header)[:60]!r}")
    smiles, test = header.index("smiles"), header.index("test")
    for number, row in rows:
        if len(row) != len(header) or row[test] not in ("0", "1"):
            raise InputError(
                f"{path}, line {number}: expected {','.join(header)} with test 0 or 1, got {','.join(row)[:60]!r}"
            )
        yield number, row[smiles], row[test] == "1"
