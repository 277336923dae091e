"""What earlier evaluations of a run have found, in its folder: a second one is free.

    measured/values.json             every metric's value, by the hash of all that decides it, the code included
    measured/chemnet-<key>.npz       ChemNet's activations, and Morgan fingerprints, by the hash of the SMILES

Only a run's own folder is written to, and nothing is said where it cannot be.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from isostep.base.errors import InputError
from isostep.base.files import read_json, write_json
from isostep.base.versions import code_digest, versions
from isostep.metric.base import Value

FOLDER = "measured"


def home_of(source: Any) -> Path | None:
    """Where an evaluation of `source` may keep something: the folder of a complete run."""
    if not isinstance(source, str | Path):
        return None
    folder = Path(source) if Path(source).is_dir() else Path(source).parent
    return folder / FOLDER if (folder / "run.json").is_file() else None


def digest(lines: Iterable[str]) -> str:
    found = hashlib.sha256()
    for line in lines:
        found.update(line.encode() + b"\n")
    return found.hexdigest()


@dataclass
class Kept:
    """Values of a run's earlier evaluations; `common` is what decides all of them."""

    home: Path | None
    common: tuple[Any, ...] = ()
    values: dict[str, Any] = field(default_factory=dict[str, Any])

    @staticmethod
    def at(home: Path | None, *common: Any) -> Kept:
        values: dict[str, Any] = {}
        with contextlib.suppress(InputError):
            stored = {} if home is None else read_json(home / "values.json")
            values = stored if isinstance(stored, dict) else {}
        return Kept(home, (*common, versions(), code_digest() if home is not None else ""), values)

    def get(self, metric: str) -> Value | None:
        with contextlib.suppress(TypeError):
            return Value(**self.values[self._key(metric)]) if self._key(metric) in self.values else None
        return None

    def put(self, metric: str, value: Value) -> None:
        self.values[self._key(metric)] = asdict(value)

    def save(self) -> None:
        if self.home is not None:
            with contextlib.suppress(InputError, ValueError):  # not writable, or a value that JSON does not hold
                write_json(self.home / "values.json", self.values)

    def _key(self, metric: str) -> str:
        return digest([json.dumps([metric, *self.common], sort_keys=True, default=str)])[:20]
