"""Thousands of mutated files for every reader: read or refused in one line, within 5 CPU seconds and 1 GB, and nothing
is written outside the target.

The slow set takes ISOSTEP_MUTATIONS (10,000) for each reader in this process, and every hundredth once more by the
whole command, in a process of its own (exit 0 or 2); the default set takes 30, and 2. Always the same ones. Half of
those of a container change what is inside (zip, gzip, safetensors) and close it again,
with sums and lengths that are right.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import resource
import shutil
import sys
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pytest

from isostep.base.errors import InputError, IsostepError
from isostep.cli import main
from isostep.cli.sample import parse_options
from isostep.dataset.read import all_test, read_graph_file, read_molecule_file
from isostep.item.encoding import MoleculeSpec
from isostep.metric.items import gather
from isostep.metric.reference import FOLDER, MoleculeReference
from isostep.metric.suite import load_reference
from isostep.model.analytic import analytic_model
from isostep.model.folder import load_folder
from isostep.model.presets import read_preset
from isostep.model.released.convert import import_released
from isostep.model.released.pickle import read_released
from isostep.run import writer
from isostep.run.engine import sample_run
from isostep.run.inspect import status
from isostep.run.reading import read_run
from isostep.settings.resolve import resolve
from isostep.settings.schedules import SCHEDULES
from isostep.study.record import load_study
from isostep.training.config import load_config
from tests.conftest import FIXTURES
from tests.reliability.test_fuzz import JSONL, PRESETS, SDF

MANY = int(os.environ.get("ISOSTEP_MUTATIONS", "10000"))
FEW = 30
MOLECULES = FIXTURES / "grum" / "mol.pth"
SHORT = ["-n", "1", "--steps", "2"]
SECONDS, MEMORY = 5.0, 2**20  # CPU; kB
SPEC = MoleculeSpec(("C", "N", "O", "F"), max_nodes=9)
TOKENS = [
    b"\n", b"[" * 3000, b"{", b"}", b'"', b"\x00", b"\xff", b"1e999", b"9" * 5000, b"-1", b"null", b"NaN", b"../../x",
    b"=cmd", b"\x1b[31m", b"[/b]", b"$\\frac{$", b"\\", b"1" * 20, b"0", b"true", b"\xf0\x9f\x92\xa9", b"e" * 300,
]  # fmt: skip


class Reader(NamedTuple):
    files: list[Path]  # of which one is changed at a time
    read: Callable[[], object]
    command: Callable[[], list[str]] | None = None  # that reads them, too


def mutated(good: bytes, chooser: random.Random) -> bytes:
    data = bytearray(good)
    for _ in range(chooser.randint(1, 5)):
        place = chooser.randrange(len(data) + 1)
        match chooser.randrange(7):
            case 0:
                del data[place:]
            case 1:
                data[place : place + chooser.randrange(9)] = chooser.randbytes(chooser.randrange(9))
            case 2:
                data[place:place] = chooser.choice(TOKENS)
            case 3 if data:
                data[place % len(data)] ^= 1 << chooser.randrange(8)
            case 4:
                end = min(len(data), place + chooser.randrange(200))
                data[place:place] = data[place:end] * chooser.randrange(1, 50)
            case 5:
                data[place : place + chooser.randrange(1, 40)] = b""
            case 6:
                digits = [k for k, byte in enumerate(data) if 48 <= byte <= 57]
                if digits:
                    at = chooser.choice(digits)
                    data[at : at + 1] = chooser.choice(TOKENS)
    return bytes(data)


def mutation(path: Path, good: dict[Path, bytes], chooser: random.Random) -> dict[Path, bytes]:
    """New contents of files."""
    data = good[path]
    if chooser.random() < 0.5 or path.suffix not in (".pth", ".npz", ".gz", ".safetensors"):
        return {path: mutated(data, chooser)}
    if path.suffix == ".safetensors":
        length = int.from_bytes(data[:8], "little")
        header = mutated(data[8 : 8 + length], chooser)
        return {path: len(header).to_bytes(8, "little") + header + data[8 + length :]}
    if path.suffix == ".gz":
        new = gzip.compress(mutated(gzip.decompress(data), chooser), 6, mtime=0)
        out = {path: new}
        for other in good:
            if other.name == "shards.jsonl":
                old = good[other].replace(sha256(data).hexdigest().encode(), sha256(new).hexdigest().encode())
                out[other] = old.replace(b'"bytes":%d' % len(data), b'"bytes":%d' % len(new))
        return out
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file := io.BytesIO(), "w") as new:
        names = old.namelist()
        pickles = [name for name in names if name.endswith("data.pkl")]
        chosen = chooser.choice(pickles if pickles and chooser.random() < 0.8 else names)
        for info in old.infolist():
            content = old.read(info)
            new.writestr(
                info.filename, mutated(content, chooser) if info.filename == chosen else content, info.compress_type
            )
    return {path: file.getvalue()}


def read_run_folder(folder: Path) -> None:
    status(folder)
    run = read_run(folder)
    list(run.damaged())
    list(run.items())


def read_study_folder(folder: Path) -> None:
    from isostep.study.comparison import compare_arms

    study = load_study(folder)
    compare_arms(study)
    for arm in range(len(study.cells)):
        study.recorded(arm)
        study.generated(arm, 3)


def options(path: Path) -> None:
    words = path.read_bytes().decode("utf-8", "replace").split(" ")
    preset = analytic_model().info.sampler
    for name in SCHEDULES:
        try:
            resolve(preset, schedule=name, schedule_options=parse_options(words))
        except IsostepError:
            continue


def _text(
    name: str, good: bytes, read: Callable[[Path], object], command: Callable[[str], list[str]] | None = None
) -> Callable[[Path], Reader]:
    def make(place: Path) -> Reader:
        path = place / name
        path.write_bytes(good)
        return Reader([path], lambda: read(path), command and (lambda: command(str(path))))

    return make


def _evaluate(reference: str, metric: str) -> Callable[[str], list[str]]:
    return lambda path: ["evaluate", path, "--reference", reference, "--metrics", metric, "--resamples", "0"]


def _run(place: Path) -> Reader:
    before, writer.JOINED = writer.JOINED, 0
    sample_run(analytic_model(), 6, place / "run", schedule="dvs", steps=3, batch_size=2, shard_size=2)
    writer.JOINED = before
    folder = place / "run"
    files = [folder / "run.json", folder / "shards.jsonl", *sorted(folder.glob("shards/*"))]
    return Reader(files, lambda: read_run_folder(folder), lambda: ["runs", "status", str(folder)])


def _stopped(place: Path) -> Reader:
    reader = _run(place)
    folder = place / "run"
    run = read_run(folder)
    (folder / "plan.json").write_text(json.dumps(run.plan.model_dump(mode="json")))
    (folder / "run.json").unlink()
    export = ["export", str(folder), "--format", "jsonl", "--partial", "--out", str(place / "out.jsonl")]
    return Reader([folder / "plan.json", *reader.files[1:]], lambda: read_run_folder(folder), lambda: export)


def _model(place: Path) -> Reader:
    import_released(MOLECULES, place / "model", "raw")
    files = [place / "model" / "model.json", place / "model" / "model.safetensors"]
    return Reader(files, lambda: load_folder(place / "model"), lambda: ["sample", str(place / "model"), *SHORT])


def _study(place: Path) -> Reader:
    from isostep.study.compute import run_study
    from isostep.study.plan import Arm, StudyPlan

    arms = tuple(Arm(name=name, chosen={"schedule": name, "steps": 3}) for name in ("uniform", "cosine"))
    plan = StudyPlan(
        title="small", model="rings-and-stars", arms=arms, seeds=(0, 1), n=6, metrics=("degree",),
        reference="community-small",
    )  # fmt: skip
    run_study(plan, place / "study")
    files = [path for path in (place / "study").rglob("*") if path.is_file() and path.suffix in (".json", ".jsonl")]
    report = ["report", str(place / "study"), "--out", str(place / "out.html")]
    return Reader(sorted(files), lambda: read_study_folder(place / "study"), lambda: report)


READERS: dict[str, Callable[[Path], Reader]] = {
    "jsonl": _text("a.jsonl", JSONL, gather, _evaluate("ego-small", "degree")),
    "smi": _text("a.smi", b"CCO\nC1CC1 name\n# note\n[NH4+]\nc1ccccc1O\n", gather, _evaluate("qm9", "valid")),
    "run smi": _text("molecules.smi", b"CCO\t0\t1\n\t1\t0\nC=O\t2\t1\n", gather, _evaluate("qm9", "valid")),
    "csv": _text("a.csv", b'id,smiles\n1,CCO\n2,"C1CC1"\n', gather, _evaluate("qm9", "valid")),
    "sdf": _text("a.sdf", SDF, gather, _evaluate("qm9", "valid")),
    "graph data": _text("a.jsonl", JSONL, lambda path: read_graph_file(path, all_test)),
    "molecule data": _text("b.csv", b"smiles,test\nCCO,0\nC=O,1\nC#N,0\n", lambda path: read_molecule_file(path, SPEC)),
    "preset": _text(
        "a.toml", (PRESETS / "sampling" / "grum-qm9.toml").read_bytes(), read_preset,
        lambda path: ["sample", str(MOLECULES), "--preset", path, *SHORT],
    ),
    "configuration": _text("b.toml", (PRESETS / "train" / "grum-qm9.toml").read_bytes(), load_config),
    "options": _text(
        "set.txt", b'kappa=1.5 gamma=.2 active=[[0,1]] rho=2 ema_start="zero" file=x.txt', options,
        lambda path: ["sample", "rings-and-stars", "--schedule", "dvs", *SHORT, *_set(path)],
    ),
    "reference": _text(
        "a.npz", (FOLDER / "ego-small.npz").read_bytes(), load_reference,
        lambda path: _evaluate(path, "degree")(str(FIXTURES / "metrics" / "graphs_a.jsonl")),
    ),
    "molecule reference": _text("b.npz", (FOLDER / "qm9-3d.npz").read_bytes(), MoleculeReference.load),
    "released": _text(
        "a.pth", MOLECULES.read_bytes(), read_released,
        lambda path: ["import", path, "--out", str(Path(path).parent / "out")],
    ),
    "run": _run,
    "stopped run": _stopped,
    "model": _model,
    "study": _study,
}  # fmt: skip


def _set(path: str) -> list[str]:
    words = Path(path).read_bytes().decode("utf-8", "replace").replace("\0", "").split(" ")
    return [part for word in words for part in ("--set", word)]


def fuzz(place: Path, name: str, count: int, every: int) -> int:
    """Mutate and read; returns how many were refused."""
    chooser, reader = random.Random(name), READERS[name](place)
    good = {path: path.read_bytes() for path in reader.files}
    reader.read()
    if reader.command:
        list(in_a_process(reader.command(), place))  # the first one may compile
    before = tree(place)
    refused, wrong = 0, []
    for k in range(count):
        path = chooser.choice(reader.files)
        changed = mutation(path, good, chooser)
        for file, data in changed.items():
            file.write_bytes(data)
        what = f"mutation {k} of {path.name}"
        began, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            reader.read()
        except IsostepError as error:
            refused += 1
            if "\n" in str(error):
                wrong.append(f"{what}: {error}")
        except Exception as error:
            wrong.append(f"{what}: {type(error).__name__}: {error}")
        if (used := time.process_time() - began) > SECONDS:
            wrong.append(f"{what}: {used:.1f} CPU s")
        if (more := resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) > MEMORY:
            wrong.append(f"{what}: {more} kB")
        if reader.command and k % every == 0:
            wrong += [f"{what}: {why}" for why in in_a_process(reader.command(), place)]
        for file in changed:
            file.write_bytes(good[file])
        if len(wrong) > 20:
            break
    assert not wrong, "\n".join(wrong)
    assert tree(place) == before
    return refused


def in_a_process(command: list[str], place: Path) -> Iterator[str]:
    """What is wrong with the whole command, in a fork of this process, which has everything imported already."""
    said = place / "said.txt"
    child = os.fork()
    if child == 0:
        code = 70
        try:
            sys.stdout = sys.stderr = said.open("w", errors="replace")
            sys.argv = ["isostep", *command]
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 70
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    here = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, status, used = os.wait4(child, 0)
    code, text = os.waitstatus_to_exitcode(status), said.read_text(errors="replace")
    said.unlink()
    for made in place.glob("out*"):
        shutil.rmtree(made) if made.is_dir() else made.unlink()
    if code not in (0, 2) or (code == 2) != (sum(line.startswith("error: ") for line in text.splitlines()) == 1):
        yield f"{command} exit {code}\n{text[-3000:]}"
    if (seconds := used.ru_utime + used.ru_stime) > SECONDS:
        yield f"{command} {seconds:.1f} CPU s"
    if used.ru_maxrss - here > MEMORY:
        yield f"{command} {used.ru_maxrss - here} kB"


def tree(place: Path) -> set[Path]:
    """All files around the target."""
    return {path for path in place.parent.rglob("*") if not path.is_relative_to(place)}


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


@pytest.mark.parametrize("name", [name for name in READERS if name != "study"])
def test_a_few_mutations(place, name):
    fuzz(place, name, FEW, every=FEW // 2)


def test_what_mutations_found(tmp_path):
    """A valence that RDKit trips over; a header of an array that is no Python."""
    text = SDF.decode().replace("C   0", "C   " + "9" * 5000, 1)
    assert text != SDF.decode()
    (tmp_path / "a.sdf").write_text(text)
    with pytest.raises(InputError, match="impossible valence"):
        gather(tmp_path / "a.sdf", strict=True)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("version.npy", b"\x93NUMPY\x01\x00\x05\x00{'a'(")
    with pytest.raises(InputError, match="not a reference file"):
        load_reference(tmp_path / "a.npz")


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_mutations(place, name):
    assert fuzz(place, name, MANY, every=100) > 0 or name == "options"
