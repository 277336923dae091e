"""Where DVS has nothing to decide, the summary and one line say so."""

from __future__ import annotations

import logging

import pytest
import torch

from isostep.base.progress import warn_once
from isostep.control.dvs import dvs
from isostep.run.engine import sample_run
from isostep.sampling.run import sample

TOY = "rings-and-stars"


@pytest.fixture
def said(caplog, monkeypatch):
    """Warnings that a call gave."""
    monkeypatch.setattr(logging.getLogger("isostep"), "propagate", True)

    def of(call) -> list[str]:
        warn_once.cache_clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="isostep"):
            call()
        return [record.getMessage() for record in caplog.records if "DVS" in record.getMessage()]

    return of


@pytest.mark.parametrize("clock", ["batch", "graph"])
def test_shares_are_those_of_the_trace(clock):
    """Range (.3, 1]: steps outside do not count, nor the first one."""
    options = {"active": [[0.3, 1.0]], "kappa": 0.05}
    result = sample(TOY, 6, schedule="dvs", steps=40, clock=clock, trace=1, schedule_options=options)
    trace, (low, high) = result.solution.trace, dvs(40).bounds
    ends = trace["t"] + trace["dt"] > 1 - 1e-9  # a last step is cut off by the end
    adapted = (trace["t"] > 0.3) & ~ends
    summary, graphs = result.summary(), 1 if clock == "batch" else 6
    steps = result.solution.counted["adapted"]
    assert abs(int(steps[:graphs].sum()) - int(adapted.sum())) <= graphs
    for bound, dt in (("at_dt_min", low), ("at_dt_max", high)):
        share = float(torch.isclose(trace["dt"][adapted], torch.tensor(dt).double()).double().mean())
        assert summary[bound] == pytest.approx(share, abs=0.05)
    assert summary["at_dt_min"] > 0.1
    assert "at_dt_min" not in sample(TOY, 2, schedule="uniform", steps=4).summary()


def test_a_step_at_its_bound_is_told_once(said, tmp_path):
    stuck = {"schedule": "dvs", "steps": 20, "schedule_options": {"kappa": 1e-6}}
    (line,) = said(lambda: [sample(TOY, 3, **stuck) for _ in range(2)])
    assert line.startswith("DVS sat at dt_min for 9")
    assert line.endswith("fixed steps of 0.01; a larger kappa frees it")
    (line,) = said(lambda: sample(TOY, 3, schedule="dvs", steps=20, schedule_options={"kappa": 1e6}))
    assert "dt_max" in line
    assert "smaller kappa" in line
    assert said(lambda: sample_run(TOY, 3, tmp_path / "run", **stuck)) != []
    assert said(lambda: sample(TOY, 3, schedule="dvs", steps=20)) == []


def test_an_average_that_grows_is_told(said):
    """Two components: from gamma = 1 / (2 * .8) on."""
    (line,) = said(lambda: sample(TOY, 2, schedule="dvs", steps=10, schedule_options={"gamma": 0.63, "kappa": 30}))
    assert "(1 - alpha) gamma C = 1.008 with C = 2 components; a gamma below 0.625 does not" in line
    assert said(lambda: sample(TOY, 2, schedule="dvs", steps=10, schedule_options={"gamma": 0.62, "kappa": 30})) == []


def test_the_average_grows_exactly_from_there_on():
    """Equal V for ever: the average settles below the bound and not above it."""
    settled, growing = (dvs(1000, gamma=gamma) for gamma in (0.6, 0.65))
    assert not settled.warnings(2)
    assert growing.warnings(2)
    for controller, bounded in ((settled, True), (growing, False)):
        ema = torch.zeros(2)
        for _ in range(2000):
            ema = controller.gamma * ((1 - controller.alpha) * ema + controller.alpha).sum() * torch.ones(2)
        assert bool(ema[0] < 100) == bounded
