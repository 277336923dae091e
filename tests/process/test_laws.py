"""Each process is one object seen from four sides: drift, diffusion, marginal and exact step. They must agree."""

from __future__ import annotations

import math

import pytest
import torch

from isostep.base.errors import InputError
from isostep.process import VE, VP, Bridge, Process, SubVP
from tests.problems import PROCESSES, SCORE, seconds

ALL = {
    **PROCESSES,
    "OU strong": Bridge(sigma_0=0.7, sigma_1=0.9, drift_coeff=4.0),
    "VP GDSS": VP(beta_min=0.2, beta_max=0.8),
}
GRID = torch.linspace(0.02, 0.97, 40, dtype=torch.float64)


@pytest.fixture(params=list(ALL))
def process(request) -> Process:
    return ALL[request.param]


def estimate_of(process: Process, x: torch.Tensor, clean: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """What the network would have to return for the clean value `clean`."""
    if process.estimates == "clean":
        return clean
    m, std = process.marginal(t)
    return (m * clean - x) / std.square()


def test_many_small_exact_steps_equal_one(process):
    """Composition of x_s = a x_t + c D + std z: coefficients multiply, variances add up after shrinking."""
    for t, s in ((0.0, 0.6), (0.3, 0.31), (0.1, process.t_end)):
        whole = process.linear_step(seconds(t), seconds(s))
        times = torch.linspace(t, s, 1001, dtype=torch.float64)
        times[-1] = s
        a, c, variance = 1.0, 0.0, 0.0
        steps = process.linear_step(times[:-1], times[1:])
        for step_x, step_clean, step_std in zip(*(part.tolist() for part in steps), strict=True):
            a, c = a * step_x, c * step_x + step_clean
            variance = variance * step_x**2 + step_std**2
        assert a == pytest.approx(float(whole.x), rel=1e-8, abs=1e-12)
        assert c == pytest.approx(float(whole.clean), rel=1e-8)
        assert variance == pytest.approx(float(whole.std) ** 2, rel=1e-8, abs=1e-12)


def test_the_exact_step_moves_marginals_to_marginals(process):
    m0, std0 = process.marginal(torch.full_like(GRID, 0.01))
    step = process.linear_step(torch.full_like(GRID, 0.01), GRID)
    m1, std1 = process.marginal(GRID)
    torch.testing.assert_close(step.x * m0 + step.clean, m1)
    torch.testing.assert_close((step.x * std0).square() + step.std.square(), std1.square())


def test_drift_and_diffusion_are_the_derivatives_of_the_exact_step(process):
    """f(x) = x da/ds + D dc/ds and g^2 = d var/ds at s = t, by a second-order difference quotient."""
    h = 1e-5
    one, two = process.linear_step(GRID, GRID + h), process.linear_step(GRID, GRID + 2 * h)

    def slope(first, second, start):
        return (4 * first - second - 3 * start) / (2 * h)

    x, clean = torch.full_like(GRID, 0.8), torch.full_like(GRID, -1.3)
    expected = slope(one.x, two.x, 1.0) * x + slope(one.clean, two.clean, 0.0) * clean
    got = process.drift(x, estimate_of(process, x, clean, GRID), GRID)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    g2 = slope(one.std.square(), two.std.square(), 0.0)
    torch.testing.assert_close(process.diffusion(GRID).square(), g2, rtol=1e-5, atol=1e-6)


def test_the_clean_value_comes_back_from_the_estimate(process):
    x, clean = torch.full_like(GRID, 0.8), torch.full_like(GRID, -1.3)
    torch.testing.assert_close(process.clean(x, estimate_of(process, x, clean, GRID), GRID), clean)


def test_the_prior_is_the_law_at_the_start():
    for name in ("OU", "BB"):
        m, std = PROCESSES[name].marginal(seconds(0.0))
        assert (float(m), float(std)) == (0.0, 1.0)
    assert float(VE().marginal(seconds(0.0)).std) == pytest.approx(1.0)
    assert VP(beta_max=20.0).marginal(seconds(0.0)).std.item() == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("name", ["OU", "BB"])
def test_a_bridge_ends_at_the_clean_value_without_noise(name):
    step = PROCESSES[name].linear_step(seconds(0.0, 0.5, 0.999), seconds(1.0, 1.0, 1.0))
    assert step.x.tolist() == [0, 0, 0]
    assert step.clean.tolist() == [1, 1, 1]
    assert step.std.tolist() == [0, 0, 0]


def test_brownian_bridge_by_hand():
    """sigma = 1: f = (D - x)/(1 - t), step to s: mean x + (s - t)/(1 - t) (D - x), var (s - t)(1 - s)/(1 - t)."""
    bridge = Bridge(sigma_0=1.0, sigma_1=1.0)
    assert float(bridge.drift(seconds(0.5), seconds(2.0), seconds(0.25))) == pytest.approx(2.0)
    step = bridge.linear_step(seconds(0.25), seconds(0.75))
    assert float(step.x) == pytest.approx(1 / 3)
    assert float(step.clean) == pytest.approx(2 / 3)
    assert float(step.std) == pytest.approx(math.sqrt(0.5 * 0.25 / 0.75))


def test_ou_bridge_by_hand_and_its_brownian_limit():
    """sigma^2 = 0.5, a = 1: phi = 0.5 (1 - t), f = 0.5 (D - x cosh phi)/sinh phi."""
    bridge = Bridge(sigma_0=math.sqrt(0.5), sigma_1=math.sqrt(0.5), drift_coeff=-2.0)
    phi = 0.5 * 0.6
    expected = 0.5 * (2.0 - 0.3 * math.cosh(phi)) / math.sinh(phi)
    assert float(bridge.drift(seconds(0.3), seconds(2.0), seconds(0.4))) == pytest.approx(expected)
    assert float(bridge.score(seconds(0.3), seconds(2.0), seconds(0.4))) == pytest.approx(expected / 0.5)
    assert float(bridge.loss_weight(seconds(0.4))) == pytest.approx(0.5 / math.sinh(phi) / math.sqrt(0.5))
    mirrored = Bridge(sigma_0=math.sqrt(0.5), sigma_1=math.sqrt(0.5), drift_coeff=2.0)
    assert float(mirrored.drift(seconds(0.3), seconds(2.0), seconds(0.4))) == pytest.approx(expected)
    near, limit = Bridge(drift_coeff=1e-6), Bridge()
    torch.testing.assert_close(near.drift(GRID, -GRID, GRID), limit.drift(GRID, -GRID, GRID), rtol=1e-8, atol=0)


def test_score_sdes_by_hand():
    """s = 1 - t = 0.4. VP(0.1, 1): b = 0.46, B = 0.4 * 0.1 + 0.16 * 0.45 = 0.112. VE(0.1, 1): sigma = 0.1 * 10^0.4."""
    t, b, integral = seconds(0.6), 0.46, 0.112
    vp, sub, ve = VP(), SubVP(), VE()
    assert float(vp.diffusion(t)) == pytest.approx(math.sqrt(b))
    assert float(vp.marginal(t).mean) == pytest.approx(math.exp(-integral / 2))
    assert float(vp.marginal(t).std) == pytest.approx(math.sqrt(1 - math.exp(-integral)))
    assert float(sub.diffusion(t)) == pytest.approx(math.sqrt(b * (1 - math.exp(-2 * integral))))
    assert float(sub.marginal(t).std) == pytest.approx(1 - math.exp(-integral))
    sigma = 0.1 * 10**0.4
    assert float(ve.diffusion(t)) == pytest.approx(sigma * math.sqrt(2 * math.log(10)))
    assert float(ve.marginal(t).std) == pytest.approx(sigma)
    x, score = seconds(0.5), seconds(-2.0)
    assert float(vp.drift(x, score, t)) == pytest.approx(b / 2 * 0.5 - 2 * b)
    assert float(ve.drift(x, score, t)) == pytest.approx(-2 * sigma**2 * 2 * math.log(10))
    assert float(vp.flow_drift(x, score, t)) == pytest.approx(b / 2 * 0.5 - b)
    # Network output to score: -1/std for VP and subVP, as it is for VE.
    assert float(vp.estimate(x, t)) == pytest.approx(-0.5 / math.sqrt(1 - math.exp(-integral)))
    assert float(sub.estimate(x, t)) == pytest.approx(-0.5 / (1 - math.exp(-integral)))
    assert float(ve.estimate(x, t)) == 0.5


def test_fewer_scales_than_beta_leave_vp_finite():
    process, t = VP(beta_min=0.1, beta_max=6.0), torch.tensor([0.0, 0.4, 0.9], dtype=torch.float64)
    factor, step = process.langevin_factor(t, 3), process.reverse_step(t, torch.full_like(t, 1 / 3))
    assert float(factor[0]) == 0
    assert bool((factor >= 0).all())
    assert all(bool(value.isfinite().all()) for value in step)


def test_gdss_discrete_steps_by_hand():
    """N = 10, s = 0.4: i = floor(0.4 * 9) = 3, so beta_i = (0.1 + 3/9 * 0.9)/10 and sigma_i = 0.1 * 10^(3/9)."""
    t, dt = seconds(0.6), seconds(0.1)
    beta = (0.1 + 0.9 / 3) / 10
    shrink, spread = VP().reverse_step(t, dt)
    assert float(shrink) == pytest.approx(math.sqrt(1 - beta) - 1)
    assert float(spread) == pytest.approx(math.sqrt(beta))
    assert float(VP().langevin_factor(t, 10)) == pytest.approx(1 - beta)
    shrink, spread = VE().reverse_step(t, dt)
    assert float(shrink) == 0
    assert float(spread) == pytest.approx(math.sqrt((0.1 * 10 ** (3 / 9)) ** 2 - (0.1 * 10 ** (2 / 9)) ** 2))
    # The last step has index 0, and sigma_(-1) = 0.
    assert float(VE().reverse_step(seconds(0.95), dt).spread) == pytest.approx(0.1)
    assert float(VE().langevin_factor(t, 10)) == 1
    shrink, spread = SubVP().reverse_step(t, dt)
    assert float(SubVP().langevin_factor(t, 10)) == pytest.approx(1 - beta)
    assert float(shrink) == pytest.approx(-0.46 * 0.1 / 2)
    assert float(spread) == pytest.approx(float(SubVP().diffusion(t)) * math.sqrt(0.1))


def test_s4_half_steps_by_hand():
    """VP from s = 0.4 back over h = -0.05: c = h (2 * 0.1 + (0.8 - 0.05) * 0.9)/4, m = e^-c, sd^2 = 1 - e^2c."""
    c = -0.05 * (0.2 + 0.75 * 0.9) / 4
    factor, spread = VP().half_step(seconds(0.4), seconds(-0.05))
    assert float(factor) == pytest.approx(math.exp(-c))
    assert float(spread) == pytest.approx(math.sqrt(1 - math.exp(2 * c)))
    factor, spread = VE().half_step(seconds(0.4), seconds(-0.05))
    assert float(factor) == 1
    assert float(spread) == pytest.approx(math.sqrt((0.1 * 10**0.4) ** 2 - (0.1 * 10**0.35) ** 2))
    with pytest.raises(InputError, match="S4 solver has no half step for SubVP"):
        SubVP().half_step(seconds(0.4), seconds(-0.05))


def test_score_models_stop_short_of_the_data_and_bridges_do_not():
    assert {PROCESSES[n].t_end for n in SCORE} == {1 - 1e-4}
    assert {PROCESSES[n].t_end for n in ("OU", "BB")} == {1.0}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: VP(beta_min=1.0, beta_max=0.5), "beta_min < beta_max, got 1.0 and 0.5"),
        (lambda: VP(eps=0.0), "eps must lie in .*, got 0.0"),
        (lambda: VP(beta_max=math.inf), "beta_min < beta_max, got 0.1 and inf"),
        (lambda: Bridge(drift_coeff=math.nan), "drift_coeff must be finite"),
        (lambda: Bridge(prior_std=-1.0), "prior_std positive"),
        (lambda: VE(sigma_min=0.0), "sigma_min < sigma_max, got 0.0"),
        (lambda: Bridge(sigma_0=-1.0), "must be positive, got sigma_0=-1.0"),
    ],
)
def test_impossible_settings(make, words):
    with pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize("process", [VP, VE, Bridge])
def test_numbers_without_names_are_refused(process):
    """`VP(0.1, 20.0)` would set whatever fields stand first."""
    with pytest.raises(TypeError, match="positional"):
        process(0.1, 20.0)
