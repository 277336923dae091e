"""One step of each solver against arithmetic written out here; bridges end at the prediction; wrong pairs."""

from __future__ import annotations

import math

import pytest
import torch

from isostep.base.errors import InputError
from isostep.control import Grid, gdss, uniform
from isostep.loop import integrate
from isostep.network.analytic import gaussian
from isostep.noise import CORRECTOR, FIRST_HALF, PREDICTOR, SECOND_HALF, Draw, PhiloxNoise, RecordedNoise
from isostep.process import VE, VP, Bridge, ProcessSde, SubVP, noisier_step
from isostep.solver import S4, Corrected, Euler, Exponential, Heun, Langevin, ReverseDiffusion
from isostep.state import GraphState
from tests.problems import PROCESSES, chatter, gaussians, noisy_graphs, seconds

# One graph with one number; noise z depends on the stream only.
X0 = 0.8
Z = {PREDICTOR: 0.5, CORRECTOR: -1.2, FIRST_HALF: 0.3, SECOND_HALF: -0.4}


def number(value: float = X0) -> GraphState:
    return GraphState.of(torch.ones(1, 1), y=torch.tensor([[value]]).double())


def noise() -> RecordedNoise:
    def pattern(like: GraphState, draw: Draw, stream: int) -> dict[str, torch.Tensor]:
        return {n: torch.full_like(x, Z[stream]) for n, x in like.components.items()}

    return RecordedNoise(pattern)


class Own:
    """f = -2 x + t, g = 1 + t."""

    def drift(self, state, t):
        return {"y": -2 * state["y"] + t[:, None]}

    def diffusion(self, t):
        return 1 + t


def scored(process) -> ProcessSde:
    """A network whose score is -x."""
    return ProcessSde(lambda state, t: {"y": -state["y"]}, {"y": process}, raw=False)


def first_step(model, solver, t1: float = 0.2) -> tuple[float, float]:
    """State and denoised mean after the first step, from t = 0 to t1 (on GDSS' grid: of length t1)."""
    seen = []
    controller = gdss(round(1 / t1)) if isinstance(model, ProcessSde) else Grid((0.0, t1, 1.0))
    integrate(model, number(), controller, solver, noise(), hooks=(seen.append,))
    return float(seen[0].state["y"]), float(seen[0].mean["y"])


def test_euler():
    mean = X0 + 0.2 * (-2 * X0)
    assert first_step(Own(), Euler()) == pytest.approx((mean + 1 * math.sqrt(0.2) * 0.5, mean))


def test_heun_with_a_mean_predictor():
    f1 = -2 * X0
    f2 = -2 * (X0 + 0.2 * f1) + 0.2
    mean = X0 + 0.2 * (f1 + f2) / 2
    assert first_step(Own(), Heun()) == pytest.approx((mean + math.sqrt(0.2) * 0.5, mean))


def test_heun_with_a_noisy_predictor():
    f1 = -2 * X0
    f2 = -2 * (X0 + 0.2 * f1 + math.sqrt(0.2) * 0.5) + 0.2
    mean = X0 + 0.2 * (f1 + f2) / 2
    assert first_step(Own(), Heun("noisy")) == pytest.approx((mean + math.sqrt(0.2) * 0.5, mean))


def test_euler_on_gdss_own_grid():
    """VE(0.1, 1) at s = 1: g^2 = 2 ln 10; the step is 1/N whatever the spacing of the times."""
    g2 = 2 * math.log(10)
    mean = X0 + g2 * (-X0) / 5
    assert first_step(scored(VE()), Euler()) == pytest.approx((mean + math.sqrt(g2 / 5) * 0.5, mean))


def test_reverse_diffusion():
    """At s = 1: VP's beta_i = 1/5; VE's G^2 = 1 - sigma(3/4)^2, sigma(3/4) = 0.1 * 10^0.75."""
    beta = 1.0 / 5
    mean = X0 - (math.sqrt(1 - beta) - 1) * X0 + beta * (-X0)
    assert first_step(scored(VP()), ReverseDiffusion()) == pytest.approx((mean + math.sqrt(beta) * 0.5, mean))
    g2 = 1 - (0.1 * 10**0.75) ** 2
    mean = X0 - g2 * X0
    assert first_step(scored(VE()), ReverseDiffusion()) == pytest.approx((mean + math.sqrt(g2) * 0.5, mean))


def langevin_by_hand(x: float, factor: float, snr: float, scale: float) -> float:
    """r = -x, so ||r|| = |x|; ||z|| = 1.2."""
    eps = 2 * factor * (snr * 1.2 / abs(x)) ** 2
    return x + eps * (-x) + scale * math.sqrt(2 * eps) * Z[CORRECTOR]


