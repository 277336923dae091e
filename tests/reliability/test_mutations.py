"""Thousands of mutated files for every reader: read or refused in one line, within 5 CPU seconds and 1 GB, and nothing
is written outside the target.

The slow set takes ISOSTEP_MUTATIONS (10,000) for each reader, the default set 30; always the same ones.
"""

from __future__ import annotations

import json
import os
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from isostep.base.errors import IsostepError
from isostep.cli.sample import parse_options
from isostep.dataset.read import read_graph_file, read_molecule_file
from isostep.item.encoding import MoleculeSpec
from isostep.metric.items import gather
from isostep.metric.reference import FOLDER, load_reference
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
SECONDS, MEMORY = 5.0, 2**20  # CPU; kB
SPEC = MoleculeSpec(("C", "N", "O", "F"), max_nodes=9)
TOKENS = [
    b"\n", b"[" * 3000, b"{", b"}", b'"', b"\x00", b"\xff", b"1e999", b"9" * 5000, b"-1", b"null", b"NaN", b"../../x",
    b"=cmd", b"\x1b[31m", b"[/b]", b"$\\frac{$", b"\\", b"1" * 20, b"0", b"true", b"\xf0\x9f\x92\xa9", b"e" * 300,
]  # fmt: skip


class Reader(NamedTuple):
    files: list[Path]  # of which one is changed at a time
    read: Callable[[], object]


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


def _text(name: str, good: bytes, read: Callable[[Path], object]) -> Callable[[Path], Reader]:
    def make(place: Path) -> Reader:
        path = place / name
        path.write_bytes(good)
        return Reader([path], lambda: read(path))

    return make


def _run(place: Path) -> Reader:
    before, writer.JOINED = writer.JOINED, 0
    sample_run(analytic_model(), 6, place / "run", schedule="dvs", steps=3, batch_size=2, shard_size=2)
    writer.JOINED = before
    folder = place / "run"
    files = [folder / "run.json", folder / "shards.jsonl", *sorted(folder.glob("shards/*"))]
    return Reader(files, lambda: read_run_folder(folder))


def _stopped(place: Path) -> Reader:
    reader = _run(place)
    folder = place / "run"
    run = read_run(folder)
    (folder / "plan.json").write_text(json.dumps(run.plan.model_dump(mode="json")))
    (folder / "run.json").unlink()
    return Reader([folder / "plan.json", *reader.files[1:]], lambda: read_run_folder(folder))


def _model(place: Path) -> Reader:
    import_released(FIXTURES / "grum" / "mol.pth", place / "model", "raw")
    files = [place / "model" / "model.json", place / "model" / "model.safetensors"]
    return Reader(files, lambda: load_folder(place / "model"))


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
    return Reader(sorted(files), lambda: read_study_folder(place / "study"))


READERS: dict[str, Callable[[Path], Reader]] = {
    "jsonl": _text("a.jsonl", JSONL, gather),
    "smi": _text("a.smi", b"CCO\nC1CC1 name\n# note\n[NH4+]\nc1ccccc1O\n", gather),
    "run smi": _text("molecules.smi", b"CCO\t0\t1\n\t1\t0\nC=O\t2\t1\n", gather),
    "csv": _text("a.csv", b'id,smiles\n1,CCO\n2,"C1CC1"\n', gather),
    "sdf": _text("a.sdf", SDF, gather),
    "graph data": _text("a.jsonl", JSONL, lambda path: read_graph_file(path, lambda count: [0] * count)),  # type: ignore
    "molecule data": _text("b.csv", b"smiles,test\nCCO,0\nC=O,1\nC#N,0\n", lambda path: read_molecule_file(path, SPEC)),
    "preset": _text("a.toml", (PRESETS / "sampling" / "grum-qm9.toml").read_bytes(), read_preset),
    "configuration": _text("b.toml", (PRESETS / "train" / "grum-qm9.toml").read_bytes(), load_config),
    "options": _text("set.txt", b'kappa=1.5 gamma=.2 active=[[0,1]] rho=2 ema_start="zero" file=x.txt', options),
    "reference": _text("a.npz", (FOLDER / "ego-small.npz").read_bytes(), load_reference),
    "released": _text("a.pth", (FIXTURES / "grum" / "mol.pth").read_bytes(), read_released),
    "run": _run,
    "stopped run": _stopped,
    "model": _model,
    "study": _study,
}


def fuzz(place: Path, name: str, count: int) -> int:
    """Mutate and read; returns how many were refused."""
    chooser, reader = random.Random(name), READERS[name](place)
    good = {path: path.read_bytes() for path in reader.files}
    reader.read()
    before, peak = tree(place), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = broken = 0
    for k in range(count):
        path = chooser.choice(reader.files)
        data = mutated(good[path], chooser)
        path.write_bytes(data)
        began = time.process_time()
        try:
            reader.read()
        except IsostepError as error:
            refused += 1
            broken += "\n" in str(error)
        except Exception as error:
            (place / "failed.bin").write_bytes(data)
            raise AssertionError(f"{name}, mutation {k} of {path.name}: {type(error).__name__}: {error}") from error
        assert time.process_time() - began < SECONDS, (name, k)
        path.write_bytes(good[path])
    assert not broken
    assert tree(place) == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < MEMORY
    return refused


def tree(place: Path) -> set[Path]:
    """All files of the target and around it."""
    return set(place.parent.rglob("*"))


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


@pytest.mark.parametrize("name", [name for name in READERS if name != "study"])
def test_a_few_mutations(place, name):
    fuzz(place, name, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_mutations(place, name):
    assert fuzz(place, name, MANY) > 0 or name == "options"
