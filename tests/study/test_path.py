"""The fast path is the tree, bit by bit, along any walk through time."""

from __future__ import annotations

import torch

from isostep.noise import CORRECTOR, PREDICTOR, BrownianTree, Draw
from isostep.study.path import BrownianPath
from isostep.study.toy import toy_model


def _same(a, b) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def test_equals_the_tree_on_a_walk_with_own_clocks_and_leaving_graphs():
    model, tree, path = toy_model(), BrownianTree(5), BrownianPath(5)
    index = torch.arange(4)
    t = torch.zeros(4, dtype=torch.float64)
    for step in range(12):
        if step == 7:  # graphs leave the batch
            index, t = index[[0, 2]], t[[0, 2]]
        state = model.prior(index, 5)
        ahead = t + 0.01 * (1 + index.double())
        draw = Draw(index, torch.full_like(index, step), t, ahead)
        for stream in (PREDICTOR, CORRECTOR):
            assert _same(tree.normal(state, draw, stream), path.normal(state, draw, stream))
        t = ahead


def test_going_back_in_time_reads_the_same_path():
    model, path = toy_model(), BrownianPath(1)
    index = torch.arange(3)
    state, zero = model.prior(index, 1), torch.zeros(3, dtype=torch.float64)
    draws = [Draw(index, index, zero + a, zero + b) for a, b in ((0.1, 0.3), (0.3, 0.9), (0.1, 0.3))]
    first, _, again = [path.normal(state, draw, PREDICTOR) for draw in draws]
    assert _same(first, again)


def test_two_half_steps_add_up_to_the_whole():
    model, path = toy_model(), BrownianPath(2)
    index = torch.arange(2)
    state, zero = model.prior(index, 2), torch.zeros(2, dtype=torch.float64)

    def increment(a: float, b: float) -> torch.Tensor:
        return path.normal(state, Draw(index, index, zero + a, zero + b), PREDICTOR)["A"] * (b - a) ** 0.5

    assert torch.allclose(increment(0.2, 0.5) + increment(0.5, 0.6), increment(0.2, 0.6), atol=1e-6)
