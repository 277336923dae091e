"""Arc length: a known rate is cut into equal parts; on an analytic bridge the pilot's rate is the exact one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from isostep.base.errors import InputError
from isostep.control import uniform
from isostep.control.arclength import Density
from isostep.control.grid import calibrated
from isostep.control.pilot import Pilot
from isostep.loop import integrate
from isostep.network.analytic import gaussian
from isostep.noise import PhiloxNoise
from isostep.process import Bridge
from isostep.solver import Euler


def known(rate, points: int = 2000) -> Pilot:
    t = (np.arange(points) + 0.5) / points
    return Pilot(tuple(t), {"X": tuple(rate(t))}, graphs=1, calls=points)


def test_a_constant_rate_gives_uniform_steps():
    times = Density().times(known(np.ones_like), 7)
    assert times == pytest.approx([i / 7 for i in range(8)], abs=1e-12)


def test_equal_parts_of_a_known_curve():
    # rho = sqrt(4 t^2) = 2 t has the integral t^2, so the N parts end at sqrt(i / N).
    times = Density(smooth=0.0, floor=0.0).times(known(lambda t: 4 * t**2), 10)
    assert times == pytest.approx([np.sqrt(i / 10) for i in range(11)], abs=2e-3)
    assert times[0] == 0.0
    assert times[-1] == 1.0


def test_the_power_changes_the_density():
    # rho = (t^2)^1 = t^2 has the integral t^3 / 3.
    times = Density(power=1.0, smooth=0.0, floor=0.0).times(known(lambda t: t**2), 8)
    assert times == pytest.approx([(i / 8) ** (1 / 3) for i in range(9)], abs=2e-3)


def test_no_stretch_of_time_is_left_without_steps():
    spike = known(lambda t: np.where(abs(t - 0.5) < 0.01, 1e6, 1e-9))
    assert max(np.diff(Density(floor=0.1).times(spike, 50))) < 0.25
    assert max(np.diff(Density(floor=0.0, smooth=0.0).times(spike, 50))) > 0.4


def test_components_are_summed_or_one_is_chosen():
    t = (np.arange(500) + 0.5) / 500
    pilot = Pilot(tuple(t), {"X": tuple(np.ones(500)), "A": tuple(4 * t**2)}, graphs=1, calls=1)
    exact = Density(smooth=0.0, floor=0.0)
    alone = Density(combine="A", smooth=0.0, floor=0.0).times(pilot, 4)
    assert alone == pytest.approx([np.sqrt(i / 4) for i in range(5)], abs=5e-3)
    assert exact.times(pilot, 4) != pytest.approx(alone, abs=1e-2)
    with pytest.raises(InputError, match="combine must be sum, max"):
        Density(combine="Z").times(pilot, 4)


def test_the_pilot_measures_the_jacobian():
    """On a linear SDE, E||df||^2 = g^2 tr(J^T J) dt, so j = tr(J^T J), whatever the pilot's grid."""
    model = gaussian({n: Bridge(sigma_0=0.4, sigma_1=0.2) for n in "XA"}, std=0.3)
    rates = []
    for steps in (100, 200):
        start = model.prior(400, dtype=torch.float64)
        solution = integrate(model, start, uniform(steps), Euler(), PhiloxNoise(1), trace=1)
        rates.append(Pilot.from_trace(solution.trace, 1.0, 400, steps))
    t = torch.full((1,), 0.5, dtype=torch.float64)
    exact = _jacobian(model, t) ** 2 * model.means["X"][0].numel()
    for pilot in rates:
        near = [j for time, j in zip(pilot.t, pilot.rate["X"], strict=True) if abs(time - 0.5) < 0.06]
        # Drift changes by J dx + (df/dt) dt; at these steps the second part is a few percent.
        assert np.mean(near) == pytest.approx(exact, rel=0.15)


def _jacobian(model, t: torch.Tensor) -> float:
    """df/dx of one entry of the Gaussian bridge model."""
    process = model.processes["X"]
    mean, std = process.marginal(t)
    gain = mean * 0.3**2 / ((mean * 0.3).square() + std.square())
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    with_gain = process.drift(one, one * gain.view(1, 1, 1), t)
    at_zero = process.drift(0 * one, 0 * one, t)
    return float(with_gain - at_zero)


def test_a_pilot_survives_json_and_bad_ones_are_refused():
    pilot = known(np.ones_like, 5)
    assert Pilot.from_dict(pilot.to_dict()) == pilot
    for bad in ({}, {**pilot.to_dict(), "t": [0.1]}, {**pilot.to_dict(), "rate": {"X": [float("nan")] * 5}}, [1]):
        with pytest.raises(InputError, match="not a calibration"):
            Pilot.from_dict(bad)


def test_arclength_without_times_says_what_to_do():
    with pytest.raises(InputError, match="isostep calibrate"):
        calibrated(10)
