"""Constants of DVS from a pilot: what is promised comes about, on a known rate and on a model."""

from __future__ import annotations

import json

import numpy as np
import pytest

from isostep.control.pilot import Pilot
from isostep.control.propose import active_range, propose
from isostep.sampling.run import sample
from tests.cli.command import isostep

T = tuple(((np.arange(200) + 0.5) / 200).tolist())


def pilot(rate) -> Pilot:
    return Pilot(T, {"X": tuple(rate), "A": tuple(rate)}, graphs=1, calls=200)


def test_the_range_is_where_the_rate_is_above_its_mean():
    step = np.where((np.array(T) > 0.3) & (np.array(T) < 0.6), 9.0, 1.0)
    ((low, high),) = active_range(pilot(step))
    assert (low, high) == pytest.approx((0.3, 0.6), abs=0.02)
    assert active_range(pilot(np.ones(200))) == ((0.0, 1.0),)


def test_a_level_rate_gives_the_base_step_and_the_kappa_that_can_be_worked_out():
    """gamma = 1/2 of two equal components averages V itself, so kappa = V = j dt_base at 1000 base steps."""
    found = propose(pilot(np.full(200, 40.0)))
    assert (found.gamma, found.active) == (0.5, ((0.0, 1.0),))
    assert found.kappa == pytest.approx(40.0 / 1000, rel=0.02)
    assert np.median(found.dt) == pytest.approx(1.0, abs=0.01)
    assert found.pinned == {"dt_min": 0.0, "dt_max": pytest.approx(0.02, abs=0.02)}


def test_the_proposal_holds_on_the_model(tmp_path):
    seen = isostep("calibrate", "rings-and-stars", "--schedule", "dvs", "--plot", str(tmp_path / "p"), "--json").out
    found = json.loads(seen)
    assert (tmp_path / "p.svg").is_file()
    options = {name: found[name] for name in ("kappa", "gamma", "active")}
    result = sample("rings-and-stars", 32, schedule="dvs", steps=100, schedule_options=options, trace=1)
    trace = result.solution.trace
    ((low, _),) = found["active"]
    inside = trace["dt"][trace["t"] > low][:-1]
    assert float(inside.median()) == pytest.approx(0.01, rel=0.15)
    assert len(trace) / 100 == pytest.approx(found["steps_over_base"], rel=0.1)
    table = isostep("calibrate", "rings-and-stars", "--schedule", "dvs").out
    assert "[sampler.dvs]" in table
