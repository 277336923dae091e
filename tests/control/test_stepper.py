"""A plain loop around `DvsStepper` takes the steps that ours takes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import isostep
from isostep.base.errors import InputError
from isostep.control.dvs import dvs
from isostep.control.stepper import DvsStepper
from isostep.loop import integrate
from isostep.network.analytic import gaussian
from isostep.noise import PREDICTOR, Draw, PhiloxNoise
from isostep.process import VE, Bridge
from isostep.solver import Euler
from isostep.state import GraphState

CASES = {
    "batch": {"kappa": 0.1, "gamma": 0.3},
    "graph": {"kappa": 0.1, "gamma": 0.3, "reduction": "graph"},
    "authors": {"kappa": 0.2, "gamma": 0.2, "ema_start": "first", "active": [[0.3, 1.0]], "eps_bound": 2e-3},
    "entries": {"kappa": 0.01, "reduction": "graph", "normalize": "entries"},
}
MODELS = {
    "bridge": gaussian({"X": Bridge(sigma_0=0.4, sigma_1=0.2), "A": Bridge(sigma_0=0.4, sigma_1=0.2)}, std=0.05),
    "score": gaussian({"X": VE(), "A": VE()}),
}


def plain_loop(model, start: GraphState, stepper: DvsStepper) -> tuple[GraphState, list[Tensor]]:
    """Euler-Maruyama as a stranger would write it, with the library's noise."""
    state, steps, noise, index = start, [], PhiloxNoise(3), torch.arange(start.batch)
    while not stepper.done:
        t = stepper.t.expand(start.batch)
        drift = model.sde.evaluate(state, t).drift
        g = {name: process.diffusion(t) for name, process in model.processes.items()}
        entries = {name: state.free_entries(name) for name in drift}
        dt = stepper(drift, g, entries).expand(start.batch)
        z = noise.normal(state, Draw(index, torch.full_like(index, len(steps)), t, t + dt), PREDICTOR)
        h = dt[:, None, None].float()
        moved = {
            n: x + drift[n] * h + g[n][:, None, None].float() * h.sqrt() * z[n] for n, x in state.components.items()
        }
        # A finished graph's drift may be singular: it stays.
        state = state.replace({n: torch.where(h > 0, moved[n], x) for n, x in state.components.items()})
        steps.append(dt)
    return state, steps


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", MODELS)
def test_the_same_steps_as_in_our_loop(name: str, case: str) -> None:
    model, options, t_end = MODELS[name], CASES[case], MODELS[name].sde.t_end
    start = model.prior(5, seed=2, mask=torch.tensor([[1, 1, 1, 1]] * 3 + [[1, 1, 0, 0]] * 2).float())
    ours = integrate(model.sde, start, dvs(40, **options), Euler(), PhiloxNoise(3), trace=1)
    assert ours.trace is not None
    state, steps = plain_loop(model, start, isostep.DvsStepper(steps=40, t_end=t_end, **options))
    taken = torch.stack(steps, 1)
    for graph in range(5):
        rows = ours.trace["graph"] == (-1 if options.get("reduction") != "graph" else graph)
        dt = ours.trace["dt"][rows]
        torch.testing.assert_close(taken[graph][: len(dt)], dt, rtol=1e-4, atol=1e-7)
        assert not taken[graph][len(dt) :].any()
        assert dt.max() > 1.5 * dt[:-1].min()  # the case adapts
    for component, x in ours.state.components.items():
        torch.testing.assert_close(state[component], x, rtol=0, atol=1e-4)


def test_the_clock_ends_at_t_end() -> None:
    stepper = DvsStepper(steps=10, t_end=1 - 1e-4)
    total = 0.0
    while not stepper.done:
        assert float(stepper.t) == pytest.approx(total)
        total += float(stepper({"X": torch.randn(2, 3)}, {"X": 0.5}))
    assert float(stepper.t) == 1 - 1e-4


def test_wrong_use_is_refused_in_one_line() -> None:
    x, a = torch.zeros(2, 3), torch.zeros(2, 3, 3)
    with pytest.raises(InputError, match="got \\[1, 2\\] rows"):
        DvsStepper()({"X": x[:1], "A": a}, {"X": 1.0, "A": 1.0})
    with pytest.raises(InputError, match="g of \\['X'\\]"):
        DvsStepper()({"X": x, "A": a}, {"X": 1.0})
    with pytest.raises(InputError, match="needs entries"):
        DvsStepper(normalize="entries")({"X": x}, {"X": 1.0})
    stepper = DvsStepper()
    stepper({"X": x}, {"X": 1.0})
    with pytest.raises(InputError, match="a new DvsStepper"):
        stepper({"X": x[:1]}, {"X": 1.0})
