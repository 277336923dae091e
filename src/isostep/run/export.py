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
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isostep.base.errors import InputError, require
from isostep.base.files import replacing
from isostep.item import KINDS
from isostep.run.format import own_files
from isostep.run.lock import LOCK
from isostep.run.reading import RunFolder, read_run

ROWS = 16_384  # of a Parquet row group


def export_items(folder: str | Path, out: str | Path, format: str, partial: bool = False) -> int:
    """Write the items of a run folder to the file `out`; returns how many. `partial` takes an unfinished run, too."""
    out, run = Path(out), read_run(folder)
    known = ["jsonl", *{name: None for kind in KINDS.values() for name in kind.texts}, "parquet"]
    if format not in known:
        raise InputError(f"unknown format {format!r}; choose {', '.join(known)}")
    if format not in ("jsonl", "parquet", *run.plan.item.texts):
        raise InputError(f"{folder} holds {run.plan.kind}s, which cannot be written as {format}")
    _refuse_own(out, run.folder)
    with replacing(out) as temporary:
        if format == "parquet":
            return _write_parquet(temporary, run, partial)
        return _write_text(temporary, out.suffix, run, format, partial)


def _refuse_own(out: Path, folder: Path) -> None:
    """An export must not take the place of what the run itself wrote, by whatever path it gets there."""
    asked = Path(os.path.realpath(out))
    for name in (*own_files(), LOCK):
        if Path(os.path.realpath(folder / name)) in (asked, *asked.parents):
            raise InputError(f"cannot write {out}: {name} in {folder} is the run's own; choose another file")


def _write_text(path: Path, suffix: str, run: RunFolder, format: str, partial: bool) -> int:
    write, unfinished, written = run.plan.item.texts.get(format), run.unfinished(), 0
    with _text(path, suffix) as file:
        for index, item in run.items(partial):
            row = {"index": index, "finished": index not in unfinished}
            text = write(item, index) if write else json.dumps(row | item.fields(), separators=(",", ":")) + "\n"
            file.write(text.encode())
            written += 1
    return written


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


def _write_parquet(path: Path, run: RunFolder, partial: bool) -> int:
    arrow = require("pyarrow", "parquet", "a Parquet file")
    parquet = require("pyarrow.parquet", "parquet", "a Parquet file")
    schema = arrow.schema([("index", arrow.int64()), ("finished", arrow.bool_()), *run.plan.item.columns(arrow)])
    unfinished, written = run.unfinished(), 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        items = run.items(partial)
        while group := list(itertools.islice(items, ROWS)):
            rows = [{"index": index, "finished": index not in unfinished, **item.fields()} for index, item in group]
            writer.write_table(arrow.Table.from_pylist(rows, schema))
            written += len(rows)
    return written
