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
from typing import IO, Any, cast

from isostep.base.errors import InputError, located
from isostep.base.files import bounded_lines, csv_fields
from isostep.base.limits import within
from isostep.item import Conformer, Graph, Molecule
from isostep.metric.molecules import canonical

RUN_FILES = tuple(name for kind in (Graph, Molecule, Conformer) for name in (kind.file, f"{kind.file}.gz"))
PICKLES = (".pkl", ".pickle", ".p", ".pt", ".pth", ".joblib", ".gpickle")


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
    """What was read: graphs, or canonical SMILES; `valid` has one flag per molecule, also for those that are not used.

    `conformers`: molecules with positions, as they were generated.
    `corrected`: the flags were set before correction; otherwise they say whether RDKit accepts the molecule.
    """

    kind: str
    graphs: list[Graph] = field(default_factory=list)
    smiles: list[str] = field(default_factory=list)
    valid: list[bool] = field(default_factory=list)
    corrected: bool = False
    conformers: list[Conformer] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.graphs) + len(self.valid)


class BadLine(Exception):
    """This line cannot be used, for the reason given."""


def gather(source: Any, strict: bool = False) -> Items:
    """From a path; or from memory: a result of `sample`, a run, or a sequence of items, networkx graphs or SMILES."""
    if not isinstance(source, str | Path) and hasattr(source, "items"):
        source = source.items if isinstance(source.items, list) else [item for _, item in source.items()]
    items = _from_path(Path(source), strict) if isinstance(source, str | Path) else _from_memory(source, strict)
    if not len(items):
        seen = f"; {len(items.skipped)} lines were skipped, the first: {items.skipped[0]}" if items.skipped else ""
        raise InputError(f"{_name(source)} holds no {items.kind}{seen}; give at least one")
    return items


