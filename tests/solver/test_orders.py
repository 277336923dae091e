"""Fitted orders on nested grids: the slope of log error against log step, within a band."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from isostep.control import uniform
from isostep.loop import integrate
from isostep.network.analytic import Mixture, rings_and_stars
from isostep.noise import BrownianTree, Draw, Noise, PhiloxNoise, RecordedNoise, ZeroNoise
from isostep.process import VE, VP, Bridge, Process
from isostep.solver import Euler, Exponential, Heun, Solver
from isostep.solver.flow import ProbabilityFlow
from isostep.state import GraphState
from tests.problems import draw

FINE = 128
HALVINGS = (16, 32, 64, 128)


def mixture(process: Process, std: float = 0.6) -> Mixture:
    """Not linear: the posterior weights of ring and star couple all entries."""
    return rings_and_stars(dict.fromkeys(("X", "A"), process), nodes=4, std=std)


def fitted_order(result: Callable[[int], Tensor], counts: tuple[int, ...] = HALVINGS) -> float:
    """Slope of log2 E|x_n - x_2n| against the step: the order, without need of a reference solution."""
    results = [result(n) for n in counts]
    gaps = [math.log2(float((a - b).abs().mean())) for a, b in itertools.pairwise(results)]
    return (gaps[0] - gaps[-1]) / (len(gaps) - 1)


def recorded_path(like: GraphState, seed: int) -> RecordedNoise:
    """One Brownian path per graph on FINE cells of the run; any coarser nested grid sees sums of its increments."""
    steps = [PhiloxNoise(seed).normal(like, draw(like.batch, step=k), 0) for k in range(FINE)]
    path = {}
    for name, x in like.components.items():
        path[name] = torch.cat([torch.zeros_like(x)[None], torch.stack([z[name] for z in steps]).cumsum(0)])

    def increments(state: GraphState, at: Draw, stream: int) -> dict[str, Tensor]:
        low, high = (round(float(t[0]) * FINE) for t in (at.t0, at.t1))
        return {n: (path[n][high] - path[n][low]) / math.sqrt(high - low) for n in state.components}

    return RecordedNoise(increments)


def run(model: Mixture, state: GraphState, solver: Solver, noise: Noise) -> Callable[[int], Tensor]:
    return lambda n: integrate(model, state, uniform(n), solver, noise).state["A"]


@pytest.mark.parametrize(
    "process", [Bridge(sigma_0=0.6, sigma_1=0.4), Bridge(sigma_0=0.6, sigma_1=0.4, drift_coeff=-1.5)], ids=["BB", "OU"]
)
def test_euler_has_strong_order_one(process):
    """Additive noise, and the same Brownian path on every grid."""
    model = mixture(process)
    state = model.prior(64, seed=1, dtype=torch.float64)
    assert abs(fitted_order(run(model, state, Euler(), recorded_path(state, seed=4))) - 1) < 0.15


class Swing:
    """Own model with a nonlinear drift and a noise that depends on time."""

    def drift(self, state, t):
        x, a = state["X"], state["A"]
        return {"X": torch.sin(3 * x) + a @ x, "A": torch.cos(2 * a) * (1 + t)[:, None, None]}

    def diffusion(self, t):
        return 0.5 + t


def test_euler_has_strong_order_one_on_an_own_model_and_a_brownian_tree():
    state = mixture(Bridge()).prior(32, seed=2, dtype=torch.float64)
    tree = BrownianTree(7, depth=5)

    def result(n: int) -> Tensor:
        return integrate(Swing(), state, uniform(n), Euler(), tree).state["A"]

    assert abs(fitted_order(result, (4, 8, 16, 32)) - 1) < 0.15


def test_independent_noise_has_no_strong_order():
    """Guard: the fit does not give one by construction. With fresh noise per grid the error does not fall."""
    model = mixture(Bridge(sigma_0=0.6, sigma_1=0.4))
    state = model.prior(24, seed=1, dtype=torch.float64)
    assert fitted_order(run(model, state, Euler(), PhiloxNoise(4)), (8, 16, 32, 64)) < 0.5


@pytest.mark.parametrize("process", [VP(), VE(), Bridge()], ids=["VP", "VE", "BB"])
@pytest.mark.parametrize(
    ("solver", "order", "counts"),
    [
        (Euler(), 1, (8, 16, 32, 64)),
        (Heun(), 2, (8, 16, 32, 64)),
        (Exponential(), 1, (8, 16, 32, 64)),
        (Exponential(order=2), 2, HALVINGS),
    ],
    ids=["euler", "heun", "exponential", "exponential-2"],
)
def test_deterministic_order_and_one_limit(process, solver, order, counts):
    """Without noise: each method's order, and that all of them tend to Heun's result and not to one of their own."""
    model = mixture(process)
    state = model.prior(8, seed=3, dtype=torch.float64)
    result = run(model, state, solver, ZeroNoise())
    assert abs(fitted_order(result, counts) - order) < 0.25
    gap = (result(64) - run(model, state, Heun(), ZeroNoise())(64)).abs().mean()
    assert float(gap) < {1: 2e-2, 2: 2e-3}[order]


def test_without_noise_heuns_predictors_agree():
    model = mixture(VE())
    state = model.prior(3, seed=1, dtype=torch.float64)
    assert torch.equal(*(run(model, state, Heun(kind), ZeroNoise())(8) for kind in ("mean", "noisy")))


@pytest.mark.parametrize("order", [1, 2])
def test_exponential_steps_without_noise_tend_to_the_probability_flow(order):
    """eta = 0: its own order, no noise drawn, and the limit of Heun's method on the flow's ODE."""
    model = mixture(VE())
    state = model.prior(8, seed=3, dtype=torch.float64)
    result = run(model, state, Exponential(order, eta=0.0), PhiloxNoise(1))
    assert torch.equal(result(8), run(model, state, Exponential(order, eta=0.0), PhiloxNoise(2))(8))
    assert abs(fitted_order(result, HALVINGS) - order) < 0.25
    gap = (result(128) - run(model, state, ProbabilityFlow(Heun()), PhiloxNoise(1))(128)).abs().mean()
    assert float(gap) < {1: 1e-2, 2: 1e-3}[order]


def test_the_probability_flow_has_heuns_order():
    model = mixture(VE())
    state = model.prior(3, seed=1, dtype=torch.float64)
    assert abs(fitted_order(run(model, state, ProbabilityFlow(Heun()), PhiloxNoise(1)), (8, 16, 32, 64)) - 2) < 0.25
