"""From a released file to a model: the file's settings joined with the preset of its (family, dataset)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isostep.errors import InputError
from isostep.model.info import ModelInfo
from isostep.model.model import Model
from isostep.model.presets import Preset, find_preset, read_preset
from isostep.model.released import Released, build_network, read_released


def load_released(path: str | Path, weights: str | None = None, preset: str | Path | None = None) -> Model:
    """A released `.pth` as a model. `weights` is "raw" or "ema"; by default what the preset says."""
    released = read_released(path)
    try:
        chosen = read_preset(preset) if preset else find_preset(released.family, dataset_name(released.config))
        info = card(released, chosen, weights, Path(path).stem)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: settings of the released file are incomplete: {error}") from error
    return Model(info, build_network(released, info.weights))


def dataset_name(config: dict[str, Any]) -> str:
    """`ego_small` in a released file is `ego-small` here."""
    return str(config["data"]["data"]).lower().replace("_", "-")


def card(released: Released, preset: Preset, weights: str | None, name: str) -> ModelInfo:
    config, params = released.config, released.params
    gdss = released.family == "gdss"
    data = config["data"]
    processes = config["sde"] if gdss else config["mix"]
    choice = weights or preset.sampler.weights
    if choice not in released.weights:
        raise InputError(f"no {choice!r} weights in this file; it has: {', '.join(released.weights)}")
    record = {
        "name": "".join(c if c.isalnum() or c in "._-" else "-" for c in name),
        "family": released.family,
        "dataset": preset.dataset,
        "network": params,
        "process": {"X": _process(processes["x"]), "A": _process(processes["adj"])},
        "max_nodes": data["max_node_num"],
        "features": data["max_feat_num"],
        "node_counts": _fitting(preset.node_counts, data["max_node_num"]),
        "atoms": preset.atoms,
        "scale": 1.0 if gdss else float(params.get("scale", 1.0)),
        "sampler": preset.sampler.model_dump(),
        "weights": choice,
        "provenance": {
            "source": f"released {'GDSS' if gdss else 'GruM'} file {name}",
            "licence": "none stated by its authors; ask them before passing it on",
        },
    }
    return ModelInfo.parse(record, name)


def _fitting(counts: tuple[tuple[int, int], ...], most: int) -> tuple[tuple[int, int], ...]:
    """Node counts that a model of `most` node slots can make; a model smaller than all of them fills its slots."""
    return tuple(pair for pair in counts if pair[0] <= most) or ((most, 1),)


def _process(settings: dict[str, Any]) -> dict[str, Any]:
    """Released process settings under our names; for VE, `beta_min` and `beta_max` hold the noise levels."""
    kind = settings["type"]
    if kind in ("VP", "subVP"):
        return {"type": kind, "beta_min": float(settings["beta_min"]), "beta_max": float(settings["beta_max"])}
    if kind == "VE":
        return {"type": kind, "sigma_min": float(settings["beta_min"]), "sigma_max": float(settings["beta_max"])}
    if kind in ("OU", "BB"):
        pull = float(settings["drift_coeff"]) if kind == "OU" else 0.0
        sigmas = {"sigma_0": float(settings["sigma_0"]), "sigma_1": float(settings["sigma_1"])}
        return {"type": "bridge", "drift_coeff": pull, **sigmas}
    raise InputError(f"unknown process {kind!r} in a released file; known: VP, subVP, VE, OU, BB")