@pytest.mark.parametrize("norms", ["batch", "graph"])
def test_langevin_corrector_comes_before_the_predictor(norms):
    g2 = 2 * math.log(10)
    x = langevin_by_hand(X0, 1.0, 0.16, 0.7)
    mean = x + g2 * (-x) / 5
    solver = Corrected(Euler(), Langevin(snr=0.16, scale=0.7, norms=norms))
    assert first_step(scored(VE()), solver) == pytest.approx((mean + math.sqrt(g2 / 5) * 0.5, mean))
    # VP: a = 1 - beta_i with the corrector's own N.
    x = langevin_by_hand(X0, 1 - 1.0 / 1000, 0.16, 0.7)
    mean = x + (0.5 * x - x) / 5
    assert first_step(scored(VP()), solver) == pytest.approx((mean + math.sqrt(0.2) * 0.5, mean))


def test_langevin_norms_are_means_over_the_batch_or_each_graphs_own():
    """Two graphs with |x| = 1 and 3, same z: the batch's step uses the mean norm 2."""
    state = GraphState.of(torch.ones(2, 1), y=torch.tensor([[1.0], [3.0]]).double())
    out = {}
    for norms in ("batch", "graph"):
        seen = []
        solver = Corrected(Euler(), Langevin(snr=0.1, scale=1.0, norms=norms))
        integrate(scored(VE()), state, gdss(1000), solver, noise(), hooks=(seen.append,), max_steps=1)
        g2 = 2 * math.log(10)
        # Undo the Euler step: x' = x (1 - g2/N) + g sqrt(1/N) z.
        after = seen[0].state["y"][:, 0]
        out[norms] = ((after - math.sqrt(g2 / 1000) * 0.5) / (1 - g2 / 1000)).tolist()

    def corrected(x: float, norm: float) -> float:
        eps = 2 * (0.1 * 1.2 / norm) ** 2
        return x - eps * x + math.sqrt(2 * eps) * Z[CORRECTOR]

    assert out["batch"] == pytest.approx([corrected(1.0, 2.0), corrected(3.0, 2.0)])
    assert out["graph"] == pytest.approx([corrected(1.0, 1.0), corrected(3.0, 3.0)])


def test_s4():
    """VE at s = 1, N = 5: correction with score -X0; half steps with sd^2 = sigma(1)^2 - sigma(0.9)^2 and
    sigma(0.9)^2 - sigma(0.8)^2; between them g^2/N times the score of the uncorrected state."""
    x = langevin_by_hand(X0, 1.0, 0.1, 0.7)
    sigma2 = {s: (0.1 * 10**s) ** 2 for s in (1.0, 0.9, 0.8)}
    x += math.sqrt(sigma2[1.0] - sigma2[0.9]) * Z[FIRST_HALF]
    x += 2 * math.log(10) / 5 * (-X0)
    expected = (x + math.sqrt(sigma2[0.9] - sigma2[0.8]) * Z[SECOND_HALF], x)
    assert first_step(scored(VE()), S4(Langevin(snr=0.1, scale=0.7))) == pytest.approx(expected)


def test_exponential_step_and_its_extrapolation():
    """Brownian bridge, sigma = 1, with D = x^2: to 0.2: x + 0.2 (D - x), variance 0.2 * 0.8. Then, from 0.2 to 0.5, D
    is extrapolated by 0.3/(2 * 0.2) (D - D_prev), and the mean moves by 0.3/0.8."""
    sde = ProcessSde(lambda state, t: {"y": state["y"].square()}, {"y": Bridge(sigma_0=1.0, sigma_1=1.0)}, raw=False)
    for order in (1, 2):
        seen = []
        integrate(sde, number(), Grid((0.0, 0.2, 0.5, 1.0)), Exponential(order), noise(), hooks=(seen.append,))
        x1 = X0 + 0.2 * (X0**2 - X0) + math.sqrt(0.2 * 0.8) * 0.5
        assert float(seen[0].state["y"]) == pytest.approx(x1)
        d = x1**2 + (0.3 / 0.4 * (x1**2 - X0**2) if order == 2 else 0)
        mean = x1 + 0.3 / 0.8 * (d - x1)
        assert float(seen[1].mean["y"]) == pytest.approx(mean)
        assert float(seen[1].state["y"]) == pytest.approx(mean + math.sqrt(0.3 * 0.5 / 0.8) * 0.5)


