"""The formulas of docs/theory.md, by Monte Carlo and in closed form."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from isostep.control import Grid, uniform
from isostep.geometry import decision_angle, drift_variation, noise_variation, undecided
from isostep.loop import integrate
from isostep.noise import PhiloxNoise
from isostep.process import Evaluation
from isostep.solver import Euler, NoiseSource, Span
from isostep.state import GraphState
from tests.problems import PROCESSES, SCORE, draw, exact_start, free, gaussians, law, seconds

G, DT, F = 0.7, 0.04, 0.3


def one_euler_step(count: int) -> tuple[torch.Tensor, GraphState]:
    """What one Euler step with drift F and noise G adds to each free entry, minus its mean: (count, D)."""
    state = GraphState.of(
        torch.ones(count, 3), X=torch.zeros(count, 3, 2).double(), A=torch.zeros(count, 3, 3).double()
    )
    drift = {n: state.project(n, torch.full_like(x, F)) for n, x in state.components.items()}
    here = Evaluation(drift, dict.fromkeys(drift, torch.full((count,), G).double()))
    d = draw(count)
    source = NoiseSource(PhiloxNoise(11), d.index, d.step, torch.ones(count, dtype=torch.bool))
    t0 = torch.zeros(count).double()
    ahead = Euler().advance(None, state, here, Span(t0, t0 + DT, torch.full_like(t0, DT)), source, None)
    return torch.cat([free(ahead.state, n) for n in ("X", "A")], 1) - F * DT, state


def test_fisher_matrix_of_the_transition_kernel():
    """Entries dt/g^2 (drift), 0 (cross) and 2D/g^2 (noise): the kernel is the one that the Euler solver samples."""
    count = 20_000
    r, state = one_euler_step(count)
    size = r.shape[1]
    assert size == int(state.free_entries("X")[0] + state.free_entries("A")[0]) == 9
    # Scores of N(r; 0, g^2 dt I): in the drift f (r shrinks by dt per unit of f) and in g.
    by_drift = r / G**2
    by_noise = r.square().sum(1) / (G**3 * DT) - size / G

    def within(samples: torch.Tensor, expected: float) -> bool:
        return abs(float(samples.mean()) - expected) < 4.5 * float(samples.std()) / math.sqrt(samples.numel())

    assert within(by_drift.square(), DT / G**2)
    assert within(by_drift[:, :-1] * by_drift[:, 1:], 0.0)
    assert within(by_drift * by_noise[:, None], 0.0)
    assert within(by_noise.square(), 2 * size / G**2)
    # The test can tell: twice the dimension, or g^2 for g, is far outside.
    assert not within(by_noise.square(), 4 * size / G**2)
    assert not within(by_drift.square(), DT / G)


def test_drift_and_noise_parts_by_hand():
    """V = ||df||^2/g^2 and V_g = 2D dg^2/(g^2 dt), with both triangles of A in the norm and one of them in D."""
    state = GraphState.of(torch.tensor([[1, 1, 0]]), A=torch.zeros(1, 3, 3), X=torch.zeros(1, 3, 1))
    new = {"A": torch.zeros(1, 3, 3), "X": torch.zeros(1, 3, 1)}
    new["A"][0, 0, 1] = new["A"][0, 1, 0] = 3.0
    new["X"][0, 0] = 2.0
    old = {n: torch.zeros_like(x) for n, x in new.items()}
    g_new, g_old = {"A": seconds(2.0), "X": seconds(0.5)}, {"A": seconds(2.5), "X": seconds(0.5)}
    assert drift_variation(new, old, g_new).tolist() == [[18 / 4, 4 / 0.25]]
    assert noise_variation(g_new, g_old, state, seconds(0.1)).tolist() == [[2 * 1 * 0.25 / (4 * 0.1), 0.0]]


def test_variation_without_noise():
    """g = 0: the squared change of the drift, as if g were 1, and no noise part; never NaN."""
    new, old = {"y": torch.tensor([[1.0], [3.0]])}, {"y": torch.tensor([[1.0], [1.0]])}
    none = {"y": seconds(0.0, 0.0)}
    assert drift_variation(new, old, none).flatten().tolist() == [0.0, 4.0]
    state = GraphState.of(torch.ones(2, 1), y=torch.zeros(2, 1))
    assert noise_variation(none, none, state, seconds(0.1, 0.1)).flatten().tolist() == [0.0, 0.0]


def jacobian(name: str, t: float) -> float:
    """df/dx of the Gaussian model, where it is the same number for every entry."""
    process = PROCESSES[name]
    points = torch.tensor([[0.0], [1.0]]).double()
    model = gaussians([name])
    m, std = process.marginal(seconds(t, t))
    variance = (m * model.stds[name]).square() + std.square()
    clean = 0.7 + (m * model.stds[name].square() / variance)[:, None] * (points - m[:, None] * 0.7)
    score = (m[:, None] * clean - points) / std.square()[:, None]
    f = process.drift(points, score if process.estimates == "score" else clean, seconds(t, t))
    return float(f[1] - f[0])


@pytest.mark.parametrize("name", list(PROCESSES))
def test_drift_change_is_driven_by_noise_and_grows_with_the_step(name):
    """E||df||^2 = g^2 tr(J^T J) dt + O(dt^2): so V doubles when the step before it doubles, and V/dt does not."""
    model = gaussians([name])
    process = PROCESSES[name]
    state = exact_start(model, 3000, seed=2)
    stored = int(state[name][0].numel() - (3 if state.kinds[name] == "edge" else 0))
    g, j = float(process.diffusion(seconds(0.0))), jacobian(name, 0.0)
    rates = {}
    for dt in (2e-3, 1e-3):
        trace = integrate(model, state, Grid((0.0, dt, 2 * dt, 1.0)), Euler(), PhiloxNoise(4), trace=1).trace
        ds2 = float(trace[f"V_{name}"][1]) * float(process.diffusion(seconds(dt))) ** 2  # E||df||^2
        rates[dt] = ds2 / (g**2 * j**2 * stored * dt)
    # 3000 graphs of >= 3 independent entries: variance's standard error is below sqrt(2/9000) = 1.5 %.
    assert abs(rates[1e-3] - 1) < 4.5 * 0.015 + 0.02
    # Same noise at both steps, so the ratio has hardly any Monte Carlo error.
    assert abs(rates[2e-3] / rates[1e-3] - 1) < 0.03


def test_the_laws_used_above_are_the_marginals():
    """Guard of the helper: the exact start has the exact moments."""
    model = gaussians()
    state = exact_start(model, 4000, seed=8)
    for name, process in PROCESSES.items():
        mean, std = law(process, 0.0)
        values = free(state, name)
        assert abs(float(values.mean()) - mean) < 4.5 * std / math.sqrt(values.numel())
        assert abs(float(values.std()) / std - 1) < 4.5 / math.sqrt(2 * values.numel())


def clean_estimates(name: str) -> list[torch.Tensor]:
    """D(x_t) of the Gaussian model at t = 0.1, 0.4, 0.7, 0.9 along Euler paths that start from the exact law."""
    model, process = gaussians([name]), PROCESSES[name]
    seen: list[torch.Tensor] = []

    def watch(info):
        if int((info.t1[0] * 100).round()) in (10, 40, 70, 90):
            estimate = model.sde.network(info.state, info.t1)
            clean = process.clean(info.state[name], estimate[name], info.t1)
            seen.append(free(info.state.replace({name: clean}), name))

    integrate(model, exact_start(model, 3000, seed=3), uniform(100), Euler(), PhiloxNoise(9), hooks=(watch,))
    return seen


def slope_and_error(before: torch.Tensor, after: torch.Tensor) -> tuple[float, float]:
    """Regression of the estimate's change on its own fluctuation, and its standard error."""
    change, deviation = after - before, before - before.mean()
    slope = float((change * deviation).sum() / deviation.square().sum())
    return slope, float(change.std() / deviation.std()) / math.sqrt(change.numel())


