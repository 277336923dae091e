"""Our own format: a folder with `model.json` (the card) and `model.safetensors` (the weights, tied by sha256)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from isostep.base.errors import InputError, located
from isostep.base.files import PACKAGE, read_json, replacing, sha256, write_json
from isostep.model.card import ModelInfo
from isostep.model.model import Model
from isostep.settings.schema import AutoChoice

CARD, WEIGHTS = "model.json", "model.safetensors"


def save_model(folder: str | Path, info: ModelInfo, weights: Mapping[str, Tensor]) -> ModelInfo:
    """Write both files, the card last: a folder with a card is complete. Returns the card with its checksum."""
    from safetensors.torch import save_file

    folder = Path(folder)
    with replacing(folder / WEIGHTS) as temporary:
        save_file({name: value.contiguous() for name, value in weights.items()}, str(temporary))
        (folder / CARD).unlink(missing_ok=True)  # of a model that is being replaced
    info = info.model_copy(update={"sha256": sha256(folder / WEIGHTS)})
    write_json(folder / CARD, json.loads(info.model_dump_json()))
    return info


def store_choices(model: Model, choices: Sequence[AutoChoice]) -> None:
    """Put measured choices of `auto` into the model's card, in the place of those for the same number of calls.

    Without choices: only see whether that can be done."""
    if model.home is None:
        raise InputError(
            f"{model.info.name} has no folder to store into; `isostep import` makes one of a released file"
        )
    if PACKAGE in model.home.resolve().parents:
        raise InputError(f"{model.info.name} belongs to the package; use the preset instead: sample --preset FILE")
    add_choices(model.home, choices)


def add_choices(folder: Path, choices: Sequence[AutoChoice]) -> None:
    info = read_card(folder)
    calls = {choice.calls for choice in choices}
    kept = [choice for choice in info.sampler.auto if choice.calls not in calls]
    auto = tuple(sorted([*kept, *choices], key=lambda choice: choice.calls))
    sampler = info.sampler.model_copy(update={"auto": auto})
    write_json(folder / CARD, json.loads(info.model_copy(update={"sampler": sampler}).model_dump_json()))


def read_card(folder: str | Path) -> ModelInfo:
    path = Path(folder) / CARD
    return ModelInfo.parse(read_json(path), str(path))


def load_folder(folder: str | Path) -> Model:
    """Read a model folder; weights that do not match the card's checksum are refused."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    if not (folder / CARD).is_file():
        raise InputError(f"{folder} is not a model folder: it has no {CARD}; `isostep import` makes one")
    info = read_card(folder)
    path = folder / WEIGHTS
    try:
        found = sha256(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; the model folder is incomplete") from error
    if info.sha256 != found:
        raise InputError(f"{path} has sha256 {found[:12]}..., its card says {str(info.sha256)[:12]}...; copy it again")
    try:
        weights = load_file(str(path))
    except (SafetensorError, ValueError, OSError) as error:
        cause = str(error).split("\n")[0]
        raise InputError(f"{path} is not a safetensors file: {cause}; copy it again") from error
    with located(str(folder)):
        return replace(Model.of(info, weights), home=folder)
