"""Decisions: where they fall there are the steps, and the last call comes when they have fallen."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from isostep.base.errors import InputError
from isostep.control.decisions import Decisions
from isostep.control.grid import calibrated
from isostep.control.pilot import Pilot

T = (np.arange(1000) + 0.5) / 1000


def pilot(rate, undecided) -> Pilot:
    return Pilot(tuple(T), {"A": tuple(np.ones(1000))}, 1, 1, {"A": tuple(rate(T))}, tuple(undecided(T)))


def test_steps_are_equal_parts_of_the_decisions_not_of_the_path():
    # sqrt(4 t^2) = 2 t has the integral t^2; nothing is undecided, so the last call may come at any time.
    exact = Decisions(smooth=0.0, floor=0.0)
    times = exact.times(pilot(lambda t: 4 * t**2, np.zeros_like), 10)
    assert times == pytest.approx([np.sqrt(i / 10) for i in range(11)], abs=2e-3)


@pytest.mark.parametrize("steps", [2, 5, 20])
def test_the_last_call_waits_for_the_decisions(steps):
    """All of the rate before t = .3, entries open until .9: N steps, the last from .9 on, the others on equal parts."""
    early = pilot(lambda t: np.where(t < 0.3, 1.0, 1e-6), lambda t: np.where(t < 0.9, 3.0, 0.05))
    times = Decisions(smooth=0.0, floor=0.0).times(early, steps)
    assert len(times) == steps + 1
    assert (times[0], times[-1]) == (0.0, 1.0)
    assert times[-2] == pytest.approx(0.9, abs=2e-3)
    assert all(b > a for a, b in pairwise(times))
    length = np.interp(times[:-1], [0, 0.3, 1.0], [0, 0.3, 0.3 + 0.7e-3])
    assert np.diff(length) == pytest.approx(np.full(steps - 1, length[-1] / (steps - 1)), rel=0.02)


def test_a_late_last_call_stays():
    late = pilot(lambda t: np.where(t > 0.9, 1.0, 1e-9), np.zeros_like)
    assert Decisions(floor=0.0).times(late, 4)[-2] > 0.95
    assert Decisions().times(late, 1) == (0.0, 1.0)


def test_how_many_entries_may_be_open_is_a_choice():
    falling = pilot(np.ones_like, lambda t: 10 * (1 - t))
    assert Decisions(open=5.0).decided(falling) == pytest.approx(0.5, abs=2e-3)
    assert Decisions(open=1.0).decided(falling) == pytest.approx(0.9, abs=2e-3)
    never = pilot(np.ones_like, np.ones_like)
    assert Decisions(open=0.1).times(never, 5)[-2] == pytest.approx(T[-1])  # undecided to the end: as late as seen
    with pytest.raises(InputError, match="must be positive"):
        Decisions(open=0.0)


def test_without_decisions_or_times_it_says_what_to_do():
    with pytest.raises(InputError, match="arclength"):
        Decisions().times(Pilot(tuple(T), {"A": tuple(np.ones(1000))}, 1, 1), 5)
    with pytest.raises(InputError, match="isostep calibrate"):
        calibrated(10)
