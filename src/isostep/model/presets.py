"""Presets: what a released file does not say about itself (decoder, node counts, the paper's sampler constants).

One TOML file per (family, dataset) in `isostep/presets/sampling`, and one more for a file that is sampled differently.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from isostep.base.errors import InputError
from isostep.base.files import read_toml
from isostep.base.schema import Frozen, checked
from isostep.settings.schema import SamplerPreset


class Preset(Frozen):
    family: str
    dataset: str
    atoms: tuple[str, ...] | None = None
    node_counts: tuple[tuple[int, int], ...]
    sampler: SamplerPreset = SamplerPreset()


def read_preset(path: str | Path) -> Preset:
    """A preset from its file."""
    return checked(Preset, read_toml(path), str(path))


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
