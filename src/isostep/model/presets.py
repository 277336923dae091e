"""Presets: what a released file does not say about itself (decoder, node counts, the paper's sampler constants).

One TOML file per (family, dataset) in `isostep/presets/sampling`, and one more for a file that is sampled differently.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from isostep.base.errors import InputError
from isostep.settings.schema import SamplerPreset, one_line


class Preset(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    family: str
    dataset: str
    atoms: tuple[str, ...] | None = None
    node_counts: tuple[tuple[int, int], ...]
    sampler: SamplerPreset = SamplerPreset()


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dict."""
    try:
        if path.stat().st_size > 4 * 2**20:
            raise InputError(f"{path} is too large for a settings file")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the path") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from error


def read_preset(path: str | Path) -> Preset:
    """A preset from its file."""
    try:
        return Preset.model_validate(read_toml(Path(path)))
    except ValidationError as error:
        raise InputError(one_line(error, str(path))) from error


def preset_names() -> list[str]:
    folder = resources.files("isostep") / "presets" / "sampling"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def find_preset(name: str) -> Preset:
    """A packaged preset, such as "gdss-qm9"."""
    if name not in preset_names():
        raise InputError(
            f"no preset {name!r}; there are: {', '.join(preset_names())}; give one, or your own file, with --preset"
        )
    with resources.as_file(resources.files("isostep") / "presets" / "sampling" / f"{name}.toml") as path:
        return read_preset(path)
