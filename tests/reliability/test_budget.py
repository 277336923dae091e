"""Small files must not cost much: each one here is refused in one line, within 5 CPU seconds and 1 GB."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import resource
import struct
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from isostep.base.errors import InputError
from isostep.base.limits import limit
from isostep.item.graph import Graph, read_graphs
from isostep.metric.items import gather
from isostep.metric.reference import FOLDER
from isostep.metric.suite import load_reference
from isostep.model.folder import load_folder, save_model
from isostep.model.lookup import load_model
from isostep.model.released.pickle import LEGACY_MAGIC, read_pickle

GIGABYTE = 2**30


@pytest.fixture(autouse=True)
def _bounded():
    """More memory than 1 GB is not to be had."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    old = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages + GIGABYTE, old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, old)


def refused(read, *arguments, match: str = ".") -> str:
    """The refusal, in one line and within the time; making a hostile file may take longer."""
    began = time.process_time()
    with pytest.raises(InputError, match=match) as caught:
        read(*arguments)
    assert time.process_time() - began < 5
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- released files --------------------------------------------------------------------------------------------------


def test_many_views_of_one_storage(tmp_path):
    """3000 tensors of 1 MB that share one storage: copied, they would be 3 GB."""
    storage = torch.zeros(2**18)
    torch.save({f"w{k}": storage.view(-1) for k in range(3000)}, tmp_path / "views.pth")
    assert (tmp_path / "views.pth").stat().st_size < 4 * 2**20
    refused(read_pickle, tmp_path / "views.pth", match="ISOSTEP_LIMITS")


def test_tied_weights_are_read(tmp_path):
    weight = torch.randn(100, 100)
    torch.save({"a": weight, "b": weight}, tmp_path / "tied.pth")
    assert torch.equal(read_pickle(tmp_path / "tied.pth")["b"], weight)


def test_a_legacy_pickle_without_end(tmp_path):
    """A text of 100 MB before the first storage."""
    path = tmp_path / "legacy.pth"
    system = pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {}}, 2)
    head = pickle.dumps(LEGACY_MAGIC, 2) + pickle.dumps(1001, 2) + system
    with open(path, "wb") as file:
        file.write(head + b"\x80\x02X" + struct.pack("<I", 100 * 2**20))
        file.truncate(len(head) + 7 + 100 * 2**20)
        file.seek(0, 2)
        file.write(b".")
    refused(read_pickle, path, match="more than")


def entries(path: Path, count: int) -> None:
    """A zip file of empty entries, written by hand: quick."""
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, 0, 0, 1, 0) + b"a"
    central = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    body = local + central * count
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count & 0xFFFF, count & 0xFFFF, len(central) * count, len(local), 0)
    path.write_bytes(body + end)


@pytest.mark.parametrize("reader", [read_pickle, load_reference], ids=["released", "reference"])
def test_a_million_entries_of_a_zip_file(tmp_path, reader):
    entries(tmp_path / "many.npz", 1_000_000)
    refused(reader, tmp_path / "many.npz", match="entries")


# --- model folders ---------------------------------------------------------------------------------------------------


def test_settings_that_ask_for_more_than_the_weights(tmp_path):
    """A card of 2.5 kB: 256 layers of 256 channels; the weights are one number."""
    model = load_model("gdss-community-small")
    record = json.loads(model.info.model_dump_json())
    edges = next(part for part in record["network"].values() if isinstance(part, dict) and "c_hid" in part)
    edges |= {"num_layers": 256, "c_init": 256, "c_hid": 256, "c_final": 256}
    save_model(tmp_path, model.info, {"w": torch.zeros(1)})
    card = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**card, "network": record["network"]}))
    refused(load_folder, tmp_path, match="weights do not fit the network settings")


# --- references ------------------------------------------------------------------------------------------------------


def npz(path: Path, compression: int = zipfile.ZIP_DEFLATED, **arrays: bytes) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in arrays.items():
            archive.writestr(f"{name}.npy", data)
    return path


def header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue()


def array(value) -> bytes:
    file = io.BytesIO()
    np.save(file, value)
    return file.getvalue()


def test_a_reference_that_declares_80_gigabytes(tmp_path):
    refused(load_reference, npz(tmp_path / "a.npz", graph_summary=header((10**10,))), match="declares")