def test_extrapolation_is_bounded():
    """A step twenty times the last one would multiply the noise in D - D_prev by ten; the weight stays at one."""
    sde = ProcessSde(lambda state, t: {"y": state["y"].square()}, {"y": Bridge(sigma_0=1.0, sigma_1=1.0)}, raw=False)
    seen = []
    integrate(sde, number(), Grid((0.0, 0.01, 0.21, 1.0)), Exponential(2), noise(), hooks=(seen.append,))
    x1 = float(seen[0].state["y"])
    mean = x1 + 0.2 / 0.99 * (x1**2 + (x1**2 - X0**2) - x1)
    assert float(seen[1].mean["y"]) == pytest.approx(mean)


@pytest.mark.parametrize("eta", [1.0, 0.0, 0.5, 3.0])
@pytest.mark.parametrize("name", PROCESSES)
def test_one_exponential_step_with_a_fixed_prediction_equals_a_thousand(name, eta):
    """Mean by the deterministic part; the variance by a unit impulse in every step (its squares add up)."""
    process, clean, steps = PROCESSES[name], 1.7, 1000
    m, std = (float(v) for v in process.marginal(seconds(0.0)))

    def network(state: GraphState, t: torch.Tensor) -> dict[str, torch.Tensor]:
        if process.estimates == "clean":
            return {"y": torch.full_like(state["y"], clean)}
        m, std = (v[:, None] for v in process.marginal(t))
        return {"y": (m * clean - state["y"]) / std.square()}

    sde = ProcessSde(network, {"y": process}, raw=False)
    x0 = m * clean + std
    start = GraphState.of(torch.ones(steps + 1, 1), y=torch.full((steps + 1, 1), x0, dtype=torch.float64))

    def impulse(like: GraphState, draw: Draw, stream: int) -> dict[str, torch.Tensor]:
        return {"y": (draw.index - 1 == draw.step).double()[:, None]}

    half = Grid((0.0, *(i / (2 * steps) for i in range(1, steps)), 0.5, 1.0))
    solution = integrate(sde, start, half, Exponential(eta=eta), RecordedNoise(impulse), max_steps=steps)
    many = solution.state["y"].flatten()
    step = noisier_step(process, seconds(0.0), seconds(0.5 * sde.t_end), eta)
    assert float(many[0]) == pytest.approx(float(step.x) * x0 + float(step.clean) * clean, rel=1e-9)
    assert float((many[1:] - many[0]).square().sum()) == pytest.approx(float(step.std) ** 2, rel=1e-9, abs=1e-15)


def test_more_noise_by_hand():
    """Brownian bridge, sigma = 1, D = 1.5, prior N(0, 1), from .2 to .5: m = t and v = (1-t)^2 + t (1-t) = 1 - t, and
    given D, cov(x_.2, x_.5) = .5/.8 * .8 = .5, so r = .5 / (.8 * .5)^(1/2). With eta = 3 it is r^9."""
    step = noisier_step(Bridge(sigma_0=1.0, sigma_1=1.0), seconds(0.2), seconds(0.5), 3.0)
    r = (0.5 / math.sqrt(0.8 * 0.5)) ** 9
    x = r * math.sqrt(0.5 / 0.8)
    assert [float(v) for v in step] == pytest.approx([x, 0.5 - x * 0.2, math.sqrt(0.5 * (1 - r**2))], rel=1e-12)


@pytest.mark.parametrize("eta", [-1.0, 1001.0, float("nan")])
def test_noise_that_makes_no_sense_is_refused(eta):
    with pytest.raises(InputError, match="eta is between 0 and 1000"):
        Exponential(eta=eta)


@pytest.mark.parametrize("process", [Bridge(), Bridge(drift_coeff=-2.0)], ids=["BB", "OU"])
def test_bridges_end_at_the_prediction(process):
    """The exponential step returns the last prediction itself, without noise; Euler's mean tends to it."""
    model = chatter(process)
    state = noisy_graphs([4, 3]).to(dtype=torch.float64)
    predicted = []

    def network(state: GraphState, t: torch.Tensor) -> dict[str, torch.Tensor]:
        predicted.append(model(state, t))
        return predicted[-1]

    sde = ProcessSde(network, model.processes, raw=False)
    exact = integrate(sde, state, uniform(10), Exponential())
    for name in ("X", "A"):
        torch.testing.assert_close(exact.state[name], predicted[-1][name], rtol=0, atol=1e-12)
    gaps = []
    for steps in (10, 100):
        euler = integrate(sde, state, uniform(steps), Euler())
        gaps.append(float((euler.mean["X"] - predicted[-1]["X"]).abs().max()))
    assert gaps[1] < 0.15 * gaps[0]
    even = ProcessSde(network, dict.fromkeys(("X", "A"), Bridge(sigma_0=0.3, sigma_1=0.3)), raw=False)
    euler = integrate(even, state, uniform(10), Euler())
    torch.testing.assert_close(euler.mean["X"], predicted[-1]["X"], rtol=0, atol=1e-12)  # constant sigma: exactly


