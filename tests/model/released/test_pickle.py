"""Released files: read exactly, and never obeyed."""

from __future__ import annotations

import collections
import contextlib
import copyreg
import io
import os
import pickle
import random
import struct
import subprocess
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isostep.base.errors import InputError
from isostep.base.limits import LIMITS
from isostep.family import find_family
from isostep.model.released.pickle import Released, read_pickle, read_released
from isostep.network import assemble
from tests.conftest import FIXTURES

MOL = FIXTURES / "grum" / "mol.pth"
SMALL: dict[str, Any] = {
    "model_type": "transformer_mol",
    "n_layers": 1,
    "input_dims": {"X": 4, "E": 2, "y": 1},
    "output_dims": {"X": 4, "E": 2, "y": 0},
    "hidden_dims": {"dx": 4, "de": 3, "dy": 2, "n_head": 2, "dim_ffX": 4, "dim_ffE": 3},
    "hidden_mlp_dims": {"X": 3, "E": 3, "y": 2},
    "scale": 3,
    "ffy": 2,
}


def small_content() -> dict[str, Any]:
    from isostep.network.grum.reference import GrumNetwork

    torch.manual_seed(0)
    state = GrumNetwork(SMALL).state_dict()
    shadow = [0.5 * value for value in state.values()]
    config = {"data": {"data": "made up", "max_node_num": 5}, "flags": [True, None, 1.5, (1, 2)]}
    return {"config": config, "params": SMALL, "state_dict": state, "ema": {"decay": 0.9, "shadow_params": shadow}}


def refusal(path: Path, reader: Callable[[Path], Any] = read_pickle) -> str:
    """The one-line message with which `path` is refused."""
    with pytest.raises(InputError) as caught:
        reader(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


# --- reading ------------------------------------------------------------------------------------------------------


def test_a_grum_file_gives_settings_and_both_kinds_of_weights() -> None:
    released = read_released(MOL)
    assert released.family == "grum"
    assert released.config["mix"]["adj"] == {
        **{"type": "OU", "drift_coeff": 1, "num_scales": 1000, "sigma_0": 0.4, "sigma_1": 0.2},
    }
    assert type(released.config["model"]["hidden_dims"]) is dict
    assert released.params["hidden_dims"]["dx"] == 32
    assert released.weights["raw"].keys() == released.weights["ema"].keys()
    for name, value in released.weights["raw"].items():
        torch.testing.assert_close(released.weights["ema"][name], 0.98 * value)


def build_network(released: Released, weights: str) -> torch.nn.Module:
    return assemble(find_family(released.family).network, released.params, released.weights[weights])


def test_the_choice_of_weights_reaches_the_network() -> None:
    released = read_released(MOL)
    raw, ema = (build_network(released, kind).state_dict() for kind in ("raw", "ema"))
    for name, value in raw.items():
        assert value.equal(released.weights["raw"][name])
        torch.testing.assert_close(ema[name], 0.98 * value)
    assert not build_network(released, "raw").training


def test_changing_a_network_leaves_the_file_content_alone() -> None:
    released = read_released(MOL)
    network = build_network(released, "raw")
    with torch.no_grad():
        next(network.parameters()).zero_()
    assert released.weights["raw"]["mlp_in_X.0.weight"].abs().max() > 0


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        *(("community_small", 2), ("ego_small", 2), ("enzymes", 2), ("grid", 2)),
        *(("qm9", 1), ("zinc250k", 1), ("zinc250k_v2", 1)),
    ],
)
def test_gdss_files_load_with_the_weights_they_have(shared: Path, name: str, kinds: int) -> None:
    released = read_released(shared / "checkpoints" / "gdss" / f"gdss_{name}.pth")
    assert released.family == "gdss"
    assert len(released.weights) == kinds
    assert released.config["sde"]["x"]["type"] in ("VP", "VE")
    for weights in released.weights:
        state = build_network(released, weights).state_dict()
        assert all(value.device.type == "cpu" for value in state.values())


