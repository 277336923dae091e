"""Error control: rejected steps meet the same Brownian path, tolerance decides the work, the law stays right."""

from __future__ import annotations

import pytest
import torch

from isostep.base.errors import InputError
from isostep.control import uniform
from isostep.control.error import ErrorControl
from isostep.loop import integrate
from isostep.network.analytic import gaussian
from isostep.noise import BrownianTree
from isostep.process import Bridge
from isostep.solver import Euler, Heun

MODEL = gaussian({n: Bridge(sigma_0=0.4, sigma_1=0.2) for n in "XA"}, std=0.3)


def run(tolerance: float, count: int = 64):
    solver = Heun(predictor="noisy", tolerance=tolerance)
    return integrate(MODEL, MODEL.prior(count), ErrorControl(dt_first=0.05), solver, BrownianTree(3))


def test_a_smaller_tolerance_takes_more_steps_and_some_tries_are_rejected():
    loose, tight = run(0.1), run(0.01)
    assert float(tight.steps.double().mean()) > 1.5 * float(loose.steps.double().mean())
    assert (tight.calls > 2 * tight.steps).any(), "no step was ever rejected"
    assert tight.counts()["done"] == 64


def test_the_path_is_kept_on_rejection():
    """The adaptive solution converges to that of fine uniform steps on the same Brownian path."""

    def gap(one, other) -> float:  # with the last step's noise: the denoised means end at different times
        return float((one.state["X"] - other.state["X"]).square().mean().sqrt())

    fine = integrate(MODEL, MODEL.prior(16), uniform(256), Euler(), BrownianTree(3))
    loose, tight = run(0.1, 16), run(0.003, 16)
    unrelated = gap(integrate(MODEL, MODEL.prior(16), uniform(16), Euler(), BrownianTree(4)), fine)
    assert gap(tight, fine) < 0.4 * gap(loose, fine)
    assert gap(tight, fine) < 0.05 * unrelated


def test_the_terminal_law_is_right():
    solution = run(0.02, count=600)
    x = solution.state["X"].double()
    error = 0.3 / 600**0.5
    assert (x.mean(0) - MODEL.means["X"][0]).abs().max() < 4.5 * error + 0.01
    assert float(x.std(0).mean()) == pytest.approx(0.3, rel=0.06)


def test_a_graph_does_not_depend_on_its_batch():
    solver, control = Heun(predictor="noisy", tolerance=0.03), ErrorControl()
    together = integrate(MODEL, MODEL.prior(5), control, solver, BrownianTree(3))
    alone = MODEL.prior(5).take(torch.tensor([3]))
    single = integrate(MODEL, alone, control, solver, BrownianTree(3), torch.tensor([3]))
    assert torch.allclose(single.mean["A"][0], together.mean["A"][3], atol=1e-5)
    assert int(single.steps) == int(together.steps[3])


def test_a_solver_without_an_estimate_is_refused():
    with pytest.raises(InputError, match="heun-error"):
        integrate(MODEL, MODEL.prior(2), ErrorControl(), Euler(), BrownianTree(0))
    with pytest.raises(InputError, match="dt_min"):
        ErrorControl(dt_min=0.5, dt_max=0.1)


def test_a_run_ends_less_than_a_step_before_the_end():
    for bound in (float("nan"), -1e-9, 0.9):
        with pytest.raises(InputError, match="eps_bound must be from 0 to dt_min"):
            ErrorControl(eps_bound=bound)
