"""Which model a name means: an embedded model, a folder of ours, or a released `.pth` file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from isostep.errors import InputError
from isostep.model.convert import load_released
from isostep.model.folder import CARD, load_folder
from isostep.model.model import Model


def embedded_names() -> list[str]:
    """Models that ship with the package."""
    root = resources.files("isostep") / "embedded"
    if not root.is_dir():
        return []
    return sorted(item.name for item in root.iterdir() if (item / CARD).is_file())


def load_model(
    model: str | Path | Model, weights: str | None = None, device: str = "cpu", preset: str | Path | None = None
) -> Model:
    """Load a model: an embedded name, a model folder, or a released `.pth` file.

    `weights` ("raw" or "ema") chooses among those a released file holds; a folder holds one set.
    """
    if isinstance(model, Model):
        return model.to(check_device(device))
    loaded = _load(str(model), weights, preset)
    if weights is not None and loaded.info.weights != weights:
        raise InputError(f"{model} holds {loaded.info.weights} weights, not {weights}; import the released file again")
    return loaded.to(check_device(device))


def _load(model: str, weights: str | None, preset: str | Path | None) -> Model:
    if model in embedded_names():
        with resources.as_file(resources.files("isostep") / "embedded" / model) as folder:
            return load_folder(folder)
    path = Path(model)
    if path.is_dir():
        return load_folder(path)
    if path.is_file():
        return load_released(path, weights, preset)
    names = ", ".join(embedded_names()) or "none"
    raise InputError(f"no model {model!r}: not an embedded name ({names}), a model folder, or a .pth file")


def check_device(device: str) -> str:
    """A usable device, or an error before any work."""
    import torch

    kind = device.split(":")[0]
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in available:
        raise InputError(f"unknown device {device!r}; choose cpu, cuda or mps")
    if not available[kind]:
        raise InputError(f"device {device!r} is not available here; use --device cpu")
    return device
