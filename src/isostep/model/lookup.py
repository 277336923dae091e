"""Which model a name means: an embedded model, a folder of ours, a released `.pth` file, or a fetched one's name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from isostep.base.errors import InputError, require
from isostep.base.files import PACKAGE
from isostep.base.progress import log
from isostep.model.analytic import NAME as ANALYTIC
from isostep.model.analytic import analytic_model
from isostep.model.folder import CARD, WEIGHTS, load_folder, read_card
from isostep.model.model import Model
from isostep.model.own import from_reference, is_reference
from isostep.model.presets import TunedPreset, find_preset, find_tuned
from isostep.model.released.convert import load_released
from isostep.model.released.known import fetched, known_table, models_folder

HUB = "hf:"
EMBEDDED = PACKAGE / "embedded"


def embedded_names() -> list[str]:
    """Trained models that ship with the package."""
    return sorted(card.parent.name for card in EMBEDDED.glob(f"*/{CARD}"))


def load_model(
    model: str | Path | Model,
    weights: str | None = None,
    device: str | None = None,
    preset: str | Path | None = None,
) -> Model:
    """Load a model: an embedded name, a model folder, a released `.pth` file, the name of a fetched one, or
    "package.module:function" for a function of yours that returns a model (which runs your code); "hf:OWNER/NAME" is a
    model folder on the Hugging Face Hub.

    `weights` ("raw" or "ema") chooses among those a released file holds; a folder holds one set. `preset`: for any
    model, a file of `isostep tune`; for released files, a packaged preset's name or a TOML file. `device` is the CPU,
    or where a loaded model already is.

    Example:
        >>> import isostep
        >>> model = isostep.load_model("grum-qm9-small")
        >>> model.info.kind, model.info.dataset
        ('molecule', 'qm9')
    """
    if not isinstance(model, str | Path | Model):
        raise InputError(f"cannot load a {type(model).__name__}; make a model of it with isostep.wrap(...)")
    tuned = find_tuned(preset)
    try:
        loaded = _load(str(model) if isinstance(model, Path) else model, weights, None if tuned else preset)
    except OSError as error:  # a name that no path can have
        raise InputError(f"no model {str(model)[:100]!r}: {error.strerror}; `isostep models` lists all") from error
    if weights is not None and loaded.info.weights != weights:
        name = loaded.info.name if isinstance(model, Model) else model
        raise InputError(f"{name} holds {loaded.info.weights} weights, not {weights!r}; import the released file again")
    if tuned is not None:
        loaded = with_tuned(loaded, tuned)
    return loaded if device is None else loaded.to(check_device(device))


def _from_hub(name: str) -> Path:
    """The folder of a model repository on the Hugging Face Hub: a card and weights, nothing that could run."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w.-]+)?", name):
        raise InputError(f"a model of the Hub is hf:OWNER/NAME or hf:OWNER/NAME@REVISION, got {HUB + name!r}")
    hub = require("huggingface_hub", "hub", "a model of the Hugging Face Hub")
    repository, _, revision = name.partition("@")
    try:
        return Path(hub.snapshot_download(repository, revision=revision or None, allow_patterns=[CARD, WEIGHTS]))
    except Exception as error:  # the client has many
        cause = str(error).split("\n")[0]
        raise InputError(f"cannot get {HUB + name}: {cause}; check the name and the network") from error


def with_tuned(model: Model, tuned: TunedPreset) -> Model:
    """The model with these choices of `auto` in the place of its own."""
    if tuned.fingerprint != model.fingerprint():
        log.warning(
            "this preset was tuned on another model (%s); on %s it is not measured", tuned.model, model.info.name
        )
    return model.with_sampler(model.info.sampler.model_copy(update={"auto": tuned.auto}))


def _load(model: str | Model, weights: str | None, preset: str | Path | None) -> Model:
    if isinstance(model, Model):
        _refuse(preset, model.info.name)
        return model
    if model.startswith(HUB):
        _refuse(preset, model)
        return load_folder(_from_hub(model.removeprefix(HUB)))
    if is_reference(model) and not Path(model).exists():
        _refuse(preset, model)
        return from_reference(model)
    folder = EMBEDDED / model if model in embedded_names() else Path(model)
    if folder.is_dir() or model == ANALYTIC:
        _refuse(preset, model)
        return load_folder(folder) if folder.is_dir() else analytic_model()
    if Path(model).is_file():
        return load_released(model, weights, preset)
    known = known_table()[1].get(model)
    if known is not None:
        if there := fetched(known):
            return load_released(there, weights, preset)
        raise InputError(f"{model} is not here yet: run `isostep fetch {model}` first, or name its .pth file")
    names = [*embedded_names(), ANALYTIC, *known_table()[1]]
    close = difflib.get_close_matches(model, names, n=1)
    if close:
        raise InputError(f"no model {model!r}; did you mean {close[0]}? `isostep models` lists all")
    embedded, names = ", ".join([*embedded_names(), ANALYTIC]), ", ".join(known_table()[1])
    raise InputError(
        f"no model {model[:100]!r}: not an embedded name ({embedded}), a model folder, a .pth file, "
        f"the name of a fetched one ({names}), or package.module:function"
    )


def _refuse(preset: str | Path | None, model: str) -> None:
    if preset is not None:
        raise InputError(
            f"--preset takes a file of `isostep tune` here; others are for released files, and {model} has settings "
            "of its own"
        )


@dataclass(frozen=True)
class Listed:
    """One line of `isostep models`. `problem` says why a model cannot be used."""

    name: str
    where: Literal["embedded", "imported", "known"]
    dataset: str = ""
    family: str = ""
    weights: str = ""
    sha256: str | None = None
    path: str | None = None  # None: not here
    problem: str | None = None


def list_models(folders: Iterable[Path] = ()) -> list[Listed]:
    """Embedded models, model folders inside `folders` and inside the cache, and known released files."""
    rows = [_listed(EMBEDDED / name, "embedded") for name in embedded_names()]
    rows.append(Listed(ANALYTIC, "embedded", ANALYTIC, path="computed, no file"))
    found = {path.parent.resolve(): path.parent for place in (*folders, models_folder()) for path in _cards(place)}
    rows += [_listed(folder, "imported") for folder in found.values()]
    for known in known_table()[1].values():
        preset, there = find_preset(known.preset), fetched(known)
        path = str(there) if there else None
        rows.append(
            Listed(known.name, "known", preset.dataset, preset.family, preset.sampler.weights, known.sha256, path)
        )
    return rows


def _cards(place: Path) -> list[Path]:
    """Cards of the model folders in `place`, and of `place` itself."""
    return sorted(path for path in (*place.glob(CARD), *place.glob(f"*/{CARD}")) if path.is_file())


def _listed(folder: Path, where: Literal["embedded", "imported"]) -> Listed:
    """A bad card is worth a line of the list, not its end."""
    try:
        info = read_card(folder)
    except InputError as error:
        return Listed(folder.name, where, path=str(folder), problem=str(error))
    name = folder.name if where == "embedded" else info.name
    return Listed(name, where, info.dataset, info.family, info.weights, info.sha256, str(folder))


def check_device(device: str | torch.device) -> torch.device:
    """A usable device, or an error before any work."""
    kind = str(device).split(":")[0]
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in available:
        raise InputError(f"unknown device {device!r}; choose cpu, cuda or mps")
    if not available[kind]:
        raise InputError(f"device {device!r} is not available here; use --device cpu")
    try:
        return torch.empty(0, device=device).device
    except RuntimeError as error:
        raise InputError(f"unknown device {device!r}; choose cpu, cuda or mps, such as cuda:0") from error
