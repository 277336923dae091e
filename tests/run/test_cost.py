"""The cost model: formula, simulation, and what is measured."""

from __future__ import annotations

import numpy as np
import pytest

from isostep.base.errors import InputError
from isostep.model.analytic import analytic_model
from isostep.run.cost import StepCost, estimate, measure_steps, simulate
from isostep.sampling.run import sample
from isostep.settings.schema import SamplerSettings

EVEN = StepCost(
    step_seconds=(0.5, 0.5), steps=10, calls_per_step=1, decode_seconds=0, batch_size=10, bytes_per_graph=7, memory=1
)


def test_the_formula_is_the_simulation_where_steps_are_even():
    for n, workers in ((1000, 1), (1000, 3), (1000, 7), (950, 100)):
        cost = estimate(EVEN, n, workers, shard_size=10)
        assert cost.seconds == pytest.approx(cost.low) == pytest.approx(cost.high) == -(-n // 10 // workers) * 5
        assert (cost.disk, cost.shards) == (7 * n, -(-n // 10))


def test_failures_cost_what_renewal_theory_says():
    """Work of length L that restarts at rate r takes (e^(rL) - 1) (1/r + pause) on average."""
    random, rate, length, pause = np.random.default_rng(0), 0.1, 5.0, 2.0
    ends = [simulate(length, 0.0, 1, 1, rate, pause, random) for _ in range(4000)]
    expected = (np.exp(rate * length) - 1) * (1 / rate + pause)
    assert np.mean(ends) == pytest.approx(expected, rel=0.05)


def test_the_measured_batch_is_the_real_one():
    settings = SamplerSettings(schedule="uniform", steps=30)
    cost = measure_steps(analytic_model(), settings, batch_size=64)
    assert cost.steps == 30
    assert cost.memory > 0
    assert len(cost.step_seconds) >= 10


@pytest.mark.parametrize(
    ("chosen", "off"),
    [
        ({"solver": "euler"}, 0),
        ({"solver": "heun"}, 0),
        ({"solver": "heun", "corrector": "langevin"}, 0),
        ({"schedule": "dvs", "clock": "batch"}, 0.1),  # every batch takes its own steps
        ({"schedule": "error", "solver": "heun-error"}, 0.1),  # a quarter of the steps is rejected
    ],
    ids=str,
)
def test_the_calls_are_those_that_sampling_makes(chosen, off):
    """Also those of a last batch that is not full."""
    settings = SamplerSettings(**{"schedule": "uniform", "steps": 20, **chosen})
    cost = estimate(measure_steps(analytic_model(), settings, batch_size=8), 20, workers=1, shard_size=8)
    made = sample(analytic_model(), 20, batch_size=8, settings=settings).batch_calls
    assert cost.network_calls == pytest.approx(made, rel=off)


def test_a_run_too_short_to_measure_is_refused():
    with pytest.raises(InputError, match=r"2 steps is too short.*--calls"):
        measure_steps(analytic_model(), SamplerSettings(schedule="uniform", steps=2), batch_size=8)
