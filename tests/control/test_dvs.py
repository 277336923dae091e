"""The DVS controller against sequences worked out by hand, and what it is for: flat information increments."""

from __future__ import annotations

import math

import pytest
import torch

from isostep.base.errors import InputError
from isostep.control import Dvs, Measured, uniform
from isostep.control.dvs import dvs as named_dvs
from isostep.loop import integrate
from isostep.network.analytic import gaussian
from isostep.noise import PhiloxNoise
from isostep.process import Bridge
from isostep.sampling.run import sample
from isostep.solver import Euler
from tests.problems import seconds


def drive(dvs: Dvs, variations: list[tuple[float, ...]], t_end: float = 1.0) -> list[float]:
    """Step sizes for one graph whose V at steps 0, 1, ... is given (the loop's V of step 0 is zero)."""
    t, step = seconds(0.0), torch.tensor([0])
    memory = dvs.start(t, len(variations[0]), t_end)
    out = []
    for v in variations:
        now = Measured(t, step, torch.tensor([v]).double(), torch.ones(1, dtype=torch.bool), torch.ones(1, len(v)))
        t, dt, memory = dvs.propose(memory, now)
        step = step + 1
        out.append(float(dt))
    return out


PAPER = Dvs(kappa=2.0, gamma=0.5, alpha=0.2, beta=0.5, dt_base=0.01, dt_min=0.002, dt_max=0.05)


def test_paper_mode_by_hand():
    """Two components; EMA from zero, gamma shares it after every step."""
    dt = drive(PAPER, [(0, 0), (8, 2), (1000, 1), (0, 0), (3, 40)])
    # k = 0: dt_base.
    assert dt[0] == 0.01
    # k = 1: Vbar = 0.2 (8, 2) = (1.6, 0.4); the larger decides: 0.01 sqrt(2/1.6). Shared: 0.5 (1.6 + 0.4) = 1.
    assert dt[1] == pytest.approx(0.01 * math.sqrt(2 / 1.6))
    # k = 2: Vbar = 0.8 * 1 + 0.2 (1000, 1) = (200.8, 1.0); 0.01 sqrt(2/200.8) = 0.000998, clipped. Shared: 100.9.
    assert dt[2] == 0.002
    # k = 3: Vbar = 0.8 * 100.9 = 80.72 for both; 0.01 sqrt(2/80.72) = 0.00157, clipped. Shared: 0.5 * 161.44 = 80.72.
    assert dt[3] == 0.002
    # k = 4: Vbar = 0.8 * 80.72 + 0.2 (3, 40) = (65.176, 72.576); 0.01 sqrt(2/72.576) = 0.00166, clipped.
    assert dt[4] == 0.002
    # The same without bounds in the way.
    wide = Dvs(kappa=2.0, gamma=0.5, alpha=0.2, beta=0.5, dt_base=0.01, dt_min=1e-6, dt_max=0.5)
    dt = drive(wide, [(0, 0), (8, 2), (1000, 1), (0, 0), (3, 40)])
    expected = [0.01, 0.01 * math.sqrt(2 / 1.6), *(0.01 * math.sqrt(2 / v) for v in (200.8, 80.72, 72.576))]
    assert dt == pytest.approx(expected, rel=1e-9)


def test_upper_bound_and_eps_num():
    """V = 0 for ever: dt_base (kappa/eps_num)^beta is huge, so dt_max."""
    assert drive(PAPER, [(0.0,), (0.0,), (0.0,)]) == [0.01, 0.05, 0.05]
    soft = Dvs(kappa=1.0, gamma=0.0, dt_base=0.01, dt_min=1e-4, dt_max=1.0, eps_num=4.0)
    assert drive(soft, [(0.0,), (0.0,)])[1] == pytest.approx(0.01 * math.sqrt(1 / 4))


def test_default_bounds_are_a_fifth_and_five_times_the_base_step():
    assert Dvs(dt_base=1e-3).bounds == pytest.approx((2e-4, 5e-3))


def test_beta_is_the_exponent():
    for beta in (0.25, 1.0):
        dvs = Dvs(kappa=3.0, gamma=0.0, alpha=1.0, beta=beta, dt_base=0.01, dt_min=1e-6, dt_max=1.0)
        assert drive(dvs, [(0,), (12.0,)])[1] == pytest.approx(0.01 * (3 / 12) ** beta)


