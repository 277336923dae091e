"""Generated graphs or molecules from a file or a run folder; a line that cannot be used is named and counted.

`.jsonl` graphs, one `{"n": ..., "edges": [[i, j], ...]}` a line; `.smi`, `.csv` (column `smiles`), `.sdf` molecules;
each also with `.gz`. A run folder holds `graphs.jsonl` or `molecules.smi`, or shards of them. Lines of the latter are
`SMILES<TAB>index<TAB>valid`: the molecule after correction, and whether it was valid before (0 or 1).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from isostep.base.errors import InputError, located
from isostep.base.files import bounded_lines, csv_fields
from isostep.base.limits import within
from isostep.item import KINDS, Graph, Item, Molecule
from isostep.item.base import Rejected

PICKLES = (".pkl", ".pickle", ".p", ".pt", ".pth", ".joblib", ".gpickle")
Rows = Iterable[tuple[int, Any]]  # numbered from 1


@dataclass(frozen=True)
class Skipped:
    """A line that could not be used; `line` counts from 1, and is the first line of an SDF record."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}"


@dataclass
class Items:
    """What was read, all of one kind. `corrected`: items of ours, whose validity was judged before correction."""

    item: type[Item]
    corrected: bool
    members: list[Any] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.members)

    def read(self, rows: Rows, make: Callable[[Any], Any], name: str, strict: bool) -> Items:
        """Take what `make` makes of every row; what it refuses is noted, or fatal where `strict`."""
        for number, row in rows:
            try:
                self.members.append(make(row))
            except InputError as error:
                if isinstance(error, Rejected):
                    self.members.append(error.item)
                self.skipped.append(Skipped(name, number, str(error)))
                within("skipped_lines", len(self.skipped), f"{name}: {len(self.skipped):,} lines cannot be used")
                if strict:
                    raise InputError(f"{self.skipped[-1]}; mend the line or leave out --strict") from None
        return self


def gather(source: Any, strict: bool = False, name: str = "the generated set") -> Items:
    """From a path; or from memory, where errors call it `name`: a result of `sample`, a run, or a sequence of items,
    networkx graphs or SMILES."""
    if not isinstance(source, str | Path) and hasattr(source, "items"):
        source = source.items if isinstance(source.items, list) else [item for _, item in source.items()]
    if isinstance(source, str | Path):
        items, name = _from_path(Path(source), strict), str(source)
    else:
        items = _from_memory(source, strict, name)
    if not len(items):
        seen = f"; {len(items.skipped)} lines were skipped, the first: {items.skipped[0]}" if items.skipped else ""
        raise InputError(f"{name} holds no {items.item.kind}{seen}; give at least one")
    return items


def _from_memory(source: Sequence[Any], strict: bool, name: str) -> Items:
    source = list(source)
    first = source[0] if source else Graph.of(0, [])
    ours = isinstance(first, Item)
    kind = type(first) if ours else next((kind for kind in KINDS.values() if kind.accepts(first)), Graph)
    for item in source:
        if not (isinstance(item, kind) if ours else kind.accepts(item)):
            raise InputError(
                f"expected graphs only, SMILES only or molecules only, got {type(item).__name__} among them"
            )
    make = kind.usable if ours else kind.given
    return Items(kind, ours).read(enumerate(source, start=1), make, name, strict)


class Reading(NamedTuple):
    """A file of one kind: its numbered rows, and how a row becomes an item."""

    item: type[Item]
    corrected: bool
    rows: Rows
    make: Callable[[Any], Any]


