"""From a released file to a model: the file's settings joined with the preset of its (family, dataset)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isostep.base.errors import InputError, located
from isostep.base.files import sha256
from isostep.family import find_family
from isostep.model.card import ModelInfo
from isostep.model.folder import CARD, WEIGHTS, save_model
from isostep.model.model import Model
from isostep.model.presets import Preset, find_preset, preset_names, read_preset
from isostep.model.released.known import known_file
from isostep.model.released.pickle import Released, read_released


def load_released(path: str | Path, weights: str | None = None, preset: str | Path | None = None) -> Model:
    """A released `.pth` as a model. `weights` is "raw" or "ema"; by default what the preset says."""
    released = read_released(path)
    digest = sha256(path)
    with located(str(path)):
        chosen = _preset(released, digest) if preset is None else _given(preset)
        info = card(released, chosen, weights, Path(path).stem, digest)
        return Model.of(info, released.weights[info.weights])


def import_released(
    path: str | Path,
    out: str | Path,
    weights: str | None = None,
    preset: str | Path | None = None,
    half: bool = False,
    force: bool = False,
) -> ModelInfo:
    """Write a released file as a model folder; `half` stores its weights in 16 bits. A model that is there is replaced
    only by `force`."""
    if not force and any((Path(out) / name).exists() for name in (CARD, WEIGHTS)):
        raise InputError(f"{out} holds a model already; choose another folder, or --force to replace it")
    model = load_released(path, weights, preset)
    tensors = model.network.state_dict()
    if half:
        tensors = {name: value.half() for name, value in tensors.items()}
        if broken := [name for name, value in tensors.items() if not bool(value.isfinite().all())]:
            raise InputError(f"{path}: {broken[0]!r} has weights too large for 16 bits; import without --half")
    return save_model(out, model.info, tensors)


def _preset(released: Released, digest: str) -> Preset:
    """The preset of a known file, whatever its name is now; else the one of the (family, dataset) pair."""
    known = known_file(digest)
    return find_preset(known.preset if known else f"{released.family}-{_dataset(released)}")


def _given(preset: str | Path) -> Preset:
    """A packaged preset by name, or a file."""
    return find_preset(str(preset)) if str(preset) in preset_names() else read_preset(preset)


def _dataset(released: Released) -> str:
    """`ego_small` in a released file is `ego-small` here."""
    data = released.config.get("data")
    name = data.get("data") if isinstance(data, dict) else None
    if not isinstance(name, str):
        raise InputError("the file does not name its dataset; give the settings with --preset FILE.toml")
    return name.lower().replace("_", "-")


def card(released: Released, preset: Preset, weights: str | None, name: str, digest: str) -> ModelInfo:
    """The card of a released model; `sha256` is that of the released file."""
    if preset.family != released.family:
        raise InputError(f"the preset is for {preset.family}, the file is a {released.family} model")
    choice = weights or preset.sampler.weights
    if choice not in released.weights:
        raise InputError(f"no {choice!r} weights in this file; choose --weights {' or '.join(released.weights)}")
    label = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
    record = {
        "name": label.lstrip("._-")[:100] or "model",
        "family": released.family,
        "dataset": preset.dataset,
        **_settings(released),
        "atoms": preset.atoms,
        "sampler": preset.sampler.model_dump(),
        "weights": choice,
        "sha256": digest,
        "provenance": {
            "source": f"released {find_family(released.family).title} file {label}, sha256 {digest}",
            "licence": "none stated by its authors; ask them before passing it on",
        },
    }
    record["node_counts"] = _fitting(preset.node_counts, record["max_nodes"])
    return ModelInfo.parse(record, "settings of the released file")


def _settings(released: Released) -> dict[str, Any]:
    """What the file itself says, under our names."""
    config, params, form = released.config, released.params, find_family(released.family).released
    assert form is not None
    try:
        data, processes = config["data"], config[form.processes]
        return {
            "network": json.loads(json.dumps(params, allow_nan=False)),
            "process": {name: form.process(processes[theirs]) for name, theirs in form.components.items()},
            "max_nodes": int(data["max_node_num"]),
            "features": data["max_feat_num"],
            "scale": params.get("scale", 1.0),
        }
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise InputError(f"settings of the released file are incomplete or malformed: {error}") from error


def _fitting(counts: tuple[tuple[int, int], ...], most: int) -> tuple[tuple[int, int], ...]:
    """Node counts that a model of `most` node slots can make; a model smaller than all of them fills its slots."""
    return tuple(pair for pair in counts if pair[0] <= most) or ((most, 1),)
