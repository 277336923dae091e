"""A run folder in formats that other tools read, a shard in memory at a time.

    jsonl     one graph a line, with its index and whether its integration reached the end
    smi       SMILES<TAB>index<TAB>valid
    sdf       molecules that are left after correction
    parquet   index, finished, and n and edges or smiles and valid; needs isostep[parquet]

A file name that ends in .gz or .zst is compressed.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from isostep.base.errors import InputError, require
from isostep.base.files import replacing
from isostep.item.graph import Graph
from isostep.run.format import State, read_state

ROWS = 16_384  # of a Parquet row group
Record = dict[str, Any]


def export_run(folder: str | Path, out: str | Path, format: str, partial: bool = False) -> int:
    """Write the graphs of a run folder to the file `out`; returns how many. `partial` takes an unfinished run, too."""
    out, state = Path(out), read_state(folder)
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}; choose {', '.join(FORMATS)}")
    kind, write = FORMATS[format]
    if kind is not None and kind != state.plan.kind:
        raise InputError(f"{folder} holds {state.plan.kind}s, which cannot be written as {format}")
    written = 0

    def counted() -> Iterator[Record]:
        nonlocal written
        for record in records(state, partial):
            written += 1
            yield record

    with replacing(out) as temporary:
        write(temporary, counted(), out.suffix, state.plan.kind)
    return written


def records(state: State, partial: bool = False) -> Iterator[Record]:
    """Graphs of a run in index order, as plain data."""
    unfinished = state.unfinished()
    for index, line in state.lines(partial):
        yield {"index": index, "finished": index not in unfinished, **_parsed(line, state.plan.kind, index)}


def _parsed(line: str, kind: str, index: int) -> Record:
    if kind == "graph":
        graph = Graph.from_json(line)
        return {"n": graph.n, "edges": graph.edges.tolist()}
    fields = line.split("\t")
    if len(fields) != 3 or fields[1] != str(index) or fields[2] not in ("0", "1"):
        raise InputError(f"graph {index}: expected SMILES<TAB>{index}<TAB>valid, got {line[:60]!r}; verify the run")
    return {"smiles": fields[0], "valid": fields[2] == "1"}


@contextlib.contextmanager
def _text(path: Path, suffix: str) -> Iterator[Any]:
    """A text file under a temporary name, compressed as its final name says."""
    if suffix == ".gz":
        with open(path, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
            yield file
    elif suffix == ".zst":
        with require("zstandard", "zstd", "a .zst file").open(path, "wb") as file:
            yield file
    else:
        with open(path, "wb") as file:
            yield file


def _write_jsonl(path: Path, rows: Iterable[Record], suffix: str, kind: str) -> None:
    with _text(path, suffix) as file:
        for row in rows:
            file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")


def _write_smi(path: Path, rows: Iterable[Record], suffix: str, kind: str) -> None:
    with _text(path, suffix) as file:
        for row in rows:
            file.write(f"{row['smiles']}\t{row['index']}\t{int(row['valid'])}\n".encode())


def _write_sdf(path: Path, rows: Iterable[Record], suffix: str, kind: str) -> None:
    from rdkit import Chem

    with _text(path, suffix) as file:
        for row in rows:
            molecule = Chem.MolFromSmiles(row["smiles"]) if row["smiles"] else None
            if molecule is not None:
                molecule.SetProp("_Name", str(row["index"]))
                file.write((Chem.MolToMolBlock(molecule) + "$$$$\n").encode())


def _write_parquet(path: Path, rows: Iterable[Record], suffix: str, kind: str) -> None:
    arrow = require("pyarrow", "parquet", "a Parquet file")
    parquet = require("pyarrow.parquet", "parquet", "a Parquet file")
    if kind == "graph":
        fields = [("n", arrow.int32()), ("edges", arrow.list_(arrow.list_(arrow.int32(), 2)))]
    else:
        fields = [("smiles", arrow.string()), ("valid", arrow.bool_())]
    schema = arrow.schema([("index", arrow.int64()), ("finished", arrow.bool_()), *fields])
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        rows = iter(rows)
        while group := list(itertools.islice(rows, ROWS)):
            writer.write_table(arrow.Table.from_pylist(group, schema))


FORMATS: dict[str, tuple[str | None, Callable[[Path, Iterable[Record], str, str], None]]] = {
    "jsonl": (None, _write_jsonl),
    "smi": ("molecule", _write_smi),
    "sdf": ("molecule", _write_sdf),
    "parquet": (None, _write_parquet),
}