@pytest.mark.parametrize(("name", "kinds"), [("random_graph", 2), ("random_subvp", 2), ("random_mol", 1)])
def test_random_gdss_files_load_raw_and_averaged_weights(name: str, kinds: int) -> None:
    """Their averages are .98 times the raw weights."""
    released = read_released(FIXTURES / "gdss_random" / f"{name}.pth")
    assert len(released.weights) == kinds
    raw = build_network(released, "raw").state_dict()
    if kinds == 1:
        return
    for key, value in build_network(released, "ema").state_dict().items():
        torch.testing.assert_close(value, 0.98 * raw[key], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("zipped", [True, False])
def test_both_containers_of_torch_and_prefixes_and_easydicts(tmp_path, monkeypatch, zipped: bool) -> None:
    module = types.ModuleType("easydict")
    easydict = type("EasyDict", (dict,), {"__module__": "easydict"})
    module.EasyDict = easydict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "easydict", module)
    content = small_content()
    wrapped = easydict(content["config"])
    wrapped.attribute = "kept in __dict__ by the class"
    stored = collections.OrderedDict((f"module.{name}", value) for name, value in content["state_dict"].items())
    path = tmp_path / "model.pth"
    saved = {**content, "config": wrapped, "state_dict": stored}
    torch.save(saved, path, _use_new_zipfile_serialization=zipped)
    assert zipfile.is_zipfile(path) == zipped
    monkeypatch.delitem(sys.modules, "easydict")

    released = read_released(path)
    assert released.config == content["config"]
    assert type(released.config) is dict
    for name, value in content["state_dict"].items():
        assert released.weights["raw"][name].equal(value)
        assert released.weights["ema"][name].equal(0.5 * value)


@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_keep_type_layout_and_shared_storage(tmp_path, zipped: bool) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    dtypes = [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8]
    content = {
        "all": base,
        "transposed": base.T,
        "part": base[1:, ::2],
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "types": [torch.arange(5).to(dtype) for dtype in [*dtypes, torch.uint8]],
        7: (None, True, -3, 2**70, 1e300, "text"),
    }
    path = tmp_path / "tensors.pt"
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    read = read_pickle(path)
    assert list(read) == list(content)
    for key in ("all", "transposed", "part", "scalar", "empty"):
        assert read[key].equal(content[key])
        assert read[key].dtype == content[key].dtype
    assert all(a.equal(b) and a.dtype == b.dtype for a, b in zip(read["types"], content["types"], strict=True))
    assert read[7] == content[7]
    read["all"][1, 0] = 99
    assert read["part"][0, 0] == 99


def test_a_tensor_from_a_gpu_comes_to_the_cpu(tmp_path) -> None:
    path = archive(tmp_path, pickled_tensor(location="cuda:7"), {"0": struct.pack("<2f", 1.5, -2.0)})
    tensor = read_pickle(path)
    assert tensor.device.type == "cpu"
    assert tensor.tolist() == [1.5, -2.0]


# --- hostile files ------------------------------------------------------------------------------------------------


