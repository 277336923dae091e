"""What a run holds does not grow with its steps."""

from __future__ import annotations

import gc

import pytest
import torch

from isostep.control import Dvs
from isostep.loop import integrate
from isostep.model.analytic import analytic_model
from isostep.noise import BrownianTree, PhiloxNoise
from isostep.solver import Euler


def held() -> tuple[int, int]:
    """Number and bytes of all storages of live tensors."""
    gc.collect()
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in gc.get_objects() if is_tensor(x)}
    return len(storages), sum(storages.values())


def is_tensor(x: object) -> bool:
    return issubclass(type(x), torch.Tensor)  # not isinstance: it would wake lazy objects


@pytest.mark.parametrize("noise", [PhiloxNoise(1), BrownianTree(1)])
def test_tensors_held_at_step_30_and_at_step_300(noise):
    model, index, step, seen = analytic_model(), torch.arange(4), 0, {}
    controller = Dvs(dt_base=3e-3, dt_max=3e-3)

    def look(_) -> None:
        nonlocal step
        step += 1
        if step in (30, 300):
            seen[step] = held()

    integrate(model, model.prior(index, 0), controller, Euler(), noise, index, max_steps=301, hooks=(look,))
    assert seen[300] == seen[30]