def test_ema_starts_from_the_first_value_in_the_authors_mode():
    first = Dvs(kappa=2.0, gamma=0.5, dt_base=0.01, dt_min=1e-6, dt_max=1.0, ema_start="first")
    dt = drive(first, [(0, 0), (8, 2), (4, 4)])
    # k = 1: Vbar = V = (8, 2): 0.01 sqrt(2/8). Shared: 0.5 * 10 = 5. k = 2: 0.8 * 5 + 0.2 * 4 = 4.8.
    assert dt[1:] == pytest.approx([0.01 * math.sqrt(2 / 8), 0.01 * math.sqrt(2 / 4.8)], rel=1e-9)


def test_outside_the_active_ranges_the_step_is_the_base_step_and_the_ema_starts_anew():
    """Ranges (0, 0.15] and (0.45, 1], base step 0.1, V = 4 throughout, kappa = 1, gamma = 1, alpha = 0.5.

    t = 0     first step: 0.1
    t = 0.1   active: Vbar = 0.5 * 4 = 2, dt = 0.1/sqrt 2 = 0.0707
    t = .1707 inactive: 0.1, EMA back to zero
    t = .2707, .3707 inactive: 0.1
    t = .4707 active: Vbar = 2 again, dt = 0.0707;  then Vbar = 0.5 * 2 + 0.5 * 4 = 3
    """
    dvs = Dvs(kappa=1.0, gamma=1.0, alpha=0.5, dt_base=0.1, dt_min=0.01, dt_max=0.3, active=((0.0, 0.15), (0.45, 1.0)))
    dt = drive(dvs, [(4.0,)] * 7)
    expected = [0.1, 0.1 / math.sqrt(2), 0.1, 0.1, 0.1, 0.1 / math.sqrt(2), 0.1 / math.sqrt(3)]
    assert dt == pytest.approx(expected, rel=1e-9)


def test_a_range_excludes_its_start_and_includes_its_end():
    """Steps of 0.25 are exact, so t = 0.25 and t = 0.5 are met to the bit."""
    for active, adapting in ((((0.25, 1.0),), [False, False, True]), (((0.0, 0.25),), [False, True, False])):
        dvs = Dvs(kappa=1.0, gamma=0.0, alpha=1.0, dt_base=0.25, dt_min=0.25, dt_max=0.375, active=active)
        assert drive(dvs, [(0.25,)] * 3) == [0.375 if yes else 0.25 for yes in adapting]


def test_the_edge_of_the_range_in_the_authors_mode():
    """Active where t > 0.5. Five hundred steps of 0.001 add up to .5000000000000003, so step 500 already adapts."""
    dvs = Dvs(kappa=1.0, gamma=0.3, dt_base=1e-3, eps_bound=2e-3, ema_start="first", active=((0.5, 1.0),))
    dt = drive(dvs, [(4.0,)] * 502)
    assert dt[:500] == [1e-3] * 500
    # First active step: Vbar = V = 4, factor 1/2. Then 0.8 * 0.3 * 4 + 0.2 * 4 = 1.76.
    assert dt[500:] == pytest.approx([5e-4, 1e-3 / math.sqrt(1.76)], rel=1e-9)


def test_the_last_step_lands_on_the_end():
    dvs = Dvs(kappa=1.0, gamma=0.0, dt_base=0.3, dt_min=0.3, dt_max=0.3)
    dt = drive(dvs, [(1.0,)] * 4)
    assert dt == pytest.approx([0.3, 0.3, 0.3, 0.1])
    t = torch.tensor([0.3 + 0.3 + 0.3]).double()
    now = Measured(t, torch.tensor([3]), torch.ones(1, 1).double(), torch.ones(1, dtype=torch.bool), torch.ones(1, 1))
    assert float(dvs.propose(dvs.start(t, 1, 1 - 1e-4), now).t1) == 1 - 1e-4


@pytest.mark.parametrize("eps_bound", [1e-6, 2e-3])
def test_the_end_is_reached_within_eps_bound(eps_bound):
    dvs = Dvs(eps_bound=eps_bound)
    memory = dvs.start(seconds(0.0, 0.0, 0.0), 1, 1.0)
    t = seconds(1 - 2 * eps_bound, 1 - eps_bound, 1.0)
    assert dvs.finished(memory, t, t).tolist() == [False, True, True]


def test_least_left_is_a_lower_bound():
    """The loop relies on it to skip questions; too large a value would waste network calls."""
    dvs = Dvs(kappa=1e6, gamma=0.0, dt_base=0.01, dt_max=0.02)
    dt = drive(dvs, [(0.0,)] * 60)
    t, step = 0.0, 0
    while t < 1 - 1e-6:
        left = int(dvs.least_left(dvs.start(seconds(0.0), 1, 1.0), seconds(t), torch.tensor([step])))
        assert 1 <= left <= 51 - step  # 0.01 once, then 49 steps of 0.02 and 0.01 left: 51 in all
        t, step = t + dt[step], step + 1
    assert step == 51


