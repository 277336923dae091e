"""Presets: what a released file does not say about itself (decoder, node counts, the paper's sampler constants).

One TOML file per (family, dataset) in `isostep/presets/sampling`, and one more for a file that is sampled differently.
A tuned preset (`isostep tune`) says for one model, of any kind, what `auto` stands for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from isostep.base.errors import InputError
from isostep.base.files import packaged, read_toml
from isostep.base.schema import Frozen, checked
from isostep.settings.schema import AutoChoice, SamplerPreset


class Preset(Frozen):
    family: str
    dataset: str
    atoms: tuple[str, ...] | None = None
    node_counts: tuple[tuple[int, int], ...]
    sampler: SamplerPreset = SamplerPreset()


class TunedPreset(Frozen):
    """Measured choices of `auto` for the model of that fingerprint."""

    format: Literal[1] = 1
    model: str
    fingerprint: str
    auto: tuple[AutoChoice, ...] = Field(min_length=1)

    def toml(self) -> str:
        head = f"format = 1\nmodel = {json.dumps(self.model)}\nfingerprint = {json.dumps(self.fingerprint)}\n"
        tables = (choice.model_dump(mode="json", exclude_none=True) for choice in self.auto)
        return head + "".join(
            "\n[[auto]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items() if value != {})
            for table in tables
        )


def _toml(value: Any) -> str:
    """Numbers, text, lists and inline tables; JSON writes the first three as TOML reads them."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(str(key))} = {_toml(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def find_tuned(preset: str | Path | None) -> TunedPreset | None:
    """The tuned preset in that file; None where it is a preset of another kind."""
    if preset is None or str(preset) in preset_names():
        return None
    record = read_toml(preset)
    return checked(TunedPreset, record, str(preset)) if "auto" in record else None


def read_preset(path: str | Path) -> Preset:
    """A preset from its file."""
    return checked(Preset, read_toml(path), str(path))


def preset_names() -> list[str]:
    return list(packaged("sampling"))


def find_preset(name: str) -> Preset:
    """A packaged preset, such as "gdss-qm9"."""
    if name not in preset_names():
        raise InputError(
            f"no preset {name!r}; there are: {', '.join(preset_names())}; give one, or your own file, with --preset"
        )
    return read_preset(packaged("sampling")[name])
