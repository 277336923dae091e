"""A reference where there are no data: graphs of the model's own long run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from isostep.item import Item, read_items
from isostep.metric.graph_summary import VERSION
from isostep.metric.reference import fit_reference
from isostep.model.model import Model
from isostep.run.engine import save_result
from isostep.sampling.calibrate import prepare
from isostep.sampling.run import sample
from isostep.settings.resolve import resolve
from isostep.study.cell import is_complete
from isostep.study.plan import Arm
from isostep.study.record import key_of

SELF_SEED, PARTS = 3000, 4


def self_reference(
    folder: Path, model: Model, long_run: Arm, n: int, batch_size: int, seed: int, tell: Callable[[str], None]
) -> Path:
    """PARTS times n graphs of the long run, on seeds of their own; a part that is there is not made again."""
    settings = prepare(model, resolve(model.info.sampler, clock="batch", **long_run.chosen))
    key = key_of([model.fingerprint(), settings.model_dump(mode="json"), n, batch_size, seed])
    path = folder / "self" / f"{key}-v{VERSION}.npz"
    if path.is_file():
        return path
    items: list[Item] = []
    for part in range(PARTS):
        place = folder / "self" / f"{key}-{part}"
        if not is_complete(place):
            tell(f"a reference from the long run, part {part + 1} of {PARTS}")
            result = sample(
                model, n, settings=settings, seed=seed + SELF_SEED + part, batch_size=batch_size, noise="path"
            )
            save_result(result, place, model.info.name)
        items += [item for _, item in read_items(place, model.info.kind)]
    fit_reference(items).save(path)
    return path
