"""Every file reader against damaged and hostile files: it reads them, or refuses them with one line; nothing else.

Each example damages a good file: a JSON value replaced by an odd one, bytes cut, flipped, inserted. The number of
examples is ISOSTEP_FUZZ (default 100 per reader); they are the same at every run.
"""

from __future__ import annotations

import json
import os
import random
import resource
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isostep.base.errors import InputError, IsostepError
from isostep.base.files import read_json, sha256, write_json
from isostep.control.pilot import Pilot
from isostep.dataset.read import read_graph_file, read_molecule_file
from isostep.item.encoding import MoleculeSpec
from isostep.item.graph import read_graphs
from isostep.metric.items import gather
from isostep.metric.suite import load_reference
from isostep.model.analytic import analytic_model
from isostep.model.folder import load_folder, read_card
from isostep.model.presets import read_preset
from isostep.model.released.convert import import_released
from isostep.model.released.pickle import read_released
from isostep.run import writer
from isostep.run.engine import sample_run
from isostep.run.format import unpack
from isostep.run.inspect import status
from isostep.run.reading import read_run
from isostep.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from isostep.training.config import load_config
from tests.conftest import FIXTURES

EXAMPLES = int(os.environ.get("ISOSTEP_FUZZ", "100"))
PRESETS = Path(__file__).parents[2] / "src" / "isostep" / "presets"
MOST_MEMORY = 400_000  # kB that a whole series of examples may add

fuzz = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

