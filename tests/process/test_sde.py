"""The whole graph's SDE: own models, checks of what they return, component order, the probability-flow ODE."""

from __future__ import annotations

import pytest
import torch

from isostep.base.errors import InputError
from isostep.control import uniform
from isostep.loop import integrate
from isostep.process import VE, VP, Bridge, DriftSde, FlowSde, ProcessSde, as_sde
from isostep.solver import Euler, Exponential, Heun
from isostep.solver.flow import ProbabilityFlow
from isostep.state import GraphState
from tests.problems import PROCESSES, SCORE, exact_start, free, gaussians, law, noisy_graphs, seconds


class Pull:
    """Own model: everything is pulled to 1."""

    def drift(self, state, t):
        return {name: 1 - x for name, x in state.components.items()}

    def diffusion(self, t):
        return 0.5


def with_drift(**changes) -> Pull:
    """Pull with some components of the drift replaced."""
    model = Pull()
    plain = model.drift
    model.drift = lambda state, t: {**plain(state, t), **changes}
    return model


def test_an_own_drift_is_masked_cast_and_made_exactly_symmetric():
    state = noisy_graphs([3, 2])
    rounding = torch.zeros(2, 3, 3, dtype=torch.float64)
    rounding[:, 0, 1], rounding[:, 1, 0] = 1.0, 1.0 + 1e-6
    rounding[:, 2, 2] = torch.nan
    drift = as_sde(with_drift(A=rounding)).evaluate(state, seconds(0.0, 0.0)).drift
    assert drift["A"].dtype == state["A"].dtype
    assert torch.equal(drift["A"], drift["A"].mT)
    assert drift["A"].isfinite().all()
    assert drift["X"][1, 2].abs().sum() == 0


def test_one_diffusion_for_all_components_or_one_for_each():
    state = noisy_graphs([2])
    assert float(as_sde(Pull()).evaluate(state, seconds(0.3)).diffusion["A"]) == 0.5
    model = Pull()
    model.diffusion = lambda t: {"A": t + 1, "X": 2.0}
    diffusion = as_sde(model).evaluate(state, seconds(0.5)).diffusion
    assert (float(diffusion["X"]), float(diffusion["A"])) == (2.0, 1.5)


def asymmetric() -> torch.Tensor:
    return torch.tensor([[0.0, 1.0], [2.0, 0.0]]).expand(1, 2, 2)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (with_drift(A=torch.zeros(1, 3, 3)), r"drift of component A has shape \(1, 3, 3\), the state has \(1, 2, 2\)"),
        (with_drift(A=[[0.0]]), "drift of component A has shape list"),
        (with_drift(B=torch.zeros(1, 2, 2)), "mapping with components"),
        (with_drift(A=asymmetric()), "drift of edge component A is not symmetric"),
    ],
)
def test_a_wrong_drift_is_refused_at_the_first_call(model, words):
    steps = []
    with pytest.raises(InputError, match=words):
        integrate(model, noisy_graphs([2]), uniform(5), Euler(), hooks=(steps.append,))
    assert not steps


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (torch.ones(3), r"diffusion of component X has shape \(3,\)"),
        ({"X": 1.0}, "diffusion names"),
    ],
)
def test_a_wrong_diffusion_is_refused(given, words):
    model = Pull()
    model.diffusion = lambda t: given
    with pytest.raises(InputError, match=words):
        integrate(model, noisy_graphs([2, 2]), uniform(2), Euler())


def test_objects_that_are_no_models():
    with pytest.raises(InputError, match=r"cannot sample from int: it needs drift\(state, t\) and diffusion"):
        as_sde(3)
    late = Pull()
    late.t_end = 5.0
    with pytest.raises(InputError, match=r"t_end of a model must lie in \(0, 1\], got 5.0"):
        as_sde(late)
    assert isinstance(as_sde(Pull()), DriftSde)


def test_a_network_of_the_wrong_shape_is_refused():
    sde = ProcessSde(lambda state, t: {"X": state["X"][:, :1], "A": state["A"]}, {"X": VE(), "A": VE()})
    with pytest.raises(InputError, match="network output of component X has shape"):
        integrate(sde, noisy_graphs([3]), uniform(2), Euler())


def test_columns_of_v_belong_to_their_component_whatever_the_order_of_processes():
    """X is constant (V = 0) and A is not; the processes are listed in the other order."""

    def network(state: GraphState, t):
        return {"A": torch.zeros_like(state["A"]), "X": state["X"]}

    frozen, moving = VE(sigma_min=0.5, sigma_max=0.5000001), Bridge()
    sde = ProcessSde(network, {"A": moving, "X": frozen}, raw=False)
    trace = integrate(sde, noisy_graphs([4, 4]), uniform(6), Euler(), trace=1).trace
    assert float(trace["V_A"][1:].min()) > 1e-3 > float(trace["V_X"].max())


@pytest.mark.parametrize("name", SCORE)
def test_the_flow_carries_the_exact_law_without_noise(name):
    """Probability-flow ODE of the Gaussian model: x_T = mean_T + std_T/std_0 (x_0 - mean_0), entry by entry."""
    model = gaussians([name])
    state = exact_start(model, 5, seed=1)
    process = PROCESSES[name]
    out = integrate(model, state, uniform(100), ProbabilityFlow(Heun()))
    (mean0, std0), (mean1, std1) = law(process, 0.0), law(process, process.t_end)
    expected = mean1 + std1 / std0 * (free(state, name) - mean0)
    torch.testing.assert_close(free(out.state, name), expected, rtol=0, atol=2e-3)
    assert torch.equal(out.state[name], out.mean[name])


def test_what_has_no_flow():
    mixed = ProcessSde(lambda s, t: s.components, {"X": Bridge(), "A": VP()})
    with pytest.raises(InputError, match="probability-flow ODE needs score processes"):
        FlowSde(mixed)
    state = noisy_graphs([3])
    with pytest.raises(InputError, match="component X is a Bridge"):
        integrate(mixed, state, uniform(2), ProbabilityFlow(Heun()))
    scores = ProcessSde(lambda s, t: s.components, {"X": VP(), "A": VP()})
    with pytest.raises(InputError, match="stepped by Euler or Heun, not by Exponential"):
        integrate(scores, state, uniform(2), ProbabilityFlow(Exponential()))
    with pytest.raises(InputError, match=r"give the model itself, and ProbabilityFlow\(solver\)"):
        integrate(FlowSde(scores), state, uniform(2), Euler())
