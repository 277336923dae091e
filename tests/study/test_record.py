"""A study folder from elsewhere: what is damaged or hostile is told in one line, before anything is written."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isostep.cli import main


def _edit(path: Path, change: Callable[[Any], Any]) -> None:
    record = json.loads(path.read_text())
    changed = change(record)
    path.write_text(json.dumps(record if changed is None else changed))


def _put(*place: Any, value: Any) -> Callable[[Any], None]:
    def change(record: Any) -> None:
        for key in place[:-1]:
            record = record[key]
        record[place[-1]] = value

    return change


def _drop(*place: Any) -> Callable[[Any], None]:
    def change(record: Any) -> None:
        for key in place[:-1]:
            record = record[key]
        del record[place[-1]]

    return change


def _cut(frames: list[str]) -> None:
    frames[0] = frames[0][:-1]


STUDY = {
    "a list": lambda _: [],
    "no plan": _drop("plan"),
    "another format": _put("format", value=99),
    "seeds of text": _put("plan", "seeds", value=["x"]),
    "no arms": _put("plan", "arms", value=[]),
    "arms cut": lambda r: r["arms"].pop(),
    "arm renamed": _put("arms", 0, "name", value="other"),
    "no model": _put("model", value=None),
    "metrics of numbers": _put("metrics", value=[1]),
    "cells a list": _put("arms", 0, "cells", value=[]),
    "a key that climbs": _put("arms", 0, "cells", "0", value="../../../secret"),
    "a key with a folder": _put("arms", 0, "cells", "0", value="0123456789/123456789"),
    "versions of numbers": _put("versions", value=3),
    "notes of numbers": _put("plan", "notes", value=[1, 2]),
}
CELL = {
    "a number": lambda _: 3,
    "no metrics": _drop("metrics"),
    "a metric of text": lambda r: r["metrics"].update(degree="low"),
    "an infinite metric": lambda r: r["metrics"].update(degree=1e999),
    "no direction": lambda r: r["better"].update(degree="sideways"),
    "a run that climbs": _put("run", value="../../0123456789abcd"),
    "calls below zero": _put("calls", value=-1),
    "times of text": _put("path_metrics", value={"soon": {}}),
    "unknown names": _put("extra", value=1),
}
TRACK = {
    "no trace": _drop("trace"),
    "no steps": lambda r: r["trace"].update({name: [] for name in r["trace"]}),
    "unequal columns": lambda r: r["trace"]["dt"].pop(),
    "no time": lambda r: r["trace"].pop("t"),
    "a step without time": _put("trace", "t", 0, value=None),
    "a frame cut": lambda r: _cut(r["films"][0]["edges"]),
    "a level that is none": _put("films", 0, "edges", 0, value="<script>"),
    "an edge to nowhere": _put("films", 0, "pairs", 0, value=[0, 999]),
    "elements without nodes": _put("films", 0, "elements", value=["C"]),
    "millions of nodes": _put("films", 0, "n", value=10**9),
}
BYTES = {
    "cut": b'{"format": 1, "plan"',
    "empty": b"",
    "not UTF-8": b'{"format": "\xff"}',
    "deep": b"[" * 100_000,
    "a long integer": b'{"format": ' + b"9" * 5000 + b"}",
    "not a number": b'{"format": NaN}',
}


@pytest.fixture
def folder(toy_study, tmp_path) -> Path:
    shutil.copytree(toy_study.store.folder, tmp_path / "study", ignore=shutil.ignore_patterns("plots", "*.html"))
    return tmp_path / "study"


@pytest.fixture
def files(toy_study, folder) -> dict[str, Path]:
    run = folder / "runs" / toy_study.cells[0][0].run
    return {
        "study": folder / "study.json",
        "cell": folder / "cells" / f"{toy_study.record.arms[0].cells[0]}.json",
        "path": run / "path.json",
        "graphs": run / "graphs.jsonl",
    }


def _refused(folder: Path, monkeypatch, capsys) -> str:
    monkeypatch.setattr(sys, "argv", ["isostep", "report", str(folder)])
    with pytest.raises(SystemExit) as stop:
        main()
    seen = capsys.readouterr()
    assert stop.value.code == 2
    assert seen.out == ""
    assert seen.err.startswith("error: ")
    assert seen.err.count("\n") == 1
    assert not (folder / "report.html").exists()
    return seen.err


CASES = [
    *(("study", name, change) for name, change in STUDY.items()),
    *(("cell", name, change) for name, change in CELL.items()),
    *(("path", name, change) for name, change in TRACK.items()),
]


@pytest.mark.parametrize(("file", "change"), [c[::2] for c in CASES], ids=[f"{c[0]}, {c[1]}" for c in CASES])
def test_a_damaged_record_is_one_line(folder, files, file, change, monkeypatch, capsys):
    _edit(files[file], change)
    assert files[file].name in _refused(folder, monkeypatch, capsys)


@pytest.mark.parametrize("content", BYTES.values(), ids=list(BYTES))
@pytest.mark.parametrize("file", ["study", "cell", "path", "graphs"])
def test_a_damaged_file_is_one_line(folder, files, file, content, monkeypatch, capsys):
    if (file, content) == ("graphs", b""):
        pytest.skip("a run without graphs has nothing to show, which is no damage of the record")
    files[file].write_bytes(content)
    assert files[file].name in _refused(folder, monkeypatch, capsys)


def test_a_lost_run_file_and_a_folder_in_place_of_a_record_are_told(folder, files, monkeypatch, capsys):
    files["graphs"].unlink()
    assert "graphs.jsonl" in _refused(folder, monkeypatch, capsys)
    files["study"].unlink()
    files["study"].mkdir()
    assert "no study.json" in _refused(folder, monkeypatch, capsys)


def test_terminal_escapes_in_a_record_are_not_printed(folder, files, monkeypatch, capsys):
    _edit(files["study"], _put("plan", "noise", value="\x1b[31mred\x07"))
    told = _refused(folder, monkeypatch, capsys)
    assert "\x1b" not in told
    assert "\x07" not in told
    assert r"\x1b[31mred" in told