numbers = st.sampled_from([0, -1, 1, 10**12, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf")])
texts = st.one_of(
    st.text(max_size=20), st.sampled_from(["../../etc/passwd", "/dev/zero", "\x00", "é" * 50, "a" * 5000])
)
odd = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def damaged_bytes(draw, good: bytes) -> bytes:
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.integers(0, 4)):
            case 0:
                del data[place:]
            case 1:
                data[place : place + 4] = draw(st.binary(max_size=8))
            case 2:
                data[place:place] = draw(st.sampled_from([b"\n", b"[" * 3000, b"{", b'"', b"\x00", b"\xff", b"1e999"]))
            case 3:
                data[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case 4:
                data[place:place] = data[: draw(st.integers(0, 60))]
    return bytes(data)


@st.composite
def damaged_json(draw, good: bytes) -> bytes:
    """One value somewhere in the document is replaced, removed, or joined by an unknown one."""
    record = json.loads(good)
    here = record
    while isinstance(here, dict | list) and here:
        key = draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
        inner = here[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.booleans()):
            match draw(st.integers(0, 3)):
                case 0:
                    del here[key]
                case 1 if isinstance(here, dict):
                    here[draw(texts)] = draw(odd)
                case _:
                    here[key] = draw(odd)
            break
        here = inner
    return json.dumps(record).encode("utf-8", "surrogatepass")


def one_line_or_fine(read, *arguments) -> bool:
    """Whether the file was accepted. Anything but an IsostepError with one line goes through to pytest."""
    message = ""
    try:
        read(*arguments)
    except IsostepError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 5000
    return not message


@pytest.fixture(autouse=True)
def _bounded_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


# --- text files ------------------------------------------------------------------------------------------------------

SPEC = MoleculeSpec(("C", "N", "O", "F"), max_nodes=9)
JSONL = b'{"n":4,"edges":[[0,1],[1,2]],"split":"train"}\n{"n":3,"edges":[],"split":"test"}\n'
SDF = b"""x
  made

  2  1  0  0  0  0            999 V2000
    0.0000    0.0000    0.0000 C   0  0
    1.0000    0.0000    0.0000 O   0  0
  1  2  1  0
M  END
$$$$
"""

# reader, file name, a good file
TEXT = {
    "graphs": (read_graphs, "a.jsonl", JSONL),
    "graph data": (lambda path: read_graph_file(path, lambda count: [0] * count), "a.jsonl", JSONL),  # type: ignore
    "jsonl items": (gather, "a.jsonl", JSONL),
    "smiles items": (gather, "a.smi", b"CCO\nC1CC1 name\n# note\n[NH4+]\nc1ccccc1O\n"),
    "run smiles": (gather, "molecules.smi", b"CCO\t0\t1\n\t1\t0\nC=O\t2\t1\n"),
    "csv items": (gather, "a.csv", b'id,smiles\n1,CCO\n2,"C1CC1"\n'),
    "sdf items": (gather, "a.sdf", SDF),
    "molecule data": (lambda path: read_molecule_file(path, SPEC), "a.csv", b"smiles,test\nCCO,0\nC=O,1\nC#N,0\n"),
    "sampling preset": (read_preset, "a.toml", (PRESETS / "sampling" / "grum-qm9.toml").read_bytes()),
    "train configuration": (load_config, "a.toml", (PRESETS / "train" / "grum-qm9.toml").read_bytes()),
    "json": (read_json, "a.json", b'{"a": [1, 2.5, null, "x"], "b": {"c": true}}'),
    "calibration": (
        lambda path: Pilot.from_dict(read_json(path)),
        "a.json",
        b'{"t": [0.1, 0.5], "rate": {"X": [1.0, 2.0], "A": [0.5, 0.25]}, "graphs": 2, "calls": 3,'
        b' "decisions": {"A": [0.5, 0.5]}, "undecided": [4.0, 2.0]}',
    ),
}


@pytest.mark.parametrize("name", TEXT)
def test_damaged_text(place, name):
    read, file, good = TEXT[name]
    path = place / file
    path.write_bytes(good)
    assert one_line_or_fine(read, path), "the good file is good"
    refused = 0

    @fuzz
    @given(damaged_bytes(good))
    def each(data: bytes) -> None:
        nonlocal refused
        path.write_bytes(data)
        refused += not one_line_or_fine(read, path)

    each()
    assert refused > EXAMPLES // 50, "the damage did not reach the reader"


@pytest.mark.parametrize(("noise", "match"), [(0, "times its size"), (2**14, "a line has")])
def test_a_line_without_end_is_not_read_whole(place, noise, match):
    """100 MB on one line, in a gzip of 100 kB, or of a size that is not suspicious."""
    import gzip

    path, block = place / "bomb.jsonl.gz", random.Random(0).randbytes(noise).replace(b"\n", b" ")
    with gzip.open(path, "wb") as file:
        for _ in range(100):
            file.write(block.ljust(2**20))
    for read in (read_graphs, gather, lambda path: list(unpack(path))):
        with pytest.raises(InputError, match=match):
            read(path)


@pytest.mark.parametrize("line", ['{"n": 1000000000000, "edges": []}', '{"n": 3, "edges": [[0, 1000000000000]]}'])
def test_a_graph_of_a_million_million_nodes_is_refused(place, line):
    (place / "huge.jsonl").write_text(line)
    with pytest.raises(InputError):
        read_graphs(place / "huge.jsonl")


# --- runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_files(place) -> dict[str, bytes]:
    """The files of a stopped run, and of a complete one."""
    options = {"schedule": "dvs", "steps": 3, "batch_size": 2, "shard_size": 2, "seed": 1}
    joined = writer.JOINED
    writer.JOINED = 0
    sample_run(analytic_model(), 6, place / "run", **options)
    writer.JOINED = joined
    run = (place / "run" / "run.json").read_bytes()
    only = ("joined", "summary", "device", "versions")
    plan = json.dumps({key: value for key, value in json.loads(run).items() if key not in only}).encode()
    return {"run.json": run, "plan.json": plan, "shards.jsonl": (place / "run" / "shards.jsonl").read_bytes()}


def read_all(folder: Path) -> None:
    """Everything that reads a run without a model."""
    status(folder)
    run = read_run(folder)
    list(run.damaged())
    list(run.items())
    gather(folder)


@pytest.mark.parametrize("name", ["run.json", "plan.json", "shards.jsonl"])
@pytest.mark.parametrize("how", [damaged_bytes, damaged_json])
def test_damaged_run_files(place, run_files, name, how):
    folder = place / "run"
    good = run_files[name]
    head, tail = (good.split(b"\n", 1)[0], b"\n" + good.split(b"\n", 1)[1]) if name == "shards.jsonl" else (good, b"")
    complete = "plan.json" if name == "plan.json" else "run.json"
    for other, data in run_files.items():
        (folder / other).write_bytes(data)
    (folder / ("run.json" if complete == "plan.json" else "plan.json")).unlink()
    assert one_line_or_fine(read_all, folder)

    @fuzz
    @given(how(head))
    def each(data: bytes) -> None:
        (folder / name).write_bytes(data + tail)
        one_line_or_fine(read_all, folder)

    each()


@settings(fuzz, max_examples=EXAMPLES // 2)
@given(data=st.data())
def test_damaged_shards(place, run_files, data):
    folder = place / "run"
    for other, content in run_files.items():
        (folder / other).write_bytes(content)
    path = folder / "shards" / "000001.jsonl.gz"
    good = path.read_bytes()
    try:
        path.write_bytes(data.draw(damaged_bytes(good)))
        one_line_or_fine(read_all, folder)
    finally:
        path.write_bytes(good)


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model_folder(place) -> Path:
    import_released(FIXTURES / "grum" / "mol.pth", place / "model", "raw")
    return place / "model"


@pytest.mark.parametrize("how", [damaged_bytes, damaged_json])
def test_damaged_cards(model_folder, how):
    path = model_folder / "model.json"
    good = path.read_bytes()
    assert one_line_or_fine(load_folder, model_folder)

    @fuzz
    @given(how(good))
    def each(data: bytes) -> None:
        path.write_bytes(data)
        if one_line_or_fine(read_card, model_folder):
            one_line_or_fine(load_folder, model_folder)

    try:
        each()
    finally:
        path.write_bytes(good)


def parts(data: bytes) -> tuple[bytes, bytes]:
    """Header and numbers of a safetensors file."""
    size = struct.unpack("<Q", data[:8])[0]
    return data[8 : 8 + size], data[8 + size :]


@pytest.mark.parametrize("how", [damaged_bytes, damaged_json])
def test_damaged_weights_with_a_matching_sum(place, how):
    """The sum is made to fit, so that the reader of the header is reached; half of the lengths are wrong as well."""
    torch.manual_seed(0)
    path = place / "last.safetensors"
    save_checkpoint(path, {"network.w": torch.zeros(3, 2), "ema.w": torch.ones(2)}, Progress(step=3, best=0.5))
    header, numbers = parts(path.read_bytes())
    assert one_line_or_fine(load_checkpoint, path)

    @fuzz
    @given(how(header), st.sampled_from([0, 1, -1, 10**12, 2**63]))
    def each(changed: bytes, off: int) -> None:
        size = (len(changed) + off) % 2**64
        path.write_bytes(struct.pack("<Q", size) + changed + numbers)
        one_line_or_fine(load_checkpoint, path)

    each()


def test_damaged_weights_of_a_model_folder(model_folder):
    weights, card = model_folder / "model.safetensors", model_folder / "model.json"
    good, record = weights.read_bytes(), json.loads(card.read_bytes())
    header, numbers = parts(good)

    @settings(fuzz, max_examples=EXAMPLES // 5)
    @given(damaged_json(header))
    def each(changed: bytes) -> None:
        weights.write_bytes(struct.pack("<Q", len(changed)) + changed + numbers)
        write_json(card, {**record, "sha256": sha256(weights)})
        one_line_or_fine(load_folder, model_folder)

    try:
        each()
    finally:
        weights.write_bytes(good)
        write_json(card, record)


def test_a_sum_that_does_not_match_is_refused(model_folder):
    weights = model_folder / "model.safetensors"
    good = weights.read_bytes()
    try:
        weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        with pytest.raises(InputError, match="its card says"):
            load_folder(model_folder)
    finally:
        weights.write_bytes(good)


def test_damaged_released_files(place):
    """The pickle machine's own tests go further; here the container."""
    good = (FIXTURES / "grum" / "mol.pth").read_bytes()
    path = place / "a.pth"

    @settings(fuzz, max_examples=EXAMPLES // 5)
    @given(st.data())
    def each(data: st.DataObject) -> None:
        head, tail = good[:3000], good[-6000:]
        path.write_bytes(data.draw(damaged_bytes(head)) + good[3000:-6000] + data.draw(damaged_bytes(tail)))
        one_line_or_fine(read_released, path)

    each()


def test_damaged_references(place):
    from importlib import resources

    good = (resources.files("isostep") / "metric" / "reference_data" / "community-small.npz").read_bytes()
    path = place / "a.npz"

    @settings(fuzz, max_examples=EXAMPLES // 2)
    @given(damaged_bytes(good))
    def each(data: bytes) -> None:
        path.write_bytes(data)
        one_line_or_fine(load_reference, path)

    each()