def _from_path(path: Path, strict: bool) -> Items:
    if not path.exists():
        raise InputError(f"{path} does not exist; name a file of graphs or molecules, or a run folder")
    names = {name: kind for kind in KINDS.values() for name in (kind.file, f"{kind.file}.gz")}  # of a run folder
    if path.is_dir():
        found = next((path / name for name in names if (path / name).is_file()), None)
        if found is None and any((path / name).is_file() for name in ("run.json", "plan.json")):
            return _from_shards(path, strict)
        if found is None:
            raise InputError(f"{path} is a folder without {' or '.join([*names][::2])}; name a run folder or a file")
        path = found
        _check_sum(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if any(suffix in PICKLES for suffix in suffixes[-2:]):
        raise InputError(f"{path} is a pickle, which can run code when it is opened; write .jsonl or .smi instead")
    suffix = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else (suffixes or [""])[-1]
    if suffix not in _READERS:
        raise InputError(f"cannot tell what {path} holds; expected {', '.join(_READERS)}, also with .gz, or a folder")
    item, corrected, rows, make = _run_file(path, names[path.name]) if path.name in names else _READERS[suffix](path)
    return Items(item, corrected).read(rows, make, str(path), strict)


def _check_sum(path: Path) -> None:
    """The file of a finished run is the one that was written."""
    from isostep.run.reading import differs, read_run

    try:
        run = read_run(path.parent)
    except InputError:  # no record of a run, or one that cannot be read: a file like any other
        return
    if run.joined is not None and run.plain == path and (reason := differs(path, run.joined.sha256)) is not None:
        raise InputError(f"{reason}; name the file itself to measure it as it is")


def is_item_file(path: Path) -> bool:
    """Whether its name says that it holds graphs or molecules."""
    return any(suffix.lower() in _READERS for suffix in path.suffixes[-2:])


def _from_shards(folder: Path, strict: bool) -> Items:
    """A large run, shard by shard."""
    from isostep.run.reading import read_run

    run = read_run(folder)
    items = Items(run.plan.item, True)
    for path in run.files():
        items.read(_lines(path), _run_file(path, run.plan.item).make, str(path), strict)
    return items


def _run_file(path: Path, kind: type[Item]) -> Reading:
    """A line an item, as `to_line` writes it."""
    return Reading(kind, True, _lines(path), lambda line: kind.from_line(_text(line).rstrip("\r\n")).usable())


def _read_smi(path: Path) -> Reading:
    lines = [(number, line) for number, line in _lines(path) if not line.startswith(b"#")]
    if lines and lines[0][1].split()[0].lower() == b"smiles":
        lines = lines[1:]
    if lines and _is_run_line(lines[0][1]):
        return _run_file(path, Molecule)._replace(rows=lines)
    return Reading(Molecule, False, lines, lambda line: Molecule.given(_text(line).split()[0]))


def _is_run_line(line: bytes) -> bool:
    fields = line.strip(b"\r\n").split(b"\t")
    return len(fields) == 3 and fields[1].isdigit() and fields[2] in (b"0", b"1")


def _read_csv(path: Path) -> Reading:
    lines = list(_lines(path))
    with located(f"{path}, line 1"):
        header = csv_fields(lines[0][1].decode("utf-8-sig", errors="replace")) if lines else []
    names = [name.strip().lower() for name in header]
    if "smiles" not in names:
        raise InputError(f"{path}, line 1: expected a column `smiles`, got {','.join(header)[:60]!r}")
    column = names.index("smiles")

    def make(line: bytes) -> Any:
        row = csv_fields(_text(line))
        if len(row) != len(header):
            raise InputError(f"expected {len(header)} fields, got {len(row)}")
        return Molecule.given(row[column].strip())

    return Reading(Molecule, False, lines[1:], make)


def _read_sdf(path: Path) -> Reading:
    def records() -> Iterator[tuple[int, bytes]]:
        record, first = [], 1
        for number, line in _lines(path, blank=True):
            if line.strip() == b"$$$$":
                yield first, b"".join(record)
                record, first = [], number + 1
            else:
                record.append(line)
        if b"".join(record).strip():
            yield first, b"".join(record)

    def make(record: bytes) -> Any:
        from rdkit import Chem, rdBase

        with rdBase.BlockLogs():
            molecule = Chem.MolFromMolBlock(_text(record), sanitize=False)
            if molecule is None:
                raise InputError("not an MDL record")
            whole = Chem.MolFromMolBlock(_text(record))
        return Molecule.given(Chem.MolToSmiles(molecule if whole is None else whole))

    return Reading(Molecule, False, records(), make)


_READERS: dict[str, Callable[[Path], Reading]] = {
    ".jsonl": lambda path: _run_file(path, Graph),
    ".smi": _read_smi,
    ".csv": _read_csv,
    ".sdf": _read_sdf,
}


def _lines(path: Path, blank: bool = False) -> Iterator[tuple[int, bytes]]:
    try:
        opener = gzip.open if path.suffix.lower() == ".gz" else open
        with cast("IO[bytes]", opener(path, "rb")) as file:
            for number, line in enumerate(bounded_lines(file, path), start=1):
                if number == 1 and line.startswith(b"\x80"):
                    raise InputError(f"{path} is a pickle, which can run code when it is opened; write text instead")
                if blank or line.strip():
                    yield number, line
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; check the file") from error
    except (EOFError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}; the file is cut short or damaged") from error


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text ({error.reason})") from error