def test_a_reference_that_unpacks_to_gigabytes(tmp_path):
    with (
        zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("graph_summary.npy", "w", force_zip64=True) as file,
    ):
        file.write(header((2**26 * 2,)))
        for _ in range(1024):
            file.write(bytes(2**20))
    assert (tmp_path / "a.npz").stat().st_size < 2 * 2**20
    refused(load_reference, tmp_path / "a.npz", match="ISOSTEP_LIMITS")


def test_an_encrypted_reference(tmp_path):
    data = bytearray(npz(tmp_path / "a.npz", graph_summary=array(np.array("{}"))).read_bytes())
    data[data.index(b"PK\1\2") + 8] |= 1
    data[6] |= 1
    (tmp_path / "a.npz").write_bytes(bytes(data))
    refused(load_reference, tmp_path / "a.npz")


def test_a_reference_of_unknown_compression(tmp_path):
    data = bytearray(npz(tmp_path / "a.npz", graph_summary=array(np.array("{}"))).read_bytes())
    data[data.index(b"PK\1\2") + 10] = 99
    data[8] = 99
    (tmp_path / "a.npz").write_bytes(bytes(data))
    refused(load_reference, tmp_path / "a.npz")


@pytest.mark.parametrize("mark", ["graph_summary", "molecule_reference"])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"version": ' + "9" * 5000 + "}", "3", '{"version": 1}'])
def test_a_reference_with_strange_json(tmp_path, mark, text):
    refused(load_reference, npz(tmp_path / "a.npz", **{mark: array(np.array(text))}))


# --- graphs and molecules --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [20_000, 100_000])
def test_a_graph_whose_matrix_would_be_large(tmp_path, n):
    (tmp_path / "a.jsonl").write_text(json.dumps({"n": n, "edges": [[0, 1]]}) + "\n")
    refused(gather, tmp_path / "a.jsonl", match="ISOSTEP_LIMITS")
    graph = read_graphs(tmp_path / "a.jsonl")[0]  # to hold it costs nothing
    refused(graph.adjacency, match="ISOSTEP_LIMITS")


def test_a_molecule_of_30_000_fragments(tmp_path):
    (tmp_path / "a.smi").write_text(".".join(["C"] * 30_000) + "\n")
    refused(gather, tmp_path / "a.smi", match="ISOSTEP_LIMITS")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.smi.gz", "a.csv.gz", "a.sdf.gz"])
def test_a_small_gzip_file_of_millions_of_lines(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(b"1\n" * 4_000_000))
    assert (tmp_path / name).stat().st_size < 10_000
    refused(gather, tmp_path / name, match="ISOSTEP_LIMITS")


def test_limits_can_be_raised(monkeypatch):
    usual = limit("matrix_entries")
    monkeypatch.setenv("ISOSTEP_LIMITS", "8")
    assert limit("matrix_entries") == 8 * usual
    Graph.of(5000, []).adjacency(np.uint8)
    for word in ("0", "-1", "many", "nan", "9" * 5000):
        monkeypatch.setenv("ISOSTEP_LIMITS", word)
        refused(limit, "matrix_entries", match="ISOSTEP_LIMITS must be a number")


SHAPES = {
    "ego-small": ["test/degree", "train/orbit", "test/hashes", "nspdk/mean", "nspdk/apart"],
    "qm9-3d": ["bond_length/laws", "bond_angle/share", "bond_length/types"],
}


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in SHAPES.items() for key in keys])
@pytest.mark.parametrize("change", ["flat", "short", "text", "not finite", "missing"])
def test_statistics_of_another_shape_are_refused(tmp_path, name, key, change):
    """Where they are read, not where a metric trips over them."""
    with np.load(FOLDER / f"{name}.npz") as archive:
        arrays = dict(archive)
    good = arrays.pop(key)
    bad = {
        "flat": np.zeros((2, 2, 2)), "short": np.zeros((3, *good.shape[1:])), "text": np.array(b"x"),
        "not finite": np.full(good.shape, np.nan),
    }  # fmt: skip
    if change != "missing":
        arrays[key] = bad[change]
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=r"a\.npz"):
        load_reference(tmp_path / "a.npz")