@pytest.mark.parametrize("name", SCORE)
def test_the_clean_estimate_of_a_score_model_is_a_martingale(name):
    """E[D(x_t+h) | x_t] = D(x_t): the estimate does not know in which direction it will change."""
    seen = clean_estimates(name)
    assert len(seen) == 4
    for before, after in itertools.pairwise(seen):
        change = after - before
        # 4.5 standard errors, and Euler's own bias, of order dt = 0.01.
        assert abs(float(change.mean())) < 4.5 * float(change.std()) / math.sqrt(change.numel()) + 0.005
        slope, error = slope_and_error(before, after)
        assert abs(slope) < 4.5 * error + 0.03


@pytest.mark.parametrize("name", ["OU", "BB"])
def test_the_clean_estimate_of_a_bridge_mixture_is_not(name):
    """Start and end of a bridge are drawn independently, but the Markov process that mixes them remembers its start:
    the estimate's early deviations grow, so it has a trend, which a multistep method can use."""
    seen = clean_estimates(name)
    slope, error = slope_and_error(seen[0], seen[1])
    assert slope > 0.5 + 4.5 * error


def test_the_angle_of_a_decision_is_its_fisher_rao_length():
    """From one level to the next it is pi; between them its derivative is the Fisher information's root."""
    levels = torch.arange(4, dtype=torch.float64)
    assert decision_angle(levels).tolist() == pytest.approx([0, math.pi, 2 * math.pi, 3 * math.pi])
    p = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    h = 1e-6
    for level in (0.0, 2.0):
        slope = (decision_angle(level + p + h) - decision_angle(level + p - h)) / (2 * h)
        assert torch.allclose(slope.square(), 1 / (p * (1 - p)), rtol=1e-5)
    assert decision_angle(torch.tensor([-0.3])).tolist() == [0.0]


def test_entries_near_a_level_are_decided():
    values = torch.tensor([-0.5, 0.1, 0.3, 0.7, 0.9, 1.5, 2.19, 2.21])
    assert undecided(values).tolist() == [False, False, True, True, False, True, False, True]