def test_heun_never_evaluates_a_bridge_at_its_pole():
    times = []
    model = chatter(Bridge())

    def network(state: GraphState, t: torch.Tensor) -> dict[str, torch.Tensor]:
        times.append(float(t.max()))
        return model(state, t)

    sde = ProcessSde(network, model.processes, raw=False)
    solution = integrate(sde, noisy_graphs([4]), uniform(5), Heun()).raise_failures()
    assert max(times) < 1
    assert len(times) == solution.batch_calls == 10
    # The last step is an Euler step.
    assert torch.isfinite(solution.state["A"]).all()


def test_heun_on_gdss_own_grid_stays_where_the_score_is_defined():
    """That grid ends at t = 1, where VP's score is infinite."""
    model = gaussians(["VP"])
    integrate(model, model.prior(3), gdss(10), Heun()).raise_failures()


@pytest.mark.parametrize(
    ("solver", "calls"),
    [
        (Euler(), 1),
        (Heun(), 2),
        (Exponential(order=2), 1),
        (ReverseDiffusion(), 1),
        (S4(), 1),
        (Corrected(Euler(), Langevin()), 2),
        (Corrected(Heun(), Langevin()), 3),
    ],
)
def test_declared_calls_are_the_calls_made(solver, calls):
    made = []
    model = chatter(VP())

    def network(state: GraphState, t: torch.Tensor) -> dict[str, torch.Tensor]:
        made.append(state.batch)
        return model(state, t)

    solution = integrate(ProcessSde(network, model.processes, raw=False), noisy_graphs([3, 2]), uniform(4), solver)
    assert solver.calls_per_step == calls
    assert len(made) == solution.batch_calls == 4 * calls
    assert solution.calls.tolist() == [4 * calls] * 2


@pytest.mark.parametrize(
    ("solver", "model", "words"),
    [
        (Exponential(), Own(), "exponential solver needs a model with known processes"),
        (Corrected(Euler(), Langevin()), Own(), "Langevin-corrected solver needs a model with known processes"),
        (ReverseDiffusion(), chatter(Bridge()), "component X is a Bridge: use euler, heun or exponential"),
        (S4(), chatter(Bridge()), "component X is a Bridge"),
        (S4(), chatter(SubVP()), "no half step for SubVP"),
    ],
)
def test_solvers_refuse_models_they_cannot_integrate(solver, model, words):
    state = number() if isinstance(model, Own) else noisy_graphs([3])
    with pytest.raises(InputError, match=words):
        integrate(model, state, uniform(2), solver, PhiloxNoise(0))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Exponential(order=3), "order 1 or 2, got 3"),
        (lambda: Heun("median"), "predictor must be 'mean' or 'noisy', got 'median'"),
        (lambda: Langevin(snr=0.0), "snr > 0"),
        (lambda: Langevin(norms="all"), "norms must be 'batch' or 'graph', got 'all'"),
    ],
)
def test_wrong_settings(make, words):
    with pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize("tau", [-0.1, 101.0, float("nan"), True, "cold", {"A": -1.0}, (0.5,), (0.5, -1.0)])
def test_a_temperature_that_makes_no_sense_is_refused(tau):
    with pytest.raises(InputError, match="a temperature is a number between 0 and 100"):
        Exponential(temperature=tau)


def test_a_temperature_for_a_component_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="'B', but the model's components are X, A"):
        Exponential(temperature={"X": 0.5, "B": 0.5}).check(chatter().sde)


@pytest.mark.parametrize("name", PROCESSES)
def test_a_clean_end_is_the_last_prediction(name):
    """Of VE, too, which ends at sigma_min; the others end there anyway, and the state is as it was."""
    process = PROCESSES[name]
    model = gaussian(dict.fromkeys("XA", process), std=0.3)
    start = model.prior(3, dtype=torch.float64)
    here = model.sde.evaluate(start, torch.zeros(3, dtype=torch.float64))
    predicted = process.clean(start["A"], here.estimate["A"], torch.zeros(3, dtype=torch.float64))
    plain, clean = (
        integrate(model, start, uniform(1), Exponential(clean_end=end), PhiloxNoise(3)) for end in (False, True)
    )
    assert torch.equal(plain.state["A"], clean.state["A"])
    assert torch.equal(clean.mean["A"], predicted)
    assert torch.allclose(plain.mean["A"], predicted, atol=1e-4) == (name != "VE")  # VP ends with next to no noise