class Calls:
    """Pickles as the call `function(*arguments)`."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, state: Any = None) -> None:
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> Any:
        return self.parts

    def __call__(self) -> None:
        """Only so that the pickler accepts such an object as the function of another."""


def payloads(marker: Path) -> dict[str, Any]:
    """Objects that create `marker` when unpickled without care."""
    python = f"open({str(marker)!r}, 'w').close()"
    command = f"touch '{marker}'"
    expression = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    evil = Calls(os.system, command)
    array = np.empty(1, dtype=object)
    array[0] = evil
    rebuild = torch._utils._rebuild_tensor_v2  # type: ignore[attr-defined]
    return {
        "os.system": evil,
        "builtins.eval": Calls(eval, expression),
        "builtins.exec": Calls(exec, python),
        "subprocess": Calls(subprocess.call, ["touch", str(marker)]),
        "open for writing": Calls(open, str(marker), "w"),
        "chain of reduces": Calls(Calls(getattr, Calls(__import__, "os"), "system"), command),
        "as state of a dict": Calls(collections.OrderedDict, state={"attribute": evil}),
        "as argument of a dict": Calls(collections.OrderedDict, [("key", evil)]),
        "as dict value": {"config": {"deep": [{"deeper": (1, evil)}]}},
        "in an ndarray": array,
        "in the arguments of an ndarray": Calls(np.ndarray, (1,), evil),
        "in the arguments of a tensor": Calls(rebuild, evil, 0, (1,), (1,), False, collections.OrderedDict()),
        "in the hooks of a tensor": Calls(rebuild, evil, 0, (), (), False, {"hook": evil}),
    }


def pickled(value: Any, protocol: int = 2) -> bytes:
    return pickle.dumps(value, protocol=protocol)


def pickled_tensor(
    location: Any = "cpu", numel: Any = 2, shape: Any = (2,), stride: Any = (1,), key: Any = "0"
) -> bytes:
    """A tensor as torch.save pickles it, with every part free to be wrong."""

    class Outside:
        pass

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return ("storage", torch.FloatStorage, key, location, numel) if isinstance(obj, Outside) else None

    buffer = io.BytesIO()
    rebuild = torch._utils._rebuild_tensor_v2  # type: ignore[attr-defined]
    Pickler(buffer, 2).dump(Calls(rebuild, Outside(), 0, shape, stride, False, collections.OrderedDict()))
    return buffer.getvalue()


def archive(folder: Path, data: bytes, storages: dict[str, bytes] | None = None, **options: Any) -> Path:
    """A zip file as torch writes it around the pickle `data`."""
    path = folder / "made.pth"
    with zipfile.ZipFile(path, "w", **options) as file:
        file.writestr("made/data.pkl", data)
        for key, content in (storages or {}).items():
            file.writestr(f"made/data/{key}", content)
        file.writestr("made/version", "3\n")
    return path


def legacy(folder: Path, data: bytes) -> Path:
    """A file as torch < 1.6 writes it around the pickle `data`."""
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    path = folder / "made.pth"
    path.write_bytes(b"".join((pickled(0x1950A86A20F9469CFC6C), pickled(1001), pickled(system), data, pickled([]))))
    return path


def bare(folder: Path, data: bytes) -> Path:
    path = folder / "made.pth"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", list(payloads(Path("unused"))))
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hostile_pickle_is_refused_and_nothing_happens(tmp_path, name: str, protocol: int) -> None:
    marker = tmp_path / "marker"
    data = pickled(payloads(marker)[name], protocol)
    for container in (archive, legacy, bare):
        path = container(tmp_path, data)
        message = refusal(path)
        assert "refused" in message or (container is bare and protocol == 0)
        refusal(path, read_released)
        assert not marker.exists()
    # The payload is real: an ordinary reader obeys it (and may fail afterwards).
    with contextlib.suppress(Exception):
        pickle.loads(data)
    assert marker.exists()


@pytest.mark.parametrize(
    ("function", "shown"),
    [(os.system, f"{os.system.__module__}.system"), (eval, "builtin"), (torch.load, "torch.serialization.load")],
)
def test_the_message_names_what_was_refused(tmp_path, function: Callable[..., Any], shown: str) -> None:
    message = refusal(archive(tmp_path, pickled(Calls(function, "x"))))
    assert shown in message
    assert "names" in message
    assert "nothing was run" in message


def test_names_from_the_extension_registry_are_refused(tmp_path) -> None:
    copyreg.add_extension("os", "system", 0xF0)
    try:
        marker = tmp_path / "marker"
        data = (
            b"\x80\x02\x82\xf0X" + struct.pack("<I", len(command := f"touch {marker}")) + command.encode() + b"\x85R."
        )
        assert "EXT1" in refusal(archive(tmp_path, data))
        assert not marker.exists()
        pickle.loads(data)
        assert marker.exists()
    finally:
        copyreg.remove_extension("os", "system", 0xF0)


def build(target: bytes) -> bytes:
    """Set the attributes {'name': 'x'} of whatever `target` pushes."""
    return b"\x80\x02" + target + b"}X\x04\x00\x00\x00nameX\x01\x00\x00\x00xsb."


@pytest.mark.parametrize(
    "data",
    [
        build(b"ccollections\nOrderedDict\n"),
        build(b"ctorch._utils\n_rebuild_tensor_v2\n"),
        build(b"ceasydict\nEasyDict\n"),
        b"\x80\x02ccollections\nOrderedDict\n.",  # a class where a value should be
        b"\x80\x02X\x01\x00\x00\x00a)R.",  # calling text
        b"\x80\x02ctorch\nFloatStorage\n)R.",  # calling a storage type
        b"\x80\x02X\x02\x00\x00\x00os]\x93.",  # a name that is a list
        b"\x80\x02Pos\n.",  # text reference to something outside
        b"(ios\nsystem\n.",  # old-style instances
    ],
)
def test_odd_uses_of_allowed_instructions_are_refused(tmp_path, data: bytes) -> None:
    assert "refused" in refusal(archive(tmp_path, data))
    assert not hasattr(collections.OrderedDict, "name")


@pytest.mark.parametrize(
    "outside",
    [
        ("module", "os", "system"),
        ("storage", "torch.FloatStorage", "0", "cpu", 2),
        ("storage", torch.FloatStorage, "0", "cpu", -1),
        ("storage", torch.FloatStorage, "0", "cpu", 2**60),
        ("storage", torch.FloatStorage, ["0"], "cpu", 2),
        ("storage", torch.FloatStorage, "0", "cpu", 2, ("view", 0, 1)),
        "storage",
        ["storage", torch.FloatStorage, "0", "cpu", 2],
    ],
)
def test_references_to_anything_but_a_storage_are_refused(tmp_path, outside: Any) -> None:
    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return outside if obj == "here" else None

    buffer = io.BytesIO()
    Pickler(buffer, 2).dump(["here"])
    assert "refused" in refusal(archive(tmp_path, buffer.getvalue(), {"0": bytes(8)}))


@pytest.mark.parametrize("key", ["../../secret", "/etc/passwd", "../version", "missing"])
def test_storage_keys_stay_inside_the_archive(tmp_path, key: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(8))
    path = archive(tmp_path, pickled_tensor(key=key), {"0": bytes(8)})
    refusal(path)


@pytest.mark.parametrize(
    ("shape", "stride"),
    [((10**9,), (0,)), ((3,), (1,)), ((2,), (2,)), ((2,), (-1,)), ((1,) * 9, (1,) * 9), ((2,), (1, 1)), (2, 1)],
)
def test_tensors_larger_than_their_storage_are_refused(tmp_path, shape: Any, stride: Any) -> None:
    path = archive(tmp_path, pickled_tensor(shape=shape, stride=stride), {"0": bytes(8)})
    assert "refused" in refusal(path)


def test_a_storage_shorter_than_declared_is_an_error(tmp_path) -> None:
    assert "bytes" in refusal(archive(tmp_path, pickled_tensor(), {"0": bytes(7)}))


def test_bombs_are_refused(tmp_path) -> None:
    memo = b"\x80\x02]r" + struct.pack("<I", 2**32 - 1) + b"."  # would reserve a table of 2^32 entries
    assert read_pickle(archive(tmp_path, memo)) == []
    long_text = b"\x80\x04\x8d" + struct.pack("<Q", 2**50) + b"x."
    refusal(archive(tmp_path, long_text))
    shared_lists: list[Any] = []
    for _ in range(40):
        shared_lists = [shared_lists, shared_lists]  # 2^40 leaves if written out
    assert "values" in refusal(archive(tmp_path, pickled(shared_lists)))
    itself: list[Any] = []
    itself.append(itself)
    assert "deep" in refusal(archive(tmp_path, pickled(itself)))
    assert "deep" in refusal(archive(tmp_path, b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."))
    tuple_key = b"\x80\x02}" + b")" + b"q\x00h\x00\x86" * 60 + b"K\x01s."  # hashing it would take 2^60 steps
    assert "key" in refusal(archive(tmp_path, tuple_key))
    zeros = archive(tmp_path, pickled_tensor(), {"0": bytes(10**7)}, compression=zipfile.ZIP_DEFLATED)
    assert "compressed" in refusal(zeros)


def test_instructions_without_end_are_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(LIMITS, "pickle_instructions", 1000)
    assert "instructions" in refusal(bare(tmp_path, b"\x80\x02" + b"N" * 2000 + b"."))


# --- damaged files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [True, False])
def test_a_truncated_file_is_an_error_wherever_it_ends(tmp_path, zipped: bool) -> None:
    whole = tmp_path / "whole.pth"
    torch.save(small_content(), whole, _use_new_zipfile_serialization=zipped)
    data = whole.read_bytes()
    read_released(whole)
    for length in [*range(0, 40), *range(40, len(data), len(data) // 60), len(data) - 1]:
        refusal(bare(tmp_path, data[:length]), read_released)


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@pytest.mark.parametrize("zipped", [True, False])
def test_damaged_bytes_give_a_result_or_one_line(tmp_path, zipped: bool) -> None:
    whole = tmp_path / "whole.pth"
    torch.save(small_content(), whole, _use_new_zipfile_serialization=zipped)
    data = whole.read_bytes()
    generator = random.Random(0)
    messages = []
    for _ in range(80):
        damaged = bytearray(data)
        for _ in range(generator.choice((1, 4))):
            # Mostly in the pickles at the front and the directory at the end, where structure is.
            ends = (generator.randrange(4000), -generator.randint(1, 3000))
            place = generator.choice((*ends, generator.randrange(len(data))))
            damaged[place] = generator.randrange(256)
        path = bare(tmp_path, bytes(damaged))
        try:
            build_network(read_released(path), "raw")
        except InputError as error:
            messages.append(str(error))
    assert len(messages) > 25
    assert not any("\n" in message for message in messages)


def test_files_that_are_something_else(tmp_path) -> None:
    assert "cannot read" in refusal(tmp_path / "absent.pth")
    assert "cannot read" in refusal(tmp_path)
    for content in (b"", b"hello", b"PK\x03\x04", b"\x89PNG\r\n", b"{}", bytes(1000)):
        assert "download it again" in refusal(bare(tmp_path, content))
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "no model here")
    assert "data.pkl" in refusal(path)
    assert "little-endian" in refusal(legacy_of_another_machine(tmp_path))


def legacy_of_another_machine(folder: Path) -> Path:
    path = legacy(folder, pickled({}))
    path.write_bytes(path.read_bytes().replace(b"little_endian", b"middle_endian"))
    return path


# --- wrong structure ----------------------------------------------------------------------------------------------


def changed(change: Callable[[dict[str, Any]], Any]) -> Any:
    content = small_content()
    content = {**content, "params": dict(SMALL), "state_dict": dict(content["state_dict"])}
    replaced = change(content)
    return replaced if isinstance(replaced, list | dict) else content


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (lambda c: [1, 2], "list"),
        (lambda c: {"weights": 1}, "not a file of a known family"),
        (lambda c: c.update(config=None), "'config' must be a dict"),
        (lambda c: c.update(state_dict=3), "'state_dict' must be a dict"),
        (lambda c: c["state_dict"].update(extra="text"), "extra"),
        (lambda c: c["state_dict"].update(extra=torch.arange(3)), "extra"),
        (lambda c: c["state_dict"]["mlp_in_X.0.weight"].fill_(float("nan")), "not finite at 'mlp_in_X.0.weight'"),
        (lambda c: c["ema"]["shadow_params"].pop(), "shadow_params"),
        (lambda c: c["ema"]["shadow_params"].reverse(), "shape"),
        (lambda c: c.update(ema={"decay": 0.9}), "no shadow_params"),
    ],
)
def test_files_of_the_wrong_structure_are_explained(tmp_path, change: Callable[[Any], Any], shown: str) -> None:
    path = tmp_path / "model.pth"
    torch.save(changed(change), path)
    assert shown in refusal(path, read_released)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("n_layers", 2, "do not fit"),
        ("n_layers", 10**12, "n_layers"),
        ("ffy", 60_000, "do not fit"),
        ("scale", "3", "scale"),
    ],
)
def test_settings_that_do_not_fit_the_weights_are_refused_without_memory(tmp_path, key, value, shown) -> None:
    path = tmp_path / "model.pth"
    torch.save(changed(lambda c: c["params"].update({key: value})), path)
    released = read_released(path)
    with pytest.raises(InputError, match=shown) as caught:
        build_network(released, "raw")
    assert "\n" not in str(caught.value)


def test_a_file_without_averages_has_raw_weights_only(tmp_path) -> None:
    path = tmp_path / "model.pth"
    torch.save(changed(lambda c: c.update(ema=None)), path)
    assert list(read_released(path).weights) == ["raw"]