def two_graphs(dvs: Dvs, v: list[list[float]], running=(True, True), entries=((1, 1), (1, 1))) -> list[float]:
    t = seconds(0.1, 0.1)
    step = torch.tensor([1, 1])
    now = Measured(t, step, torch.tensor(v).double(), torch.tensor(running), torch.tensor(entries))
    return dvs.propose(dvs.start(t, 2, 1.0), now).dt.tolist()


def test_reduction_over_the_batch_or_per_graph():
    settings = {"kappa": 1.0, "gamma": 0.0, "alpha": 1.0, "dt_base": 0.1, "dt_min": 1e-3, "dt_max": 0.9}
    batch, graph = Dvs(**settings), Dvs(**settings, reduction="graph")
    v = [[4.0, 1.0], [12.0, 27.0]]
    # Means over the graphs: (8, 14). Per graph: the larger of each row.
    assert two_graphs(batch, v) == pytest.approx([0.1 / math.sqrt(14)] * 2)
    assert two_graphs(graph, v) == pytest.approx([0.1 / 2, 0.1 / math.sqrt(27)])
    # A finished graph, or one that has just become non-finite, does not count.
    assert two_graphs(batch, v, running=(True, False)) == pytest.approx([0.05] * 2)
    assert two_graphs(batch, [[4.0, 1.0], [math.nan, 1.0]])[0] == pytest.approx(0.05)
    assert two_graphs(batch, [[4.0, 1.0], [math.inf, 1.0]])[0] == pytest.approx(0.05)
    assert batch.couples_graphs
    assert not graph.couples_graphs


