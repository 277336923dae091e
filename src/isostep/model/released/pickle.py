"""Released `.pth` files, read without running anything in them.

A pickle is a program for a small stack machine. Here is such a machine that knows only the few instructions and names
that released files use; the values it makes are dicts, lists, tuples, numbers, strings and tensors, and there is no
instruction left that could call or import something. Any other instruction or name ends the reading with an error.
"""

from __future__ import annotations

import io
import math
import os
import pickletools
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isostep.base.archive import check_entries
from isostep.base.errors import InputError
from isostep.base.limits import limit, within
from isostep.family import families

SLACK = 2**20  # bytes of tensors that are free
MAX_DEPTH = 64  # of nested containers
MAX_DIMS = 8  # of a tensor
LONGEST_NAME = 4096  # bytes of a line inside a pickle
PICKLE_START = b"\x80"
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # first value of a file written by torch < 1.6
LEGACY_VERSION = 1001

DICTS = ("collections.OrderedDict", "easydict.EasyDict")
REBUILD = "torch._utils._rebuild_tensor_v2"
DTYPES = {
    "torch.FloatStorage": torch.float32,
    "torch.DoubleStorage": torch.float64,
    "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16,
    "torch.LongStorage": torch.int64,
    "torch.IntStorage": torch.int32,
    "torch.ShortStorage": torch.int16,
    "torch.CharStorage": torch.int8,
    "torch.ByteStorage": torch.uint8,
}
ALLOWED = (*DICTS, REBUILD, *DTYPES)


@dataclass(frozen=True)
class Released:
    """A released model: settings as plain dicts; `weights` maps "raw", and "ema" where stored, to named tensors."""

    family: str
    config: dict[str, Any]
    params: dict[str, Any]
    weights: dict[str, dict[str, Tensor]]


