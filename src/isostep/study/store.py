"""A study folder. Everything is named by the hash of what decides it, so nothing finished is computed again.

study.json            the plan, each arm's settings, and the names of its cells
runs/<key>/           one arm and seed: graphs.jsonl or molecules.smi, path.json (recorded seeds), run.json (last)
cells/<key>.json      its metrics against one reference
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isostep.base.errors import InputError
from isostep.base.files import read_json, write_json
from isostep.model.model import Model

STUDY, FORMAT = "study.json", 1


def key_of(record: Any) -> str:
    """Hash of a JSON record."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def fingerprint(model: Model) -> str:
    """Hash of a model's card and weights, wherever they came from; its preferred settings do not decide a cell."""
    ignored = {"name", "provenance", "sha256", "sampler"}
    digest = hashlib.sha256(model.info.model_dump_json(exclude=ignored).encode())
    for name, value in sorted(model.network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Store:
    folder: Path

    def run(self, key: str) -> Path:
        return self.folder / "runs" / key

    def cell(self, key: str) -> Path:
        return self.folder / "cells" / f"{key}.json"

    def read_cell(self, key: str) -> dict[str, Any] | None:
        """A finished cell, or None."""
        path = self.cell(key)
        return _checked(path) if path.is_file() else None

    def read_path(self, run: str) -> dict[str, Any] | None:
        """Trace and snapshots of a recorded run, or None."""
        path = self.run(run) / "path.json"
        return _checked(path) if path.is_file() else None

    def write_study(self, record: dict[str, Any]) -> None:
        write_json(self.folder / STUDY, {"format": FORMAT, **record})

    def read_study(self) -> dict[str, Any]:
        path = self.folder / STUDY
        if not path.is_file():
            raise InputError(f"{self.folder} holds no {STUDY}; name a folder that compare, sweep or reproduce wrote")
        return _checked(path)


def _checked(path: Path) -> dict[str, Any]:
    record = read_json(path)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f"{path} is not of format {FORMAT}; delete it, and the study computes it again")
    return record
