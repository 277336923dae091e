"""Muon with equal shapes together: torch's updates."""

from __future__ import annotations

import copy

import torch
from torch import nn

from isostep.training.muon import Muon

SHAPES = [(12, 8), (8, 12), (12, 12), (12, 12), (8, 8), (8, 40), (30, 1)]


def matrices() -> list[nn.Parameter]:
    torch.manual_seed(1)
    return [nn.Parameter(torch.randn(shape)) for shape in SHAPES]


def draw_gradients(ours: list[nn.Parameter], theirs: list[nn.Parameter]) -> None:
    """Equal ones; the last matrix but one gets none, as in a layer whose result nobody reads."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        a.grad = None if i == len(ours) - 2 else torch.randn_like(a)
        b.grad = None if a.grad is None else a.grad.clone()


def test_steps_are_those_of_torch_also_after_taking_over_its_state():
    """Apart by a few roundings of bfloat16, 2^-8 each, at most."""
    ours, theirs = matrices(), matrices()
    expected = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    found = Muon(ours, lr=0.02, weight_decay=0.1)
    for step in range(4):
        if step == 2:
            found = Muon(ours, lr=0.5, weight_decay=0.0)
            found.load_state_dict(copy.deepcopy(expected.state_dict()))  # or they would share its tensors
        before = [p.detach().clone() for p in theirs]
        draw_gradients(ours, theirs)
        expected.step()
        found.step()
        for i, (a, b, start) in enumerate(zip(ours, theirs, before, strict=True)):
            moved = float((b - start).detach().norm())
            assert (moved > 0) == (i != len(SHAPES) - 2)
            assert float((a - b).detach().norm()) <= 2**-6 * moved
    assert found.state_dict()["state"].keys() == expected.state_dict()["state"].keys()
    assert found.state_dict()["param_groups"] == expected.state_dict()["param_groups"]