def test_normalising_by_entries():
    dvs = Dvs(
        kappa=1.0,
        gamma=0.0,
        alpha=1.0,
        dt_base=0.1,
        dt_min=1e-3,
        dt_max=0.9,
        reduction="graph",
        normalize="entries",
    )
    # (40, 9) over (10, 1) entries: (4, 9). (40, 9) over (2, 9): (20, 1). No entries at all (one node): divide by one.
    assert two_graphs(dvs, [[40.0, 9.0], [40.0, 9.0]], entries=((10, 1), (2, 9))) == pytest.approx(
        [0.1 / 3, 0.1 / math.sqrt(20)]
    )
    assert two_graphs(dvs, [[4.0, 0.0], [4.0, 0.0]], entries=((1, 0), (1, 0))) == pytest.approx([0.05] * 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dt_min": 0.2, "dt_max": 0.1}, "0 < dt_min <= dt_max, got dt_min=0.2 and dt_max=0.1"),
        ({"dt_min": 0.0}, "0 < dt_min"),
        ({"active": ((0.5, 1.2),)}, "inside [0, 1], got ((0.5, 1.2),)"),
        ({"active": ((0.5, 0.5),)}, "intervals a < b"),
        ({"active": ()}, "active ranges"),
        ({"kappa": 0.0}, "kappa must be positive, got 0.0"),
        ({"kappa": math.nan}, "kappa must be positive"),
        ({"dt_base": -1.0}, "dt_base must be positive"),
        ({"alpha": 1.5}, "alpha must be in (0, 1]"),
        ({"gamma": -0.1}, "gamma must be zero or more"),
        ({"eps_bound": 1.0}, "eps_bound must be in [0, 1)"),
        ({"ema_start": "one"}, "ema_start must be one of"),
        ({"reduction": "sum"}, "reduction must be one of"),
        ({"normalize": "nodes"}, "normalize must be one of"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(settings, words):
    with pytest.raises(InputError) as caught:
        Dvs(**settings)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# -- the named schedule --------------------------------------------------------------------------------------------
def test_the_named_schedule_states_its_constants_at_a_thousand_steps():
    assert named_dvs(1000, gamma=0.3) == Dvs(gamma=0.3)
    short = named_dvs(50, kappa=2.0, dt_min=1e-4, dt_max=1e-2)
    assert (short.dt_base, short.kappa, *short.bounds) == pytest.approx((0.02, 40.0, 2e-3, 0.2))
    assert named_dvs(50).bounds == pytest.approx((0.004, 0.1))
    with pytest.raises(InputError, match="kappa must be positive, got 'two'"):
        named_dvs(50, kappa="two")


@pytest.mark.parametrize("model", ["rings-and-stars", "grum-qm9-small"])
@pytest.mark.parametrize("most", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_share_of_the_base_steps_does_not_depend_on_their_number(model: str, most: int):
    shares = [_share(model, steps) for steps in (20, 50, most)]
    assert max(shares) < 1.05 * min(shares)


def _share(model: str, steps: int) -> float:
    """Steps taken over base steps; the last, shorter step counts as its part."""
    trace = sample(model, 8, schedule="dvs", steps=steps, trace=1).solution.trace
    assert trace is not None
    return (len(trace) - 1 + min(1.0, float(trace["dt"][-1] / trace["dt"][-2]))) / steps


# -- what it is for ------------------------------------------------------------------------------------------------
# A bridge onto a law of width 0.02: near t = 1 the drift's Jacobian grows like 1/(1 - t), up to sigma^2/0.02^2.
STIFF = gaussian({"X": Bridge(sigma_0=0.4, sigma_1=0.2), "A": Bridge(sigma_0=0.4, sigma_1=0.2)}, std=0.02)


def information(controller, seed: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Times and ds2 of every step after the first (whose V has nothing to compare with)."""
    trace = integrate(STIFF, STIFF.prior(48, seed=1), controller, Euler(), PhiloxNoise(seed), trace=1).trace
    return trace["t"][1:], trace["ds2"][1:]


def variation_coefficient(ds2: torch.Tensor) -> float:
    return float(ds2.std() / ds2.mean())


@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_dvs_flattens_the_information_increments(beta):
    """Coefficient of variation of ds2 at least 3 times smaller than with uniform steps at the same number of calls."""
    dvs = Dvs(kappa=10.0, dt_base=2e-3, dt_min=1e-5, dt_max=2e-2, beta=beta)
    _, adaptive = information(dvs)
    _, even = information(uniform(len(adaptive) + 1))
    assert len(adaptive) == len(even)
    assert variation_coefficient(even) > 3 * variation_coefficient(adaptive)


def jacobian(t: torch.Tensor) -> torch.Tensor:
    """|df/dx| of the stiff model, the same for every entry."""
    process = STIFF.processes["X"]
    m, std = process.marginal(t)
    gain = m * 0.02**2 / ((m * 0.02).square() + std.square())
    return (process.pull(t) * (1 - gain)).abs()


@pytest.mark.parametrize(
    ("controller", "slope"),
    [
        (uniform(150), 1.0),
        (Dvs(kappa=10.0, dt_base=2e-3, dt_min=1e-7, dt_max=0.02, beta=0.5, alpha=1.0), 1 / 3),
        (Dvs(kappa=10.0, dt_base=2e-3, dt_min=1e-7, dt_max=0.02, beta=1.0, alpha=0.3), 0.0),
    ],
    ids=["even", "half", "one"],
)
def test_how_flat_depends_on_beta(controller, slope):
    """ds2 ~ (J^2)^((1 - beta)/(1 + beta)): flat for beta = 1, a cube root for the paper's 1/2, J^2 for even steps."""
    t, ds2 = information(controller)
    # The stretch where the Jacobian grows like 1/(1 - t), over more than a decade.
    part = (t > 0.3) & (t < 0.98)
    x, y = 2 * jacobian(t[part]).log(), ds2[part].log()
    x, y = x - x.mean(), y - y.mean()
    assert abs(float((x * y).sum() / x.square().sum()) - slope) < 0.1


def alternation(beta: float, alpha: float) -> float:
    """Mean ratio between neighbouring steps (larger over smaller) in the second half of a smooth model's steps."""
    model = gaussian(dict.fromkeys(("X", "A"), Bridge(sigma_0=0.4, sigma_1=0.4)), std=0.5)
    dvs = Dvs(kappa=1.0, dt_base=5e-3, dt_min=1e-6, dt_max=0.1, gamma=0.5, beta=beta, alpha=alpha)
    dt = integrate(model, model.prior(48), dvs, Euler(), PhiloxNoise(2), trace=1).trace["dt"]
    log = dt[len(dt) // 2 : -1].log()
    return float(log.diff().abs().mean().exp())


def test_why_beta_one_needs_the_average():
    """V grows with the step before it, so the next step answers with dt^-beta: with beta = 1 and no EMA it swings."""
    assert alternation(beta=1.0, alpha=1.0) > 2
    assert alternation(beta=1.0, alpha=0.2) < 1.15
    assert alternation(beta=0.5, alpha=1.0) < 1.15