def read_released(path: str | Path) -> Released:
    """Read a released file of any family; names lose their `module.` prefix."""
    content = read_pickle(path)
    try:
        return _released(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def read_pickle(path: str | Path) -> Any:
    """The content of a file written by `torch.save`, on the CPU; dict subclasses come back as plain dicts."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below; here only its own errors count
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the path") from error
    with file:
        try:
            return _read(file)
        except (_Refused, InputError) as error:
            raise InputError(f"{path} is refused: {error}") from error
        except _DAMAGE as error:
            cause = str(error).split("\n")[0] or type(error).__name__
            raise InputError(f"{path} is not a readable PyTorch file: {cause}; download it again") from error


class _Refused(Exception):
    """The file wants something that released files do not use."""


class _Broken(Exception):
    """The file is damaged or not of this format."""


# What zipfile and torch raise on damaged files.
_DAMAGE = (_Broken, zipfile.BadZipFile, RuntimeError, MemoryError, ValueError, OSError, EOFError, struct.error)


class _Global(NamedTuple):
    """An allowed name; it stands for what it names and is never looked up."""

    name: str


class _Storage(NamedTuple):
    key: str
    dtype: torch.dtype
    numel: int


class _TensorView(NamedTuple):
    """A tensor still to be cut out of its storage."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


# --- the two containers -------------------------------------------------------------------------------------------


def _read(file: io.BufferedReader) -> Any:
    size = os.fstat(file.fileno()).st_size
    within("file_bytes", size, f"it has {size} bytes")
    zipped = file.peek(2).startswith(b"PK")
    return _read_zip(file, size) if zipped else _read_legacy(file, size)


def _read_zip(file: io.BufferedReader, size: int) -> Any:
    """torch >= 1.6: a zip archive with `NAME/data.pkl` and one uncompressed record `NAME/data/KEY` a storage."""
    check_entries(file, "it")
    with zipfile.ZipFile(file) as archive:
        records = {info.filename: info for info in archive.infolist()}
        if any(info.compress_type != zipfile.ZIP_STORED for info in records.values()):
            raise _Refused("it holds compressed records")
        if sum(info.file_size for info in records.values()) > size:
            raise _Refused("its records claim more bytes than the file has")
        pickles = [name for name in records if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(pickles) != 1:
            raise _Broken(f"expected one data.pkl in the archive, found {len(pickles)}")
        folder = pickles[0].removesuffix("data.pkl")
        if f"{folder}byteorder" in records and archive.read(f"{folder}byteorder") != b"little":
            raise _Refused("it was written on a big-endian machine")
        within("pickle_bytes", records[pickles[0]].file_size, f"its data.pkl has {records[pickles[0]].file_size} bytes")

        def load(storage: _Storage) -> bytes:
            name = f"{folder}data/{storage.key}"
            if name not in records:
                raise _Broken(f"record {name!r} is missing")
            return archive.read(name)

        return _finish(_Machine(io.BytesIO(archive.read(pickles[0]))).run(), load, size)


def _read_legacy(file: io.BufferedReader, size: int) -> Any:
    """torch < 1.6: pickles of a magic number, a version, the system, the content and the storage keys; the storages."""
    pickles = _Bounded(file)
    if file.peek(1)[:1] != PICKLE_START or _Machine(pickles).run() != LEGACY_MAGIC:
        raise _Broken("it is neither a zip archive nor a file of torch < 1.6")
    if _Machine(pickles).run() != LEGACY_VERSION:
        raise _Broken("it has an unknown version")
    system = _Machine(pickles).run()
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise _Refused("it was not written on a little-endian machine")
    machine = _Machine(pickles)
    content = machine.run()
    keys = _Machine(pickles).run()
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or {*keys} != {*machine.storages}:
        raise _Broken("its list of storages does not match its tensors")
    loaded = {}
    for key in keys:
        storage = machine.storages[key]
        numel, wanted = int.from_bytes(file.read(8), "little"), storage.numel * storage.dtype.itemsize
        if numel != storage.numel or wanted > size - file.tell():
            raise _Broken(f"storage {key!r} is cut short")
        loaded[key] = file.read(wanted)
    return _finish(content, lambda storage: loaded[storage.key], size)


class _Bounded:
    """The part of a file that pickles may fill."""

    def __init__(self, file: io.BufferedReader) -> None:
        self.file, self.read_so_far = file, 0

    def read(self, count: int) -> bytes:
        within("pickle_bytes", self.read_so_far + count, f"its pickles have {self.read_so_far + count} bytes")
        return self._counted(self.file.read(count))

    def readline(self) -> bytes:
        return self._counted(self.file.readline(LONGEST_NAME))

    def _counted(self, data: bytes) -> bytes:
        self.read_so_far += len(data)
        return data

    def tell(self) -> int:
        return self.file.tell()


def _finish(content: Any, load: Callable[[_Storage], bytes], size: int) -> Any:
    """Write `content` out as a tree, with a tensor for every tensor view of a file of `size` bytes."""
    storages: dict[_Storage, Tensor] = {}
    most = budget = limit("values")  # shared references could make a tree that is exponentially larger than the file
    copied = 0  # bytes of all views: those that share a storage will not share memory

    def tensor(view: _TensorView) -> Tensor:
        nonlocal copied
        copied += math.prod(view.shape) * view.storage.dtype.itemsize
        within("copies", (copied - SLACK) / size, f"its tensors share storages: {copied} bytes for {size} of the file")
        if view.storage not in storages:
            storages[view.storage] = _storage_tensor(view.storage, load(view.storage))
        return storages[view.storage].as_strided(view.shape, view.stride, view.offset)

    def convert(value: Any, depth: int) -> Any:
        nonlocal budget
        budget -= 1
        if budget < 0 or depth > MAX_DEPTH:
            raise _Refused(f"it holds more than {most} values, or nests them more than {MAX_DEPTH} deep")
        if isinstance(value, _TensorView):
            return tensor(value)
        if type(value) is dict:
            return {key: convert(item, depth + 1) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(convert(item, depth + 1) for item in value)
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise _Refused(f"it stores {value.name if isinstance(value, _Global) else 'a bare storage'} as a value")

    return convert(content, 0)


def _storage_tensor(storage: _Storage, data: bytes) -> Tensor:
    if len(data) != storage.numel * storage.dtype.itemsize:
        raise _Broken(f"storage {storage.key!r} has {len(data)} bytes, expected {storage.numel} x {storage.dtype}")
    if not data:
        return torch.empty(0, dtype=storage.dtype)
    return torch.frombuffer(bytearray(data), dtype=storage.dtype)


# --- the machine --------------------------------------------------------------------------------------------------

_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_LITERALS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Machine:
    """Runs one pickle from the present position of `file`."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, _Storage] = {}

    def run(self) -> Any:
        most = limit("pickle_instructions")
        try:
            for count, (opcode, argument, _) in enumerate(pickletools.genops(self.file)):
                if opcode.name == "STOP":
                    return self.stack.pop()
                if count == most:
                    raise _Refused(f"its pickle has more than {most} instructions")
                self._step(opcode.name, argument)
        except InputError:
            raise
        except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise _Broken(f"its pickle is damaged ({error})") from error
        raise _Broken("its pickle does not end")

    def _step(self, name: str, argument: Any) -> None:
        push, pop = self.stack.append, self.stack.pop
        if name in ("PROTO", "FRAME"):
            return
        if name in _CONSTANTS:
            push(_CONSTANTS[name])
        elif name in _EMPTY:
            push(_EMPTY[name]())
        elif name in _LITERALS:
            push(argument)
        elif name == "MARK":
            push(_MARK)
        elif name == "TUPLE":
            push(tuple(self._since_mark()))
        elif name in _TUPLES:
            items = [pop() for _ in range(_TUPLES[name])]
            push(tuple(reversed(items)))
        elif name in ("APPEND", "APPENDS"):
            items = [pop()] if name == "APPEND" else self._since_mark()
            self._top(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = list(reversed([pop(), pop()])) if name == "SETITEM" else self._since_mark()
            if not all(type(key) in (str, int) for key in items[::2]):
                raise _Refused("its pickle has a dict key that is neither text nor a whole number")
            self._top(dict).update(zip(items[::2], items[1::2], strict=True))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            push(self.memo[argument])
        elif name == "GLOBAL":
            push(_allowed(*argument.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            attribute, module = pop(), pop()
            push(_allowed(module, attribute))
        elif name == "BINPERSID":
            push(self._storage(pop()))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, called = pop(), pop()
            push(_made(called, arguments))
        elif name == "BUILD":
            # Attributes of a dict: EasyDict repeats its items there, a state dict keeps `_metadata`. Not needed.
            pop()
            self._top(dict)
        else:
            raise _Refused(f"its pickle uses the instruction {name}, which released files do not")

    def _since_mark(self) -> list[Any]:
        start = len(self.stack) - 1
        while self.stack[start] is not _MARK:
            start -= 1
            if start < 0:
                raise _Broken("its pickle misses a mark")
        items = self.stack[start + 1 :]
        del self.stack[start:]
        return items

    def _top(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise _Refused(f"its pickle changes something that is not a {kind.__name__}")
        return self.stack[-1]

    def _storage(self, description: Any) -> _Storage:
        """('storage', type, key, device, number of elements[, view]): the device is ignored, all goes to the CPU."""
        if type(description) is not tuple or len(description) not in (5, 6) or description[0] != "storage":
            raise _Refused("its pickle refers to something outside that is not a storage")
        _, kind, key, _, numel, *view = description
        if not isinstance(kind, _Global) or kind.name not in DTYPES or not isinstance(key, str) or not _count(numel):
            raise _Refused("its pickle describes a storage without a known type, a key and a size")
        if view not in ([], [None]):
            raise _Refused("it stores a tensor as a view of another storage")
        storage = _Storage(key, DTYPES[kind.name], numel)
        if self.storages.setdefault(key, storage) != storage:
            raise _Refused(f"it describes storage {key!r} in two ways")
        return storage


def _allowed(module: Any, attribute: Any) -> _Global:
    if not isinstance(module, str) or not isinstance(attribute, str):
        raise _Refused("its pickle names something by values that are not text")
    name = f"{module}.{attribute}"
    if name not in ALLOWED:
        raise _Refused(f"its pickle names {name[:80]!r}, which released models do not need; nothing was run")
    return _Global(name)


def _made(called: Any, arguments: Any) -> Any:
    """What calling an allowed name gives: an empty dict or a tensor view."""
    if not isinstance(called, _Global) or not isinstance(arguments, tuple):
        raise _Refused("its pickle calls a value")
    if called.name in DICTS and not arguments:
        return {}
    if called.name == REBUILD and len(arguments) in (6, 7):
        return _tensor_view(*arguments[:4])
    raise _Refused(f"its pickle calls {called.name} with {len(arguments)} arguments")


def _tensor_view(storage: Any, offset: Any, shape: Any, stride: Any) -> _TensorView:
    layout = isinstance(shape, tuple) and isinstance(stride, tuple) and len(shape) == len(stride) <= MAX_DIMS
    if not isinstance(storage, _Storage) or not layout or not all(map(_count, (offset, *shape, *stride))):
        raise _Refused("its pickle rebuilds a tensor from something that is not a storage and its layout")
    size = math.prod(shape)
    span = sum((n - 1) * step for n, step in zip(shape, stride, strict=True)) + 1 if size else 0
    if size > storage.numel or offset + span > storage.numel:
        raise _Refused(f"a tensor of shape {shape} does not fit its storage of {storage.numel} elements")
    return _TensorView(storage, offset, shape, stride)


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**40


# --- the families -------------------------------------------------------------------------------------------------


def _released(content: Any) -> Released:
    if not isinstance(content, dict):
        raise InputError(f"expected a dict of settings and weights, found {type(content).__name__}")
    known = {family: family.released for family in families() if family.released is not None}
    for family, form in known.items():
        if form.keys <= content.keys():
            parts = {part: _mapping(content, key) for part, key in form.params.items()}
            params = parts.pop("", parts)
            return Released(family.name, _mapping(content, form.config), params, _weights(form.weights, content))
    wanted = "; ".join(f"{family.title}: {', '.join(sorted(form.keys))}" for family, form in known.items())
    raise InputError(f"not a file of a known family ({wanted}); it has {', '.join(map(repr, content))[:200]}")


def _mapping(content: Mapping[Any, Any], key: str) -> dict[str, Any]:
    value = content.get(key)
    if not isinstance(value, dict):
        raise InputError(f"{key!r} must be a dict, found {type(value).__name__}")
    return value


def _weights(parts: Mapping[str, tuple[str, str]], content: Mapping[str, Any]) -> dict[str, dict[str, Tensor]]:
    """`parts` maps the prefix of a sub-network to the keys of its state dict and of its EMA."""
    raw: dict[str, Tensor] = {}
    ema: dict[str, Tensor] = {}
    for prefix, (state_key, ema_key) in parts.items():
        state = {str(name).removeprefix("module."): value for name, value in _mapping(content, state_key).items()}
        _check_tensors(state, state_key)
        raw |= {prefix + name: value for name, value in state.items()}
        if content.get(ema_key) is not None:
            averaged = _averaged(state, _mapping(content, ema_key).get("shadow_params"), ema_key)
            ema |= {prefix + name: value for name, value in averaged.items()}
    return {"raw": raw, "ema": ema} if len(ema) == len(raw) else {"raw": raw}


def _averaged(state: dict[str, Tensor], shadow: Any, key: str) -> dict[str, Tensor]:
    """EMA weights come as a list in parameter order, which is the order of the state dict (there are no buffers)."""
    if not isinstance(shadow, list) or len(shadow) != len(state):
        count = len(shadow) if isinstance(shadow, list) else "no"
        raise InputError(f"{key!r} has {count} shadow_params for {len(state)} weights")
    averaged = dict(zip(state, shadow, strict=True))
    _check_tensors(averaged, key)
    for name, value in averaged.items():
        if value.shape != state[name].shape:
            raise InputError(
                f"{key!r} has shape {tuple(value.shape)} for {name!r}, expected {tuple(state[name].shape)}"
            )
    return averaged


def _check_tensors(tensors: Mapping[str, Any], key: str) -> None:
    for name, value in tensors.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise InputError(f"{key!r} must hold floating-point tensors, found something else at {name!r}")
        if not value.isfinite().all():
            raise InputError(f"{key!r} has weights that are not finite at {name!r}; use another checkpoint")