def _name(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else "the generated set"


def _from_memory(source: Sequence[Any], strict: bool) -> Items:
    source = list(source)
    molecules = bool(source) and isinstance(source[0], str | Molecule)
    items = Items("molecule" if molecules else "graph", corrected=molecules and isinstance(source[0], Molecule))
    for item in source:
        if not (isinstance(item, type(source[0])) if molecules else hasattr(item, "edges")):
            raise InputError(
                f"expected graphs only, SMILES only or molecules only, got {type(item).__name__} among them"
            )

    def add(item: Any) -> None:
        if isinstance(item, Molecule):
            _add_molecule(items, item)
        elif molecules:
            _add_smiles(items, item)
        else:
            items.graphs.append(item if isinstance(item, Graph) else Graph.from_networkx(item))

    _each(enumerate(source, start=1), add, "the generated set", items, strict)
    return items


def _from_path(path: Path, strict: bool) -> Items:
    if path.is_dir():
        found = [path / name for name in RUN_FILES if (path / name).is_file()]
        if not found and any((path / name).is_file() for name in ("run.json", "plan.json")):
            return _from_shards(path, strict)
        if not found:
            raise InputError(f"{path} is a folder without {' or '.join(RUN_FILES[::2])}; name a run folder or a file")
        path = found[0]
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if any(suffix in PICKLES for suffix in suffixes[-2:]):
        raise InputError(f"{path} is a pickle, which can run code when it is opened; write .jsonl or .smi instead")
    kind = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else (suffixes or [""])[-1]
    if kind not in _READERS:
        raise InputError(f"cannot tell what {path} holds; expected {', '.join(_READERS)}, also with .gz, or a folder")
    if path.name.removesuffix(".gz") == Conformer.file:
        return _read_conformers([path], strict)
    items = Items("graph" if kind == ".jsonl" else "molecule")
    _READERS[kind](path, items, strict)
    return items


def is_item_file(path: Path) -> bool:
    """Whether its name says that it holds graphs or molecules."""
    return any(suffix.lower() in _READERS for suffix in path.suffixes[-2:])


def _from_shards(folder: Path, strict: bool) -> Items:
    """A large run, shard by shard."""
    from isostep.run.reading import read_run

    run = read_run(folder)
    if run.plan.item is Conformer:
        return _read_conformers(run.files(), strict)
    items = Items(run.plan.kind)
    for path in run.files():
        _READERS[Path(run.plan.item.file).suffix](path, items, strict)
    return items


def _read_jsonl(path: Path, items: Items, strict: bool) -> None:
    def add(line: bytes) -> None:
        graph = Graph.from_line(_text(line))
        graph.check_dense()  # metrics need the matrix
        items.graphs.append(graph)

    _each(_lines(path), add, str(path), items, strict)


def _read_conformers(paths: Iterable[Path], strict: bool) -> Items:
    items = Items("molecule", corrected=True)

    def add(line: bytes) -> None:
        _add_molecule(items, Conformer.from_line(_text(line)))

    for path in paths:
        _each(_lines(path), add, str(path), items, strict)
    return items


def _read_smi(path: Path, items: Items, strict: bool) -> None:
    lines = [(number, line) for number, line in _lines(path) if not line.startswith(b"#")]
    if lines and lines[0][1].split()[0].lower() == b"smiles":
        lines = lines[1:]
    items.corrected = path.name in RUN_FILES or (bool(lines) and _is_run_line(lines[0][1]))

    def add(line: bytes) -> None:
        text = _text(line)
        if not items.corrected:
            return _add_smiles(items, text.split()[0])
        _add_molecule(items, Molecule.from_line(text.rstrip("\r\n")))

    _each(lines, add, str(path), items, strict)


def _is_run_line(line: bytes) -> bool:
    fields = line.strip(b"\r\n").split(b"\t")
    return len(fields) == 3 and fields[1].isdigit() and fields[2] in (b"0", b"1")


def _read_csv(path: Path, items: Items, strict: bool) -> None:
    lines = list(_lines(path))
    with located(f"{path}, line 1"):
        header = csv_fields(_decoded(lines[0][1])) if lines else []
    names = [name.strip().lower() for name in header]
    if "smiles" not in names:
        raise InputError(f"{path}, line 1: expected a column `smiles`, got {','.join(header)[:60]!r}")
    column = names.index("smiles")

    def add(line: bytes) -> None:
        row = csv_fields(_text(line))
        if len(row) != len(header):
            raise BadLine(f"expected {len(header)} fields, got {len(row)}")
        _add_smiles(items, row[column].strip())

    _each(lines[1:], add, str(path), items, strict)


def _read_sdf(path: Path, items: Items, strict: bool) -> None:
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

    def add(record: bytes) -> None:
        from rdkit import Chem, rdBase

        with rdBase.BlockLogs():
            molecule = Chem.MolFromMolBlock(_text(record), sanitize=False)
            if molecule is None:
                raise BadLine("not an MDL record")
            whole = Chem.MolFromMolBlock(_text(record))
        _add_smiles(items, Chem.MolToSmiles(molecule if whole is None else whole))

    _each(records(), add, str(path), items, strict)


_READERS: dict[str, Callable[[Path, Items, bool], None]] = {
    ".jsonl": _read_jsonl,
    ".smi": _read_smi,
    ".csv": _read_csv,
    ".sdf": _read_sdf,
}


def _each(lines, add: Callable[[Any], None], name: str, items: Items, strict: bool) -> None:
    """Hand every line to `add`; what it refuses is noted, or fatal where `strict`."""
    for number, line in lines:
        if (reason := _refusal(add, line)) is None:
            continue
        items.skipped.append(Skipped(name, number, reason))
        within("skipped_lines", len(items.skipped), f"{name}: {len(items.skipped):,} lines cannot be used")
        if strict:
            raise InputError(f"{items.skipped[-1]}; mend the line or leave out --strict")


def _refusal(add: Callable[[Any], None], line: Any) -> str | None:
    try:
        add(line)
    except (BadLine, InputError) as error:
        return str(error)
    return None


def _add_smiles(items: Items, text: str) -> None:
    """A molecule that RDKit rejects is invalid: a result, and of no further use."""
    _check_length(text)
    smiles = canonical(text) if text else None
    items.valid.append(smiles is not None)
    if smiles is None:
        raise BadLine(f"RDKit rejects {text[:60]!r}: {_fault(text)}" if text else "no SMILES")
    items.smiles.append(smiles)


def _check_length(text: str) -> None:
    within("smiles_characters", len(text), f"a SMILES of {len(text):,} characters")


def _add_molecule(items: Items, molecule: Molecule) -> None:
    """Correction can leave nothing (an empty SMILES): invalid, and of no further use."""
    text = molecule.smiles
    _check_length(text)
    smiles = canonical(text) if text else None
    if text and smiles is None:
        raise BadLine(f"RDKit rejects the corrected molecule {text[:60]!r}: {_fault(text)}")
    items.valid.append(molecule.valid)
    if smiles is not None:
        items.smiles.append(smiles)
    if isinstance(molecule, Conformer):
        items.conformers.append(molecule)


def _fault(text: str) -> str:
    """What RDKit has against a SMILES."""
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(text, sanitize=False)
        try:
            problems = [] if molecule is None else Chem.DetectChemistryProblems(molecule)
        except RuntimeError:  # of some atoms it does not know the valence, and ends there
            return "of an impossible valence"
    if molecule is None:
        return "not SMILES"
    return problems[0].Message().strip() if problems else "no atom"


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
        raise BadLine(f"not UTF-8 text ({error.reason})") from error


def _decoded(line: bytes) -> str:
    return line.decode("utf-8-sig", errors="replace")
